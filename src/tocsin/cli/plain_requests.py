"""Read a request that came whole and in the usual form at once, and write its answer at once.

h11 takes requests apart in Python, step by step, at more CPU time than all that is done with them. What is unusual in
any way is left to it, as if it had been fed from the start: the request, and with it the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent, HTTPScope

Headers = list[tuple[bytes, bytes]]

HEAD_LIMIT: Final = 4 * 1024
"""Bytes of a head. Each connection keeps its last one."""
HEAD: Final = re.compile(
    rb"(GET|POST|PUT|DELETE) (/[!->@-~]*)(?:\?([!-~]*))? HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]++:[\t -~]*+\r\n){1,64}+)\r\n"
)
"""Request line and headers in which nothing is unusual, nor their number."""
UNUSUAL: Final = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer"})
"""Headers that change how a request is read or answered."""
BODILESS: Final = frozenset({204, 304})


class Head:
    """A head, and what it says. A client that stays connected sends the same one again and again."""

    __slots__ = ("headers", "length", "method", "path", "query", "raw_path", "size", "text")

    def __init__(self, text: bytes, line: tuple[bytes, bytes, bytes | None], headers: Headers, length: int) -> None:
        method, self.raw_path, query = line
        self.text, self.size, self.headers, self.length = text, len(text), headers, length
        self.method, self.query = method.decode(), query or b""
        self.path = unquote(self.raw_path.decode())

    def begins(self, data: bytes) -> bool:
        """Return whether `data` is this head and its whole body, and nothing more."""
        return len(data) == self.size + self.length and data.startswith(self.text)


def head_of(data: bytes) -> Head | None:
    """Return the head of `data` if that is one whole request, with nothing unusual in it and nothing behind it."""
    found = HEAD.match(data, 0, HEAD_LIMIT)
    if found is None:
        return None
    headers: Headers = []
    hosts, length = 0, None
    for line in found[4].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        headers.append((name, value))
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            if length is not None or len(value) > 9 or not value.isdigit():
                return None
            length = int(value)
        elif name in UNUSUAL or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
    size, length = found.end(), length or 0
    if hosts != 1 or len(data) != size + length:
        return None
    return Head(data[:size], (found[1], found[2], found[3]), headers, length)


class PlainCycle(RequestResponseCycle):
    """A request that was read at once. Its answer is written at once, or given to h11 with the request."""

    def __init__(
        self, protocol: H11Protocol, scope: HTTPScope, head: Head, data: bytes, done: Callable[[], None]
    ) -> None:
        super().__init__(
            scope=scope,
            conn=protocol.conn,
            transport=protocol.transport,
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=protocol.access_log,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=done,
        )
        self.more_body = False
        self._request, self._size = data, head.size
        self._received = False
        self._start: Any = None
        """The beginning of an answer, of which nothing was written yet."""
        self.plain = True
        """True while h11 knows nothing of this request."""

    async def receive(self) -> ASGIReceiveEvent:
        if self._received or self.disconnected:
            return await super().receive()
        self._received = True
        return {"type": "http.request", "body": self._request[self._size :], "more_body": False}

    async def send(self, message: ASGISendEvent) -> None:
        if not self.plain or self.response_complete:
            return await super().send(message)
        if self._start is None and message["type"] == "http.response.start":
            self._start = message
            self.response_started = True
            return None
        if self.disconnected:
            return None
        if self.flow.write_paused or (answer := self._plain_answer(message)) is None:
            self._give_to_h11()
            if self._start is not None:
                await super().send(self._start)
            return await super().send(message)
        self.response_complete = True
        self.message_event.set()
        self.transport.write(answer)
        self.on_response()
        return None

    def _plain_answer(self, message: ASGISendEvent) -> bytes | None:
        """Return the bytes of an answer that is whole and has nothing unusual; else None."""
        if message["type"] != "http.response.body" or message.get("more_body", False) or not self.keep_alive:
            return None
        start = self._start
        if start is None or not 200 <= start["status"] <= 599 or start["status"] in BODILESS:
            return None
        body = message.get("body", b"")
        headers = [*self.default_headers, *start["headers"]]
        head = b"HTTP/1.1 %d %b\r\n%b" % (start["status"], STATUS_PHRASES[start["status"]], _lines(headers))
        if not _is_plain(headers, head, len(body)):
            return None
        return head + b"\r\n" + body

    def _give_to_h11(self) -> None:
        """Let h11 read the request, as if it had been the first to see it."""
        self.plain = False
        self.response_started = False
        self.conn.receive_data(self._request)
        while not isinstance(self.conn.next_event(), h11.EndOfMessage):
            pass


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def _is_plain(headers: Headers, head: bytes, length: int) -> bool:
    """Return whether an answer says its length rightly, keeps the connection, and no header comes twice or ends its
    line."""
    said = dict(headers)
    if said.get(b"content-length") != b"%d" % length or b"connection" in said or b"transfer-encoding" in said:
        return False
    lines = len(headers) + 1
    return len(said) == len(headers) and head.count(b"\n") == lines and head.count(b"\r") == lines
