"""Raw HTTP answers made by chance from usual and unusual parts, whole, cut short and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

STATUSES = [b"200 OK"] * 6 + [
    b"201",
    b"204 No Content",
    b"304 Not Modified",
    b"404 ",
    b"500 Oops \xff",
    b"20 OK",
    b"099 x",
]
VERSIONS = [b"HTTP/1.1"] * 8 + [b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"ICY"]
NAMES = [
    b"x-a",
    b"X-A",
    b"tocsin-retry",
    b"retry-after",
    b"x a",
    b"x:",
    b"",
    b"set-cookie",
    b" x",
    b"x\x00",
    "x-é".encode(),
]
VALUES = [b"1", b"", b"never", "é".encode(), b"\xe9", b"a\x00b", b"a\rb", b"a\x0bb", b"  x ", b"close", b"y" * 9_000]
CONNECTIONS = [b"keep-alive", b"close", b"Close, x", b"upgrade"]
LENGTHS = [b"+2", b"-2", b"2, 2", b"2, 3", b"0002", b" 2 ", b"", b"9" * 30, b"2\x00", b"0x2"]
CODINGS = [b"chunked", b"Chunked", b"gzip, chunked", b"identity", b"gzip", b"chunked, gzip"]
ENDS = [b"\r\n"] * 9 + [b"\n"]


def raw_answers(seed: int, count: int) -> list[bytes]:
    """Return `count` answers, the same for the same seed."""
    random = Random(seed)
    return [_damaged(random, b"".join(_parts(random))) for _ in range(count)]


def _parts(random: Random) -> Iterator[bytes]:
    if random.random() < 0.1:
        yield b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    body = random.choice([b"", b"ok", b"x" * 300, b"y" * 65_535, b"z" * 70_000])
    end, status = random.choice(ENDS), random.choice(STATUSES)
    yield random.choice(VERSIONS) + b" " + status + end
    for _ in range(random.randrange(4)):
        yield random.choice(NAMES[:4] if random.random() < 0.8 else NAMES) + b":" + random.choice(VALUES) + end
    if random.random() < 0.3:
        yield b"connection: " + random.choice(CONNECTIONS) + end
    framing = random.random()
    if framing < 0.5:
        yield b"content-length: %d" % len(body) + end
    elif framing < 0.6:
        yield b"content-length:" + random.choice(LENGTHS) + end
    if framing > 0.55 and framing < 0.9:
        yield b"transfer-encoding: " + random.choice(CODINGS) + end
        body = b"".join(_chunks(random, body, end))
    yield end + body
    if random.random() < 0.1:
        yield b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def _chunks(random: Random, body: bytes, end: bytes) -> Iterator[bytes]:
    while body:
        size = random.randrange(1, len(body) + 1)
        said = b"%x" % (size if random.random() < 0.95 else size + 1)
        yield said + random.choice([b"", b"", b";x=y", b" "]) + end + body[:size] + end
        body = body[size:]
    yield b"0" + end + random.choice([b"", b"", b"x-t: 1\r\n"]) + end


def _damaged(random: Random, raw: bytes) -> bytes:
    chance = random.random()
    if chance < 0.1:
        return raw[: random.randrange(len(raw))]
    if chance < 0.2:
        at = random.randrange(min(len(raw), 200))
        return raw[:at] + bytes([random.randrange(256)]) + raw[at + 1 :]
    return raw
