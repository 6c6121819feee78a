"""A bare HTTP/1.1 client on asyncio: what the fastest client in Python costs, and load that is not the limit itself.

It needs nothing but the standard library, so that other queues' handlers can post with it too. It is no client for
anything but benchmarks: it reads answers that have a content-length and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from urllib.parse import urlsplit

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
Answer = tuple[int, bytes]


class Wire(asyncio.Protocol):
    """One connection that is kept alive; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._waiter: asyncio.Future[Answer] | None = None

    @classmethod
    async def open(cls, url: str) -> Wire:
        """Connect to the host and port of a URL."""
        at = urlsplit(url)
        host, port = at.hostname or "", at.port or 80
        _, made = await asyncio.get_running_loop().create_connection(cls, host, port)
        return made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class, only by shape

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a whole request; the future is its answer: status and body."""
        if self._transport is None:
            raise ConnectionError("the connection is not open")
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiter

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        if end >= 0:
            length = LENGTH.search(buffer, 0, end)
            if length is None:
                self._fail(ValueError(f"an answer without content-length: {buffer[:100]!r}"))
                return
            if len(buffer) >= end + 4 + int(length[1]):
                self._buffer = b""
                waiter, self._waiter = self._waiter, None
                if waiter is not None and not waiter.done():
                    waiter.set_result((int(buffer[9:12]), buffer[end + 4 :]))
                return
        self._buffer = buffer

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(error or ConnectionResetError("closed before the answer"))

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Wires:
    """As many connections as there are requests at once, opened when they are needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[Wire] = []

    async def ask(self, request: bytes) -> Answer:
        wire = self._idle.pop() if self._idle else await Wire.open(self._url)
        answer = await wire.ask(request)
        self._idle.append(wire)
        return answer

    def close(self) -> None:
        for wire in self._idle:
            wire.close()
        self._idle.clear()


def post(path: str, body: bytes, token: str | None = None) -> bytes:
    """The bytes of a POST of JSON."""
    bearer = f"authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\n{bearer}content-type: application/json\r\ncontent-length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n".encode()


async def asked(url: str, path: str) -> Any:
    """The JSON that a GET is answered with, on a connection of its own."""
    wire = await Wire.open(url)
    try:
        status, body = await wire.ask(get(path))
        if status != 200:
            raise RuntimeError(f"GET {path}: HTTP {status}: {body[:200]!r}")
        return json.loads(body)
    finally:
        wire.close()


async def posted(url: str, requests: Iterable[bytes], lanes: int, check: Callable[[Answer], None]) -> None:
    """Send all requests over `lanes` connections, each as soon as the one before it was answered."""
    waiting = iter(requests)

    async def lane() -> None:
        wire = await Wire.open(url)
        try:
            for request in waiting:
                check(await wire.ask(request))
        finally:
            wire.close()

    work: list[Awaitable[None]] = [lane() for _ in range(lanes)]
    await asyncio.gather(*work)


def ok(answer: Answer) -> None:
    """Fail for anything but success: a benchmark of errors measures nothing."""
    if not 200 <= answer[0] <= 299:
        raise RuntimeError(f"HTTP {answer[0]}: {answer[1][:300]!r}")
