"""The WAL beside a SQLite file: whether it is still the file that SQLite has open, and still holds what was committed.

SQLite never looks at its name again, nor at its length. A WAL that was removed or cut takes along every commit that
was not moved into the file yet: at the next crash, or at once.
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
"""Bytes in front of each page in it."""
_MAGIC: Final = 0x377F0682
"""Of a WAL whose checksums are little-endian; the next number stands for big-endian ones."""


class WalLost(RolledBack):
    """What lies under the WAL's name is not what SQLite writes to, or no longer holds what was committed."""


class Seen(NamedTuple):
    """How the WAL was when this transaction was committed. It may be shorter, or begin anew, only when the file itself
    holds that transaction: then nothing in the WAL was needed any more."""

    size: int
    header: bytes
    seq: int


class Wal:
    """Which file the WAL was when it was held. Reads of it stand in no lock's way: SQLite has none on it."""

    def __init__(self, path: Path) -> None:
        self.path = wal_of(path)
        self._store = path
        self.file: int | None = None
        self.inode = (0, 0)
        self.seen = Seen(0, b"", 0)
        self.lost: str | None = None
        self._moved: Callable[[], int] = _nothing

    def hold(self, seq: int, moved: Callable[[], int]) -> None:
        """From now on it is this file. `moved()`: the last transaction that the file itself holds; from any thread."""
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
        """WalLost if its name leads elsewhere, or nowhere, or if it was cut. On any thread."""
        if self.file is None:
            return
        seen = self.seen  # before the look: it may grow meanwhile
        self._check_length(self._named(), seen)

    def committed(self, seq: int) -> int | None:
        """The same behind a commit, on the writer's thread: also if it was cut and has grown again since.

        If it begins anew, the transaction up to which the file holds all, also after a loss of power.
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
        """The length of what lies under its name."""
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
            # A WAL that was cut, and written to since, begins with a hole. One that is empty was emptied just now: by
            # another program's checkpoint, which has moved the last transaction, too.
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
        """For good: what is written to it later makes it as long as it was."""
        self.lost = (
            f"{self.path} was {how} while it was in use, and what was committed with it: nothing more is written. "
            f"Stop this process and restore a backup of {self._store.name}"
        )
        return WalLost(self.lost)

    # ---- When it is not what it was --------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Whether SQLite, which has it open whatever became of its name, can still read all that was committed."""
        if self.file is None or self.lost is not None:
            return False
        try:
            self._check_length(os.fstat(self.file).st_size, self.seen)
            self._check_header(self.seen, self.seen.seq)
        except WalLost:
            return False
        return True

    def keep_stranger(self) -> None:
        """Keep what lies under its name if that is not what SQLite has open: SQLite removes it by its name."""
        with suppress(StoreUnavailable):
            try:
                self._named()
            except WalLost:
                if self.path.exists():
                    keep_wal(self._store)

    def forget(self) -> None:
        """Let nothing of it be moved into the file, neither by closing nor by the next start. A copy is kept."""
        if self.file is not None:
            keep_wal(self._store, self.file)
            os.ftruncate(self.file, 0)


def _nothing() -> int:
    return 0


def _sound(header: bytes) -> bool:
    """Whether this is the head of a WAL, by its own checksum."""
    if len(header) != HEADER or int.from_bytes(header[:4], "big") & ~1 != _MAGIC:
        return False
    one = two = 0
    for left, right in struct.iter_unpack(">II" if header[3] & 1 else "<II", header[:24]):
        one = (one + left + two) & 0xFFFFFFFF
        two = (two + right + one) & 0xFFFFFFFF
    return header[24:] == struct.pack(">II", one, two)


def pages_in_wal(path: Path, size: int) -> set[int]:
    """The numbers of the pages in a WAL since it began anew; of transactions that broke off, too."""
    return {number for number, _ in _frames(path, size, frozenset(), 0)}


def images_in_wal(path: Path, size: int, numbers: frozenset[int], length: int) -> list[tuple[int, bytes]]:
    """These pages as they stand in the WAL, oldest first, with the first bytes of each."""
    return [frame for frame in _frames(path, size, numbers, length) if frame[0] in numbers]


def _frames(path: Path, size: int, read: frozenset[int], length: int) -> Iterator[tuple[int, bytes]]:
    """Of each frame since it began anew the page's number, and the first bytes of the page if that is to be read."""
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
    """What it begins with, anew each time that it begins anew; empty if there is none."""
    try:
        with wal_of(path).open("rb") as wal:
            return wal.read(HEADER)
    except FileNotFoundError:
        return b""


def page_size_in_wal(head: bytes) -> int:
    """By its head; 0 if that is none."""
    return int.from_bytes(head[8:12], "big") if _sound(head) else 0


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def keep_wal(path: Path, held: int | None = None) -> str:
    """Keep a copy of a WAL that SQLite would throw away, under its name or held open; words that say so, or none."""
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
    """An empty file that only its owner reads, if there is none yet; SQLite gives -wal and -shm the same rights."""
    with suppress(OSError):  # it is there already, or whoever opens it next says what is wrong
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
