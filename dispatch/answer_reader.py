"""One HTTP/1 answer, read from the bytes of a connection: the only reader, so all HTTP transports judge alike.

Status and headers decide, so what cannot change them is forgiven: reason phrases, the number of headers, equal lengths
said twice, chunk extensions, trailers, line ends without CR. What leaves status, headers or the end of the body in
doubt is a fault. A body is read up to its limit, as it came: nothing is unpacked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tocsin.dispatch.connection_faults import SPEAKS_TLS, TLS_ALERT, closed_in_words
from tocsin.dispatch.headers import BODILESS, Fault, headers_of, keeps_open, length_of, listed, pairs
from tocsin.dispatch.transport import Answer

HEAD_LIMIT: Final = 128 * 1024
"""Bytes of a head, and of the trailers: some 3,000 headers."""
LINE_LIMIT: Final = 8 * 1024
"""Bytes of a line before a chunk."""

STATUS_LINE: Final = re.compile(rb"HTTP/([0-9])\.([0-9]) ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
PLAIN_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-9][0-9]{2})(?: [^\r\n]*)?\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\x00]*\r\n)*+)\r\n"
)
"""Status line and headers in which nothing is unusual."""
HEAD_END: Final = re.compile(rb"\n\r?\n")
PLAIN_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
CHUNK: Final = re.compile(rb"0*([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
BLANKS: Final = " \t\x0b\x0c"
NEW_LINES: Final = (bytearray(b"\r"), bytearray(b"\n"))
EMPTY_LINES: Final = re.compile(rb"[\r\n]*")
KEPT: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
LAST: Final = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
SWITCHING: Final = 101


class AnswerReader:
    """Fed with what a connection brings, until it has `ended`: with an `answer`, or with a `fault`."""

    def __init__(self, max_body: int, url: str = "") -> None:
        """Read an answer of at most `max_body` bytes to a request for `url`: some faults depend on its scheme."""
        self._url = url
        self.answer: Answer | None = None
        self.fault: str | None = None
        self.reusable = False
        """True if the connection may carry another request: nothing of this answer, and nothing else, can follow."""
        self._max_body = max_body
        self._data = bytearray()
        self._at = 0
        self._step: Callable[[], bool] = self._head
        self._status, self._headers = 0, dict[str, str]()
        self._keeps_open = False
        self._body = bytearray()
        self._left = 0
        """Bytes of the body, or of the chunk, that are still to come; -1: until the connection ends."""
        self._spare = HEAD_LIMIT

    @property
    def ended(self) -> bool:
        return self.answer is not None or self.fault is not None

    def shown(self) -> bytes:
        """Return the bytes that a transport's engine gets in place of the answer: that the exchange is over, and
        whether the connection may be used again. What it would make of the answer itself differs from engine to
        engine."""
        return KEPT if self.reusable else LAST

    def feed(self, data: bytes | memoryview) -> None:
        """Take more bytes. After the end they are dropped, and the connection is not reusable."""
        if self.ended:
            self.reusable = False
            return
        if not self._data and self._step == self._head and self._plain(data):
            return
        self._data += data
        if self._read():
            self.reusable = self.reusable and self._at == len(self._data)
            self._data.clear()
        else:
            del self._data[: self._at]
        self._at = 0

    def eof(self) -> None:
        """Note that nothing more will come."""
        if self.ended:
            return
        if self._step == self._measured and self._left < 0:
            self._end()
        elif self._step == self._head:
            self.fault = self._closed_early()
        else:
            self.fault = f"the connection was closed in the middle of the body, after {len(self._body)} bytes"

    def _closed_early(self) -> str:
        if not self._data:
            return closed_in_words(self._url)
        if self._data.startswith(TLS_ALERT) and self._url.startswith("http:"):
            return SPEAKS_TLS
        return "the connection was closed in the middle of its headers"

    def _read(self) -> bool:
        """Read as far as possible. Return whether that is the end."""
        try:
            while self._step():
                pass
        except Fault as fault:
            self.fault = str(fault)
        return self.ended

    def _plain(self, data: bytes | memoryview) -> bool:
        """Read `data` in one go if it is a whole answer in the usual form; others are read step by step.

        The same tests hold both ways to the same result.
        """
        found = PLAIN_HEAD.match(data, 0, HEAD_LIMIT)
        if found is None:
            return False
        try:
            lines = found[2].decode().split("\r\n")
        except UnicodeDecodeError:
            return False
        headers: dict[str, str] = {}
        for line in lines[:-1]:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip(BLANKS)
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        length, start, status = headers.get("content-length", ""), found.end(), int(found[1])
        if not (length.isascii() and length.isdigit()) or "transfer-encoding" in headers or status in BODILESS:
            return False
        if len(length) > 9 or int(length) != len(data) - start or int(length) > self._max_body:
            return False
        self.reusable = keeps_open(headers, new=True)
        self.answer = Answer(status, headers, bytes(data[start:]))
        return True

    # ---- Steps: each says whether the next one can be taken with what is there --------------------

    def _head(self) -> bool:
        if self._data[self._at : self._at + 1] in NEW_LINES and (empty := EMPTY_LINES.match(self._data, self._at)):
            self._at = empty.end()
        end = HEAD_END.search(self._data, self._at, self._at + HEAD_LIMIT)
        if end is None:
            if len(self._data) - self._at > HEAD_LIMIT:
                raise Fault(f"the headers are longer than {HEAD_LIMIT} bytes")
            return False
        first, _, rest = bytes(self._data[self._at : end.end()]).partition(b"\n")
        self._at = end.end()
        found = STATUS_LINE.fullmatch(first.removesuffix(b"\r"))
        if found is None:
            raise Fault(f"its first line is not that of an HTTP answer: {first[:60]!r}")
        self._status, version = int(found[3]), (found[1], found[2])
        if self._status == SWITCHING:
            raise Fault("it switches to another protocol, which nobody asked for")
        self._headers = headers_of(pairs(rest))
        if self._status > 199:
            self._keeps_open = keeps_open(self._headers, new=version >= (b"1", b"1"))
            self._step = self._framed()
        return True

    def _framed(self) -> Callable[[], bool]:
        """Return how the body is read, as the headers say (RFC 9112, 6.3)."""
        length = length_of(self._headers)
        coded = [name for name in listed(self._headers.get("transfer-encoding")) if name != "identity"]
        if self._status in BODILESS:
            self._left = 0
        elif coded:
            self._keeps_open = self._keeps_open and length is None
            if coded[-1] == "chunked":
                return self._chunk
            self._left = -1
        else:
            self._left = -1 if length is None else length
        return self._measured

    def _measured(self) -> bool:
        """Read a body of a known length, or one that the end of the connection ends."""
        if not self._take() and self._left == 0:
            self._end()
        return False

    def _chunk(self) -> bool:
        self._plain_chunks()
        line = self._line(LINE_LIMIT, "a line before a chunk has no end")
        if line is None:
            return False
        found = CHUNK.fullmatch(line)
        if found is None:
            raise Fault(f"its body is not in chunks: {line[:40]!r}")
        self._left = int(found[1], 16)
        self._step = self._in_chunk if self._left else self._trailer
        return True

    def _plain_chunks(self) -> None:
        """Read chunks that are there whole, at a quarter of the price: one in chunks of a byte delays others."""
        data, at, body = self._data, self._at, self._body
        while (line := PLAIN_CHUNK.match(data, at)) is not None:
            start = line.end()
            end = start + int(line[1], 16)
            if end == start or len(body) + end - start > self._max_body or data[end : end + 2] != b"\r\n":
                break
            body += data[start:end]
            at = end + 2
        self._at = at

    def _in_chunk(self) -> bool:
        if self._take() or self._left:
            return False
        line = self._line(1, "a chunk is longer than it says")
        if line is None:
            return False
        if line:
            raise Fault(f"a chunk is longer than it says: {line[:40]!r}")
        self._step = self._chunk
        return True

    def _trailer(self) -> bool:
        """Read a trailer, and drop it."""
        line = self._line(self._spare, "the trailers have no end")
        if line is None:
            return False
        self._spare -= len(line) + 1
        if not line:
            self._end()
        return bool(line)

    # ---- Inside ----------------------------------------------------------------------------------

    def _line(self, limit: int, fault: str) -> bytes | None:
        """Return the next line, if it is there whole. Fault if it is longer than `limit` bytes."""
        end = self._data.find(b"\n", self._at)
        if (len(self._data) if end < 0 else end) - self._at > limit:
            raise Fault(f"{fault}: {bytes(self._data[self._at : self._at + 40])!r}")
        if end < 0:
            return None
        line = bytes(self._data[self._at : end])
        self._at = end + 1
        return line.removesuffix(b"\r")

    def _take(self) -> bool:
        """Take what is there of the body. Return whether it is over its limit, which ends the answer."""
        there = len(self._data) - self._at
        size = there if self._left < 0 else min(there, self._left)
        room = self._max_body - len(self._body)
        self._body += self._data[self._at : self._at + min(size, room)]
        self._at += size
        if self._left > 0:
            self._left -= size
        if size > room:
            self.answer = Answer(self._status, self._headers, bytes(self._body), cut=True)
        return size > room

    def _end(self) -> None:
        self.reusable = self._keeps_open and self._left >= 0
        self.answer = Answer(self._status, self._headers, bytes(self._body))
