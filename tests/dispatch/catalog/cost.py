"""What checking args costs: `python -m tests.dispatch.catalog.cost` measures the table of docs/catalog.md."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pydantic

from tests.dispatch.catalog.kinds import Item, Order
from tocsin.dispatch.catalog.catalog import expected_of
from tocsin.dispatch.values import encode

RUNS = 3


class Model(pydantic.BaseModel):
    a: int
    b: str = ""


def cases() -> Iterator[tuple[str, Any, Any]]:
    objects = [{"properties": {"k": {"const": n}}, "required": ["k"]} for n in range(30)]
    notes = {f"key{n:06}": {"amount": 1} for n in range(4_000)}
    yield "small struct", Order, {"items": [{"amount": 1}]}
    yield "small JSON Schema", {"type": "object", "required": ["a"]}, {"a": 1}
    yield "small pydantic model", Model, {"a": 1}
    yield "struct of 19,000 items", Order, {"items": [{"amount": 1}] * 19_000}
    yield "130,000 ints", list[int], [1] * 130_000
    yield "3,700 datetimes", list[datetime], [datetime(2027, 1, 1, tzinfo=UTC)] * 3_700
    yield "7,000 decimals", list[Decimal], [Decimal(1)] * 7_000
    yield "a wrong key of 4,000", dict[str, Item], {**notes, "wrong": {"amount": "x"}}
    yield "JSON Schema, 130,000 items", {"items": {"type": "integer"}}, [1] * 130_000
    yield "JSON Schema, uniqueItems of 45,000", {"uniqueItems": True}, list(range(45_000))
    yield "JSON Schema, contains in vain", {"contains": {"const": 5}}, [1] * 130_000
    yield "JSON Schema, a pattern that would backtrack", {"pattern": "^(a+)+$"}, "a" * 260_000 + "!"
    yield "JSON Schema, oneOf of 30 over 30,000", {"items": {"oneOf": objects}}, [{"k": 29}] * 30_000
    yield "JSON Schema, anyOf of 50 over 80,000", {"items": {"anyOf": [{"const": n} for n in range(50)]}}, [49] * 80_000
    yield "35,000 pydantic models", list[Model], [{"a": 1}] * 35_000
    yield "25,000 pydantic models, all wrong", list[Model], [{"a": "x"}] * 25_000


def main() -> None:
    for name, kind, args in cases():
        expected, raw = expected_of(kind), encode(args)
        best = float("inf")
        for _ in range(RUNS):
            began = time.perf_counter()
            refused = expected.refusal(raw)
            best = min(best, time.perf_counter() - began)
        print(f"{best * 1e3:9.3f} ms  {len(raw):7} bytes  {name}{'  (refused)' if refused else ''}", flush=True)


if __name__ == "__main__":
    print(f"msgspec {msgspec.__version__}, pydantic {pydantic.VERSION}")
    main()
