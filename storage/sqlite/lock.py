"""One process per store: an exclusive lock on `<file>.lock`, held by the system until the process ends.

The file also says who has the store, and how far its commits came: a WAL that was lost behind a crash shows by it.
"""

from __future__ import annotations

import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path

from tocsin.errors import Fenced, StoreError, StoreLocked, StoreUnavailable
from tocsin.storage.sqlite.errors import by_errno

log = logging.getLogger("tocsin.storage")

_LINE = 16
"""Bytes: the process, then its last commit. Written over the line before, so that a full disk has room for it."""


_MOVED = 2 * _LINE + 48
_COUNTER = _MOVED + 2 * _LINE


class LockFile:
    """The lock goes with the process, however it dies; the file stays, and is no lock by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self.inode = (0, 0)

    def take(self) -> None:
        """StoreLocked names the process that has it."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._refused(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(file, b"%-15d\n" % os.getpid(), 0)
        except BlockingIOError as error:
            holder = os.pread(file, _LINE, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise StoreLocked(
                f"{self.path.with_suffix('')} is in use by process {holder}: stop it, use another file, "
                "or talk to it over HTTP",
                pid=holder,
            ) from error
        except OSError as error:
            os.close(file)
            raise self._refused(error) from error
        self._file = file
        stat = os.fstat(file)
        self.inode = (stat.st_dev, stat.st_ino)

    def _refused(self, error: OSError) -> StoreError:
        if not self.path.parent.is_dir():
            return StoreUnavailable(f"the folder {self.path.parent} of the store does not exist: make it")
        if (named := by_errno(error, f"the lock file {self.path}")) is not None:
            return named
        return StoreUnavailable(f"cannot lock {self.path}: {error.strerror}")

    def check(self) -> None:
        """Take it anew if the file was removed or replaced. Fenced if somebody else was faster."""
        try:
            stat = os.stat(self.path)
            if (stat.st_dev, stat.st_ino) == self.inode:
                return
        except OSError:
            pass  # then it is taken anew, or cannot be
        if self._file is None:
            return
        mark, file, old = self.last_commit(), os.pread(self._file, 24, 2 * _LINE), self._file
        (page, moved), counter = self.moved(), self.counter()
        try:
            self.take()
        except StoreLocked as error:
            raise Fenced(f"{self.path} was replaced, and another process has the store: {error}") from error
        os.close(old)
        self.note_commit(mark)
        if file.strip().isdigit():
            self.note_file(int(file))
        self.note_moved(page, moved)
        self.note_counter(counter)
        log.warning("%s was removed or replaced while it was in use: it was made anew", self.path)

    def last_commit(self) -> int:
        """Of the process before that did not stop in order; 0 if it did."""
        assert self._file is not None, "taken first"
        return _number(os.pread(self._file, _LINE, _LINE))

    def note_commit(self, seq: int) -> None:
        """That this transaction is durable; 0: that nothing of what was committed can be missing at the next start."""
        if self._file is not None:
            with suppress(OSError):  # it only helps a later start to notice a loss
                os.pwrite(self._file, b"%-15d\n" % seq, _LINE)

    def note_file(self, inode: int) -> None:
        """Which file the store is."""
        if self._file is not None:
            with suppress(OSError):  # as above
                os.pwrite(self._file, b"%-23d\n%-23d\n" % (inode, self.inode[1]), 2 * _LINE)

    def another_file(self, inode: int) -> bool:
        """The process before was killed, and had another file under this name. Not if the lock was copied with it."""
        assert self._file is not None, "taken first"
        known = os.pread(self._file, 48, 2 * _LINE).split()
        if not self.last_commit() or len(known) != 2:
            return False
        try:
            file, own = map(int, known)
        except ValueError:
            return False
        return own == self.inode[1] and file != inode

    def note_moved(self, page: int, seq: int) -> None:
        """That this page of the file itself holds at least this transaction, also after a loss of power."""
        if self._file is not None:
            with suppress(OSError):  # as above
                os.pwrite(self._file, b"%-15d\n%-15d\n" % (page, seq), _MOVED)

    def moved(self) -> tuple[int, int]:
        """Page and transaction, if the process before was killed; else zeros."""
        assert self._file is not None, "taken first"
        known = os.pread(self._file, 2 * _LINE, _MOVED).split()
        if not self.last_commit() or len(known) != 2 or not all(map(bytes.isdigit, known)):
            return 0, 0
        return int(known[0]), int(known[1])

    def note_counter(self, counter: int) -> None:
        """That page 1 of the file itself was written as often as this at least, also after a loss of power."""
        if self._file is not None:
            with suppress(OSError):  # as above
                os.pwrite(self._file, b"%-15d\n" % counter, _COUNTER)

    def counter(self) -> int:
        """If the process before was killed; else 0."""
        assert self._file is not None, "taken first"
        return _number(os.pread(self._file, _LINE, _COUNTER)) if self.last_commit() else 0

    def let_go(self) -> None:
        """Close it and change nothing: what it says is of the commits, and in a process that was forked the lock is the
        other one's."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def last_commit(path: Path) -> int:
    """How far the commits came, for who only looks; 0 if the last process stopped in order."""
    try:
        with path.open("rb") as file:
            file.seek(_LINE)
            return _number(file.read(_LINE))
    except OSError:  # nobody ever had it, or it is not for us to read
        return 0


def _number(text: bytes) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0
