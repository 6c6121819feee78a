"""Frames: what goes over a link. Each is its length, its kind and the number of its call, then a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import Final

from tocsin.errors import PayloadTooLargeError

VERSION: Final = 1
"""Of what is said over a link. Both ends must speak the same one: they are processes of one machine and one app."""
MAX_FRAME: Final = 64 * 1024 * 1024
"""Bytes of one frame: a batch of 8 MiB, or a page of the longest records, fits several times."""
MAX_HELLO: Final = 64 * 1024
"""Bytes of what a stranger may send before it has shown the token."""
_HEAD: Final = Struct(">IBI")


class Kind(IntEnum):
    """The kinds of frames. A follower says the first ones, the holder the others."""

    HELLO = 1
    CALL = 2
    CANCEL = 3
    PING = 4
    WELCOME = 11
    TURNED_AWAY = 12
    ANSWER = 13
    FAILURE = 14
    PONG = 15
    LEAVING = 16
    CHALLENGE = 17


Frame = tuple[int, int, bytes]
"""Kind, number of the call, and body."""


class BrokenLink(Exception):
    """Raised for bytes that are no frame: the link is of no use any more."""


def frame(kind: Kind, number: int = 0, body: bytes = b"") -> bytes:
    """Write a frame; PayloadTooLargeError if its body is too long for one."""
    if len(body) > MAX_FRAME:
        raise PayloadTooLargeError(
            f"what is to go to another process is {len(body)} bytes, at most {MAX_FRAME} fit: ask for less at once",
            limit=MAX_FRAME,
        )
    return _HEAD.pack(len(body), kind, number) + body


class Frames:
    """Reads frames out of bytes as they come."""

    def __init__(self) -> None:
        self.most = MAX_FRAME
        """The longest body that is taken."""
        self.unseal: Callable[[int, int, bytes], bytes] | None = None
        """Checks the seal of each frame from here on, and takes it off; BrokenLink for a wrong one."""
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole by now; BrokenLink where none can be."""
        buffer, start = self._bytes, 0
        buffer += data
        try:
            while len(buffer) - start >= _HEAD.size:
                length, kind, number = _HEAD.unpack_from(buffer, start)
                if length > self.most:
                    raise BrokenLink(f"a frame of {length} bytes, at most {self.most} are taken")
                begin, end = start + _HEAD.size, start + _HEAD.size + length
                if len(buffer) < end:
                    return
                start = end
                body = bytes(memoryview(buffer)[begin:end])
                yield kind, number, body if self.unseal is None else self.unseal(kind, number, body)
        finally:
            if start:
                del buffer[:start]
