"""What a Python type accepts is what its JSON Schema accepts; where that is not so, it is said here and on the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tests.dispatch.catalog.kinds import JSON, KINDS, LIKELY
from tocsin.dispatch.catalog.python_types import PythonType

Written = dict[str, Any]


def exact(schema: Any) -> Any:
    """The schema without two of its differences from the type, which the page tells of: a tagged value is an object
    to a schema, and fits where any object does; a decimal fits a `float`, which no schema says."""
    if isinstance(schema, list):
        return [exact(one) for one in schema]
    if not isinstance(schema, dict) or "$tocsin" in schema.get("properties", {}):
        return schema
    inner = {name: exact(one) if name not in ("enum", "const", "required") else one for name, one in schema.items()}
    if schema.get("type") == "object":
        inner["properties"] = {**inner.get("properties", {}), "$tocsin": False}
    if schema == {"type": "number"}:
        return {
            "anyOf": [schema, {"type": "object", "properties": {"$tocsin": {"const": "decimal"}}, "required": ["v"]}]
        }
    return inner


CHECKS = [(kind, PythonType(kind)) for kind, _ in KINDS]
FITS: list[Callable[[Any], bool]] = [jsonschema_rs.validator_for(exact(dict(one.schema))).is_valid for _, one in CHECKS]
LIMITED_FLOAT = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(value=LIKELY | JSON)
def test_a_type_accepts_what_its_schema_accepts(value: Any) -> None:
    raw = msgspec.json.encode(value)
    for (kind, check), fits in zip(CHECKS, FITS, strict=True):
        refused = check.refusal(raw)
        if check.schema == LIMITED_FLOAT and isinstance(value, dict):
            continue  # the second difference, with limits
        assert (refused is None) == fits(value), (kind, value, refused)


def test_each_type_takes_the_args_that_fit_it_and_refuses_some_of_the_others() -> None:
    """Or the test above might show nothing."""
    for (kind, check), (_, args) in zip(CHECKS, KINDS, strict=True):
        assert check.refusal(msgspec.json.encode(args)) is None, kind
        refused = [other for _, other in KINDS if check.refusal(msgspec.json.encode(other)) is not None]
        assert bool(refused) == (kind is not Any), kind


@pytest.mark.parametrize(
    ("kind", "args", "taken"),
    [
        (int, 1.0, False),  # a float to Python, an integer to a schema
        (float, {"$tocsin": "decimal", "v": "1.5"}, True),  # msgspec makes a float of it
        (dict[str, Any], {"$tocsin": "date", "v": "2027-01-01"}, False),  # a date to Python, an object to a schema
        (int, {"$tocsin": "int", "v": "18446744073709551616"}, True),  # what no reader of JSON has to take
        (float, {"$tocsin": "float", "v": "NaN"}, True),
        (dict[str, int], {"$tocsin": "object", "v": {"$tocsin": 1}}, True),  # a dict with this key, as it is written
    ],
)
def test_where_a_type_and_its_schema_do_not_agree(kind: Any, args: Any, taken: bool) -> None:
    """These, and no others that the test above has found; docs/catalog.md tells of them."""
    check = PythonType(kind)
    assert (check.refusal(msgspec.json.encode(args)) is None) == taken
    assert jsonschema_rs.is_valid(dict(check.schema), args) != taken
