"""Answers: JSON in UTF-8, never cached, never guessed at by a browser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

JSON: Final = "application/json"
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

LEFT: Final = 499
"""The status of an answer that nobody reads, because its caller has hung up; what logs of proxies call it."""

_encoder = msgspec.json.Encoder(enc_hook=str)


@dataclass(frozen=True, slots=True)
class Written:
    """An answer whose text stands already: given before, and given again."""

    status: int
    text: bytes


class Reply(msgspec.Struct, frozen=True):
    """An answer, whole. It is an ASGI app, so that a framework can send it, too."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def write(value: Any) -> bytes:
    return _encoder.encode(value)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Encode `value`, which is anything msgspec can encode."""
    if isinstance(value, Written):
        status, text = value.status, value.text
    else:
        text = _encoder.encode(value)
    return Reply(status, [*_OF_JSON, (b"content-length", b"%d" % len(text)), *_encoded(headers or {})], text)


def unheard() -> Reply:
    """Answer a caller that has hung up. Middleware between here and the server needs an answer to pass on: without it
    Starlette's raises."""
    return Reply(LEFT, [*_FIXED, (b"content-length", b"0")], b"")


def allowing(methods: str) -> Reply:
    """Answer OPTIONS with the methods there are; other origins are not allowed."""
    return Reply(204, [*_FIXED, *_encoded({"allow": methods})], b"")


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


_FIXED: Final = _encoded(HEADERS)
_OF_JSON: Final = (*_FIXED, *_encoded({"content-type": JSON}))
