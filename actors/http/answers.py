"""Answers: JSON in UTF-8, never cached, never guessed at by a browser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_encoder = msgspec.json.Encoder(enc_hook=str)


@dataclass(frozen=True, slots=True)
class Written:
    """An answer whose text stands already: given before, and given again."""

    status: int
    text: bytes


def write(value: Any) -> bytes:
    return _encoder.encode(value)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value` is anything msgspec can encode."""
    if isinstance(value, Written):
        return Response(value.text, value.status, {**HEADERS, **(headers or {})}, "application/json")
    return Response(_encoder.encode(value), status, {**HEADERS, **(headers or {})}, "application/json")


def allowing(methods: str) -> Response:
    """What OPTIONS asks: nothing but the methods there are; other origins get no leave."""
    return Response(status_code=204, headers={**HEADERS, "allow": methods})
