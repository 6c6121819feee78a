"""Answers: JSON in UTF-8, never cached, never guessed at by a browser."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response

JSON: Final = "application/json"
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

LEFT: Final = 499
"""The status of an answer that nobody reads, because its caller has hung up; what logs of proxies call it."""

PLAIN: Final = 4 * 1024

_COMPRESSED: Final = b"\x78"
_encoder = msgspec.json.Encoder(enc_hook=str)


@dataclass(frozen=True, slots=True)
class Written:
    """An answer whose text stands already: given before, and given again."""

    status: int
    text: bytes


class _Json(Response):
    """A response whose fixed headers are encoded once."""

    _fixed = tuple((name.encode(), said.encode()) for name, said in (*HEADERS.items(), ("content-type", JSON)))

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        own = [(name.encode("latin-1"), said.encode("latin-1")) for name, said in headers.items()] if headers else ()
        self.raw_headers = [*self._fixed, (b"content-length", b"%d" % len(self.body)), *own]


def write(value: Any) -> bytes:
    return _encoder.encode(value)


def pack(text: bytes) -> bytes:
    """Return an answer as it is kept to be given again: a long one is compressed."""
    return text if len(text) <= PLAIN else zlib.compress(text)


def unpack(kept: bytes) -> bytes:
    """Return a kept answer as it was. JSON never begins like compressed text."""
    return zlib.decompress(kept) if kept[:1] == _COMPRESSED else kept


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Encode `value`, which is anything msgspec can encode."""
    if isinstance(value, Written):
        return _Json(value.text, value.status, headers)
    return _Json(_encoder.encode(value), status, headers)


def unheard() -> Response:
    """Answer a caller that has hung up. Middleware between here and the server needs an answer to pass on: without it
    Starlette's raises."""
    return Response(status_code=LEFT, headers=HEADERS)


def allowing(methods: str) -> Response:
    """Answer OPTIONS with the methods there are; other origins are not allowed."""
    return Response(status_code=204, headers={**HEADERS, "allow": methods})
