"""Answers as a receiver may put them on the wire, and what every transport must take them for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LIMIT = 65_536


@dataclass(frozen=True)
class Case:
    """What comes before the connection ends. `body` None: a broken answer."""

    raw: bytes
    status: int = 200
    body: bytes | None = b"ok"
    headers: tuple[tuple[str, str], ...] = ()
    """Some that the answer must have."""
    cut: bool = False
    app: tuple[int, Sequence[tuple[bytes, bytes]], Sequence[bytes]] | None = None
    """The same from an app in this process, where that can be said: status, headers, pieces of the body."""


def said(
    *lines: bytes,
    body: bytes = b"ok",
    status: bytes = b"200 OK",
    want: bytes | str | None = "body",
    headers: tuple[tuple[str, str], ...] = (),
    cut: bool = False,
    pieces: Sequence[bytes] | None = None,
) -> Case:
    """An answer that an app can give as well."""
    raw = b"HTTP/1.1 " + status + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body
    pairs = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    app = (int(status[:3]), pairs, [body] if pieces is None else pieces)
    return Case(raw, int(status[:3]), body if want == "body" else want, headers, cut, app)  # type: ignore[arg-type]


def wire(
    *lines: bytes, body: bytes = b"ok", status: bytes = b"200 OK", want: bytes | None = b"ok", cut: bool = False
) -> Case:
    """One that only a connection can bring."""
    raw = b"HTTP/1.1 " + status + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body
    return Case(raw, int(status[:3]) if status[:3].isdigit() else 0, want, cut=cut)


def raw(text: bytes, want: bytes | None = b"ok", status: int = 200) -> Case:
    return Case(text, status, want)


L2 = b"content-length: 2"
CHUNKED = b"transfer-encoding: chunked"
OK_IN_CHUNKS = b"2\r\nok\r\n0\r\n\r\n"
MANY = [b"x-%d: y" % n for n in range(300)]
LONG = b"o" * (LIMIT + 1)

CASES: dict[str, Case] = {
    "plain": said(L2),
    # ---- How long the body is
    "no body": said(status=b"204 No Content", body=b""),
    "204 with a body": said(L2, status=b"204 No Content", want=b""),
    "204 in chunks": wire(CHUNKED, status=b"204 No Content", body=b"0\r\n\r\n", want=b""),
    "304 with a length": said(L2, status=b"304 Not Modified", body=b"", want=b""),
    "205 with a body": said(L2, status=b"205 Reset Content"),
    "two equal lengths": said(L2, L2),
    "equal lengths in a list": said(b"content-length: 2, 2"),
    "a length with zeros and blanks": said(b"content-length:   0002  "),
    "two different lengths": said(b"content-length: 1", L2, want=None),
    "different lengths in a list": said(b"content-length: 2, 1", want=None),
    "a length that is none": said(b"content-length: +2", want=None),
    "a negative length": said(b"content-length: -2", want=None),
    "an empty length": said(b"content-length: ", want=None),
    "a length of 5,000 digits": said(b"content-length: " + b"9" * 5_000, want=None),  # and the body ends before
    "a body cut short": said(b"content-length: 20", want=None),
    "a body longer than it says": said(L2, body=b"okay", want=b"ok"),
    "until the end": wire(b"connection: close"),
    "until the end, though it would keep the connection": wire(b"connection: keep-alive"),
    "of HTTP/1.0": raw(b"HTTP/1.0 200 OK\r\n\r\nok"),
    "as long as the limit": said(b"content-length: 65536", body=LONG[1:]),
    "longer than the limit": said(b"content-length: 65537", body=LONG, want=LONG[1:], cut=True),
    "longer than the limit in pieces": said(body=LONG, want=LONG[1:], cut=True, pieces=[LONG[:9], LONG[9:]]),
    "longer than the limit, in chunks": wire(CHUNKED, body=b"10001\r\n" + LONG, want=LONG[1:], cut=True),
    "longer than the limit, and its end is missing": wire(
        b"content-length: 1000000", body=LONG, want=LONG[1:], cut=True
    ),
    # ---- Chunks
    "chunks": wire(CHUNKED, body=OK_IN_CHUNKS),
    "chunks and a length": wire(L2, CHUNKED, body=OK_IN_CHUNKS),
    "chunks of HTTP/1.0": raw(b"HTTP/1.0 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n" + OK_IN_CHUNKS),
    "chunked said twice": wire(CHUNKED, CHUNKED, body=OK_IN_CHUNKS),
    "another coding, then chunks": wire(b"transfer-encoding: gzip, chunked", body=OK_IN_CHUNKS),
    "another coding until the end": wire(b"transfer-encoding: gzip"),
    "no coding": wire(b"transfer-encoding: identity", L2),
    "trailers": wire(CHUNKED, body=b"2\r\nok\r\n0\r\nx-t: 1\r\nx-u: 2\r\n\r\n"),
    "300 trailers": wire(CHUNKED, body=b"2\r\nok\r\n0\r\n" + b"x-t: 1\r\n" * 300 + b"\r\n"),
    "a trailer that is no header": wire(CHUNKED, body=b"2\r\nok\r\n0\r\nnonsense\r\n\r\n"),
    "chunk extensions": wire(CHUNKED, body=b'2 ;a=b;c="d"\r\nok\r\n0;z\r\n\r\n'),
    "chunks with zeros, and lines without CR": wire(CHUNKED, body=b"0002\nok\n00\n\n"),
    "a chunk longer than it says": wire(CHUNKED, body=b"2\r\nokay\r\n0\r\n\r\n", want=None),
    "a chunk size that is none": wire(CHUNKED, body=b"zz\r\nok\r\n0\r\n\r\n", want=None),
    "a negative chunk size": wire(CHUNKED, body=b"-2\r\nok\r\n0\r\n\r\n", want=None),
    "a chunk cut short": wire(CHUNKED, body=b"20\r\nok", want=None),
    "no last chunk": wire(CHUNKED, body=b"2\r\nok\r\n", want=None),
    "trailers cut short": wire(CHUNKED, body=b"2\r\nok\r\n0\r\nx-t: 1", want=None),
    # ---- The first line
    "no reason": wire(L2, status=b"200"),
    "an empty reason": wire(L2, status=b"200 "),
    "a reason in other bytes": wire(L2, status=b"200 \xe9t\xe9\t\x01\x00!"),
    "a long reason": wire(L2, status=b"200 " + b"r" * 20_000),
    "a later version": raw(b"HTTP/1.2 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    "an odd status": said(L2, status=b"999 Odd"),
    "a status below 100": wire(L2, status=b"099 Odd", want=None),
    "a status of two digits": wire(L2, status=b"20 OK", want=None),
    "a status of four digits": wire(L2, status=b"2000 OK", want=None),
    "a status that is no number": wire(L2, status=b"abc OK", want=None),
    "two blanks before the status": wire(L2, status=b" 200 OK", want=None),
    "another name": raw(b"ICY 200 OK\r\ncontent-length: 2\r\n\r\nok", None),
    "a lower name": raw(b"http/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", None),
    "lines without CR": raw(b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok"),
    "lines without LF": raw(b"HTTP/1.1 200 OK\rcontent-length: 2\r\rok", None),
    "empty lines first": raw(b"\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    "junk first": raw(b"xHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", None),
    # ---- Interim answers
    "interim answers first": raw(
        b"HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n"
        b"HTTP/1.1 199 Odd\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    ),
    "an interim answer, and no other": wire(status=b"102 Processing", body=b"", want=None),
    "another protocol": wire(b"connection: upgrade", b"upgrade: x", status=b"101 Switching", body=b"", want=None),
    "an offer of another protocol": said(b"connection: upgrade", b"upgrade: h2c", L2),
    # ---- Headers
    "300 headers": said(*MANY, L2, headers=(("x-299", "y"),)),
    "a long header": said(b"x: " + b"y" * 20_000, L2, headers=(("x", "y" * 20_000),)),
    "headers longer than 128 KiB": wire(*[b"x: " + b"y" * 6_000] * 25, L2, want=None),
    "a header twice": said(b"X-A: 1", b"x-a: 2", L2, headers=(("x-a", "1, 2"),)),
    "an empty header": said(b"x:", L2, headers=(("x", ""),)),
    "a header in Latin-1": said(b"x: \xe9", L2, headers=(("x", "é"),)),
    "a header in UTF-8": said("x: ☃".encode(), L2, headers=(("x", "☃"),)),
    "a header with a control character": said(b"x: a\x01b", L2, headers=(("x", "a\x01b"),)),
    "a header over two lines": raw(b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 2\r\n\r\nok"),
    "a first header that goes on": wire(b" x: a", L2, want=None),
    "a header with NUL": wire(b"x: a\x00b", L2, want=None),
    "a header with a lone CR": wire(b"x: a\rb", L2, want=None),
    "a blank before the colon": wire(b"x : a", L2, want=None),
    "a name with a blank": wire(b"x y: a", L2, want=None),
    "a name of other characters": wire(b"x(y): a", L2, want=None),
    "an empty name": wire(b": a", L2, want=None),
    "no colon": wire(b"nonsense", L2, want=None),
    "odd cookies, types and connection headers": said(
        b"set-cookie: =;;=,x", b"content-type: text/html; charset=;;", b"keep-alive: timeout=z", b"connection: , ,x", L2
    ),
    # ---- Compression is not undone
    "compressed, it says": said(b"content-encoding: gzip", L2, headers=(("content-encoding", "gzip"),)),
    "compressed in a way nobody knows": said(b"content-encoding: zzz", L2),
    # ---- Ends
    "nothing": raw(b"", None),
    "half a first line": raw(b"HTTP/1.1 20", None),
    "half the headers": raw(b"HTTP/1.1 200 OK\r\ncontent-le", None),
    "headers, and no body": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", None),
}
