"""Verify that the open file is still the one at the store's path, and still the one that this process wrote.

If a backup was restored over a running host, or a volume swapped under it, writes would go to a file that nobody finds
again, or onto pages that do not match SQLite's cache.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tocsin.errors import StoreLocked, StoreUnavailable
from tocsin.storage.sqlite.errors import by_errno
from tocsin.storage.sqlite.lineage import HEAD, FileReplaced, Lineage
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.wal import HEADER, Seen, Wal

if sys.platform == "linux":
    import fcntl


_left_open: dict[tuple[int, int], int] = {}
"""Descriptors of files, by device and inode, that this process could not lock: the next try takes the same one."""


class Identity:
    """The file that `path` led to when it was held.

    `hold` and `let_go` enclose the life of every connection to it: closing any descriptor of a file releases the locks
    that SQLite has on it in this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.wal, self.lineage = Wal(path), Lineage(self.page, str(path))
        self._file: int | None = None
        self._inode = (0, 0)
        self._length = 0

    def hold(self) -> None:
        """Take the present file as the store from now on. StoreLocked if another process has it by another path."""
        try:
            found = os.stat(self._path)
            left_open = _left_open.pop((found.st_dev, found.st_ino), None)
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC) if left_open is None else left_open
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be read: {error.strerror}") from error
        stat = os.fstat(self._file)
        self._inode, self._length = (stat.st_dev, stat.st_ino), stat.st_size
        if sys.platform == "linux":  # elsewhere this lock would conflict with SQLite's own
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                # Not closed: if this process has the store, that would release the locks of its connections.
                _left_open[self._inode] = self._file
                self._file = None
                raise StoreLocked(
                    f"{self._path} is in use under another name (a hard link, another mount): "
                    "stop who has it, or use another file"
                ) from error
            except OSError:
                # Some file systems have no such lock; the lock file beside the store was taken before.
                pass

    def let_go(self) -> None:
        self.lineage.let_go()
        self.wal.let_go()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # ---- At a glance: nothing changed ------------------------------------------------------------

    def is_untouched(self, lock: LockFile | None = None) -> bool:
        """Tell whether file, WAL and (if given) lock file are as the checks saw them last.

        If not, the checks decide whether that is an error: here nothing is."""
        head = self.lineage.head
        if self._file is None or not head or self._glance() is None:
            return False
        try:
            if lock is not None:
                stat = os.stat(lock.path)
                if (stat.st_dev, stat.st_ino) != lock.inode:
                    return False
            return os.pread(self._file, len(head), 0) == head
        except OSError:
            return False

    def committed(self, seq: int) -> int | None:
        """Check file and WAL after a commit: by `check_file` and `Wal.committed`, unless nothing changed but length."""
        wal, size = self.wal, self._glance()
        if size is not None and wal.file is not None and os.pread(wal.file, HEADER, 0) == wal.seen.header:
            wal.seen = Seen(size, wal.seen.header, seq)
            return None
        self.check_file()
        return wal.committed(seq)

    def _glance(self) -> int | None:
        """Return the length of the WAL if both paths lead to the same files, the store as long and the WAL not shorter
        than before; else None."""
        length, seen = self._length, self.wal.seen  # read before the files, which may grow meanwhile
        try:
            file, wal = os.stat(self._path), os.stat(self.wal.path)
        except OSError:
            return None
        if (file.st_dev, file.st_ino) != self._inode or file.st_size != length:
            return None
        if (wal.st_dev, wal.st_ino) != self.wal.inode or wal.st_size < seen.size or self.wal.lost is not None:
            return None
        return wal.st_size

    # ---- What changed ----------------------------------------------------------------------------

    def check(self) -> None:
        """Raise FileReplaced if the path leads to another file or to none, or if the file was cut or overwritten;
        WalLost if the same is true of the WAL."""
        self.check_file()
        self.lineage.check()
        self.wal.check()

    def check_file(self) -> None:
        """Verify that the path leads to the open file, and that it was not cut."""
        length = self._length  # read before the file, which may grow meanwhile
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be reached: {error.strerror}") from error
        if (stat.st_dev, stat.st_ino) != self._inode:
            raise self._gone()
        if stat.st_size != length:
            if stat.st_size < length and stat.st_size < self._least_length():
                raise FileReplaced(
                    f"{self._path} was cut from {length:,} to {stat.st_size:,} bytes while it was in use: nothing more "
                    "is written to it; stop this process and restore a backup"
                )
            self._length = stat.st_size

    def _least_length(self) -> int:
        """Return the length by the file's header, which a program that vacuums it writes before it cuts the file."""
        pages, size = self.pages()
        return pages * size or HEAD

    def pages(self) -> tuple[int, int]:
        """Return the number of pages by the file's header, and their size in bytes; zeros if there is no header."""
        head = self.page(1, HEAD)
        if len(head) < HEAD:
            return 0, 0
        size = int.from_bytes(head[16:18], "big")
        return int.from_bytes(head[28:32], "big"), 65_536 if size == 1 else size

    def _gone(self) -> FileReplaced:
        return FileReplaced(
            f"{self._path} was replaced or removed while it was in use: put that file back, "
            "or stop this process and start it again on the right one"
        )

    @property
    def inode(self) -> int:
        return self._inode[1]

    def sync(self) -> None:
        """Make its content durable: a process that was killed may have been in the middle of a checkpoint."""
        assert self._file is not None, "held while connections are open"
        try:
            os.fsync(self._file)
        except OSError as error:
            raise by_errno(error, self._path) or StoreUnavailable(
                f"{self._path} cannot be synced: {error.strerror}"
            ) from error

    def page(self, number: int, size: int) -> bytes:
        """Read a page from the file itself, whatever SQLite's cache holds."""
        assert self._file is not None, "held while connections are open"
        try:
            return os.pread(self._file, size, (number - 1) * size)
        except OSError as error:
            raise by_errno(error, self._path) or StoreUnavailable(
                f"{self._path} cannot be read: {error.strerror}"
            ) from error


def _forked() -> None:
    while _left_open:  # one that both processes have would be locked for both, when the parent has locked it
        os.close(_left_open.popitem()[1])


os.register_at_fork(after_in_child=_forked)
