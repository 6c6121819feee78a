"""One process per store: an exclusive lock on `<file>.lock`, held by the system until the process ends.

The file also records which process has the store, and the number of its last commit: by it the next start notices
that a crash lost the WAL.
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
"""Bytes of a line: the process, then its last commit. Lines are overwritten in place, which a full disk allows."""


_MOVED = 2 * _LINE + 48
_COUNTER = _MOVED + 2 * _LINE
_TOKEN = _COUNTER + _LINE
_TOKEN_LINE = 64


class LockFile:
    """The lock ends with the process, however it dies. The file stays, and is no lock by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.token = ""
        """The word that other processes of this user must show to be served by this one; none: it serves none."""
        self._file: int | None = None
        self.inode = (0, 0)

    def take(self) -> None:
        """Take the lock; StoreLocked names the process that has it."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._refused(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(file, b"%-15d\n" % os.getpid(), 0)
            self._note_token(file)
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

    def _note_token(self, file: int) -> None:
        """Write the token for those who may read the file: this user alone."""
        if self.token:
            os.fchmod(file, 0o600)
        with suppress(OSError):  # without it nobody is served, and the store is open all the same
            os.pwrite(file, b"%-*b\n" % (_TOKEN_LINE - 1, self.token.encode("ascii")), _TOKEN)

    def _refused(self, error: OSError) -> StoreError:
        if not self.path.parent.is_dir():
            return StoreUnavailable(f"the folder {self.path.parent} of the store does not exist: make it")
        if (named := by_errno(error, f"the lock file {self.path}")) is not None:
            return named
        return StoreUnavailable(f"cannot lock {self.path}: {error.strerror}")

    def check(self) -> None:
        """Take the lock anew if the file was removed or replaced. Fenced if another process took it first."""
        try:
            stat = os.stat(self.path)
            if (stat.st_dev, stat.st_ino) == self.inode:
                return
        except OSError:
            pass  # it is taken anew below, or the error is raised there
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
        """Return the last commit of a process that ended without a stop in order; 0 if it stopped in order."""
        assert self._file is not None, "taken first"
        return _number(os.pread(self._file, _LINE, _LINE))

    def note_commit(self, seq: int) -> None:
        """Note that this transaction is durable; 0: that no commit can be missing at the next start."""
        if self._file is not None:
            with suppress(OSError):  # it only helps a later start to notice a loss of commits
                os.pwrite(self._file, b"%-15d\n" % seq, _LINE)

    def note_file(self, inode: int) -> None:
        """Note which file the store is."""
        if self._file is not None:
            with suppress(OSError):  # as above
                os.pwrite(self._file, b"%-23d\n%-23d\n" % (inode, self.inode[1]), 2 * _LINE)

    def another_file(self, inode: int) -> bool:
        """Tell whether the process before was killed, and had another file under this name.

        False if the lock file was copied together with the store."""
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
        """Note that this page of the file itself holds at least this transaction, also after a loss of power."""
        if self._file is not None:
            with suppress(OSError):  # as above
                os.pwrite(self._file, b"%-15d\n%-15d\n" % (page, seq), _MOVED)

    def moved(self) -> tuple[int, int]:
        """Return page and transaction of `note_moved` if the process before was killed; else zeros."""
        assert self._file is not None, "taken first"
        known = os.pread(self._file, 2 * _LINE, _MOVED).split()
        if not self.last_commit() or len(known) != 2 or not all(map(bytes.isdigit, known)):
            return 0, 0
        return int(known[0]), int(known[1])

    def note_counter(self, counter: int) -> None:
        """Note that page 1 of the file itself was written at least so often, also after a loss of power."""
        if self._file is not None:
            with suppress(OSError):  # as above
                os.pwrite(self._file, b"%-15d\n" % counter, _COUNTER)

    def counter(self) -> int:
        """Return the counter of `note_counter` if the process before was killed; else 0."""
        assert self._file is not None, "taken first"
        return _number(os.pread(self._file, _LINE, _COUNTER)) if self.last_commit() else 0

    def let_go(self) -> None:
        """Close the file without a change: its lines are about the commits, and in a forked process the lock belongs
        to the parent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def last_commit(path: Path) -> int:
    """Return the last commit, for a reader from outside; 0 if the last process stopped in order."""
    try:
        with path.open("rb") as file:
            file.seek(_LINE)
            return _number(file.read(_LINE))
    except OSError:  # there is no lock file, or this process may not read it
        return 0


def holder_of(path: Path) -> tuple[int | None, str]:
    """Return process and token of whoever took the lock last, for another process; None and "" if nobody did."""
    try:
        with path.open("rb") as file:
            pid = _number(file.read(_LINE))
            file.seek(_TOKEN)
            return pid or None, file.read(_TOKEN_LINE).decode("ascii", "replace").strip()
    except OSError:  # there is no lock file, or this process may not read it
        return None, ""


def _number(text: bytes) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0
