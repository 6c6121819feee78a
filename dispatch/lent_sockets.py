"""Sockets that are given to an event loop, whose descriptors must not be closed twice.

asyncio closes such a socket through the socket. uvloop closes its descriptor, and tells the socket only if it had noted
it by then: a connection that was reset at once is lost before that. The socket, once nobody needs it, closes whatever
has its number then: another's connection, or a locked file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

HAS_INODES: Final = os.name == "posix"
"""False on Windows, where there is no uvloop either."""


class LentSocket:
    """Remembers which connection a socket is, so that the socket's number can be told from the same number reused."""

    __slots__ = ("_inode", "_socket")

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._inode = os.fstat(made.fileno()).st_ino if HAS_INODES else 0

    def disown_what_is_closed(self) -> None:
        """Take its number from a socket whose descriptor has been closed by the loop."""
        number = self._socket.fileno()
        if HAS_INODES and number != -1 and _inode_of(number) != self._inode:
            self._socket.detach()


@contextmanager
def lent(made: socket.socket) -> Iterator[socket.socket]:
    """Give `made` to an event loop in the block, for good."""
    mine = LentSocket(made)
    try:
        yield made
    finally:
        mine.disown_what_is_closed()


def _inode_of(number: int) -> int | None:
    try:
        return os.fstat(number).st_ino
    except OSError:
        return None  # nobody has the number now
