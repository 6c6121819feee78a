"""The WAL beside a SQLite file: whether it is still the file that SQLite has open, and still holds every commit.

SQLite never checks its name or its length again. With a WAL that was removed or cut, every commit that was not yet
moved into the file is lost: at the next crash, or at once.
"""

from __future__ import annotations

import logging
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tocsin.errors import RolledBack, StoreUnavailable
from tocsin.storage.sqlite.errors import by_errno

log = logging.getLogger("tocsin.storage")

HEADER: Final = 32
FRAME: Final = 24
"""Bytes in front of each page in the WAL."""
_MAGIC: Final = 0x377F0682
"""Of a WAL whose checksums are little-endian; the next number stands for big-endian ones."""


class WalLost(RolledBack):
    """The file at the WAL's path is not the one SQLite writes to, or no longer holds every commit."""


class Seen(NamedTuple):
    """The WAL as it was when this transaction was committed.

    It may become shorter, or begin anew, only once the file itself holds that transaction: nothing in the WAL is
    needed then."""

    size: int
    header: bytes
    seq: int


class Wal:
    """The WAL that SQLite has open. Reading and closing it releases no lock: SQLite has none on it."""

    def __init__(self, path: Path) -> None:
        self.path = wal_of(path)
        self._store = path
        self.file: int | None = None
        self.inode = (0, 0)
        self.seen = Seen(0, b"", 0)
        self.lost: str | None = None
        self._moved: Callable[[], int] = _nothing

    def hold(self, seq: int, moved: Callable[[], int]) -> None:
        """Take the present file as the WAL from now on.

        `moved()` returns the last transaction that the store's file itself holds, on any thread."""
        try:
            self.file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as error:
            raise by_errno(error, self.path) or StoreUnavailable(f"{self.path} cannot be read: {error}") from error
        stat = os.fstat(self.file)
        self.inode = (stat.st_dev, stat.st_ino)
        self._moved, self.lost = moved, None
        self.seen = Seen(stat.st_size, os.pread(self.file, HEADER, 0), seq)

    def let_go(self) -> None:
        if self.file is not None:
            os.close(self.file)
            self.file = None

    # ---- While it is in use ----------------------------------------------------------------------

    def check(self) -> None:
        """Raise WalLost if its path leads to another file or to none, or if it was cut. On any thread."""
        if self.file is None:
            return
        seen = self.seen  # before the look: it may grow meanwhile
        self._check_length(self._named(), seen)

    def committed(self, seq: int) -> int | None:
        """Check it after a commit, on the writer's thread: also for a cut after which it has grown again.

        If the WAL began anew, return the transaction up to which the file holds all, even after a loss of power.
        """
        if self.file is None:
            return None
        seen = self.seen
        size = self._named()
        self._check_length(size, seen)
        header = self._check_header(seen, seq)
        self.seen = Seen(size, header, seq)
        return None if header == seen.header else seen.seq

    def _named(self) -> int:
        """Return the length of the file at its path."""
        if self.lost is not None:
            raise WalLost(self.lost)
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be reached: {error.strerror}") from error
        if (stat.st_dev, stat.st_ino) != self.inode:
            raise self._gone()
        return stat.st_size

    def _check_length(self, size: int, seen: Seen) -> None:
        if size < seen.size and self._moved() < seen.seq:
            raise self._spoilt(f"cut from {seen.size:,} to {size:,} bytes")

    def _check_header(self, seen: Seen, seq: int) -> bytes:
        """`seq`: the last transaction that was committed."""
        assert self.file is not None
        header = os.pread(self.file, HEADER, 0)
        if header != seen.header:
            # A WAL that was cut, and written to since, begins with a hole. An empty one was emptied just now by another
            # program's checkpoint, which has moved the last transaction, too.
            needed = seen.seq if _sound(header) else None if header else seq
            if needed is None or self._moved() < needed:
                raise self._spoilt("overwritten")
        return header

    def _gone(self) -> WalLost:
        return WalLost(
            f"{self.path} was replaced or removed while it was in use: put that file back, or stop this process in "
            "order, which moves what it holds into the store, and start it again"
        )

    def _spoilt(self, how: str) -> WalLost:
        """Note the loss for good: later writes may make the WAL as long as it was."""
        self.lost = (
            f"{self.path} was {how} while it was in use, and what was committed with it: nothing more is written. "
            f"Stop this process and restore a backup of {self._store.name}"
        )
        return WalLost(self.lost)

    # ---- When it is not what it was --------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Return whether SQLite, which has the WAL open, can still read every commit in it."""
        if self.file is None or self.lost is not None:
            return False
        try:
            self._check_length(os.fstat(self.file).st_size, self.seen)
            self._check_header(self.seen, self.seen.seq)
        except WalLost:
            return False
        return True

    def keep_stranger(self) -> None:
        """Copy the file at its path if SQLite has another one open: SQLite removes the WAL by its path."""
        with suppress(StoreUnavailable):
            try:
                self._named()
            except WalLost:
                if self.path.exists():
                    keep_wal(self._store)

    def forget(self) -> None:
        """Empty it, so that neither closing nor the next start moves any of it into the file. A copy is kept."""
        if self.file is not None:
            keep_wal(self._store, self.file)
            os.ftruncate(self.file, 0)


def _nothing() -> int:
    return 0


def _sound(header: bytes) -> bool:
    """Tell whether this is the head of a WAL, by its checksum."""
    if len(header) != HEADER or int.from_bytes(header[:4], "big") & ~1 != _MAGIC:
        return False
    one = two = 0
    for left, right in struct.iter_unpack(">II" if header[3] & 1 else "<II", header[:24]):
        one = (one + left + two) & 0xFFFFFFFF
        two = (two + right + one) & 0xFFFFFFFF
    return header[24:] == struct.pack(">II", one, two)


def pages_in_wal(path: Path, size: int) -> set[int]:
    """Return the numbers of the pages in a WAL since it began anew, those of broken-off transactions included."""
    return {number for number, _ in _frames(path, size, frozenset(), 0)}


def images_in_wal(path: Path, size: int, numbers: frozenset[int], length: int) -> list[tuple[int, bytes]]:
    """Return these pages as the WAL has them, oldest first: number and first `length` bytes of each."""
    return [frame for frame in _frames(path, size, numbers, length) if frame[0] in numbers]


def _frames(path: Path, size: int, read: frozenset[int], length: int) -> Iterator[tuple[int, bytes]]:
    """Yield page number and first bytes of each frame since the WAL began anew; bytes only of pages in `read`."""
    try:
        with wal_of(path).open("rb") as wal:
            salt = wal.read(HEADER)[16:24]
            at = HEADER
            while len(frame := os.pread(wal.fileno(), FRAME, at)) == FRAME and frame[8:16] == salt:
                number = int.from_bytes(frame[:4], "big")
                yield number, os.pread(wal.fileno(), length, at + FRAME) if number in read else b""
                at += FRAME + size
    except FileNotFoundError:
        pass


def head_of_wal(path: Path) -> bytes:
    """Return the header of the WAL, which changes whenever the WAL begins anew; empty if there is no WAL."""
    try:
        with wal_of(path).open("rb") as wal:
            return wal.read(HEADER)
    except FileNotFoundError:
        return b""


def page_size_in_wal(head: bytes) -> int:
    """Return the page size by the header of a WAL; 0 if it is no such header."""
    return int.from_bytes(head[8:12], "big") if _sound(head) else 0


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def keep_wal(path: Path, held: int | None = None) -> str:
    """Copy a WAL that SQLite would delete, by its path or an open file. Return words that name the copy, or none."""
    wal, copy = wal_of(path), path.with_name(path.name + "-wal.kept")
    try:
        if held is None and not wal.exists():
            return ""
        with open(wal if held is None else held, "rb", closefd=held is None) as source:
            if not os.fstat(source.fileno()).st_size:
                return ""
            source.seek(0)
            make_private(copy)
            with copy.open("wb") as kept:
                shutil.copyfileobj(source, kept)
    except OSError as error:
        log.error("%s could not be kept: %s", wal, error)
        return ""
    return f" (a copy is {copy.name})"


def make_private(path: Path) -> None:
    """Make an empty file that only its owner reads, if there is none; SQLite gives -wal and -shm the same rights."""
    with suppress(OSError):  # it exists already, or opening it next raises the error
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
