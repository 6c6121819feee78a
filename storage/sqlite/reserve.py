"""Eight MiB allocated beside the store, and deleted when the disk is full so that jobs under way can still end."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

RESERVE_BYTES = 8 * 1024 * 1024
_PROBE_BYTES = 64 * 1024
_DESCRIPTORS = 8
"""Descriptors that a connection needs at most: the file, its WAL, its shared memory, and some for checks."""


class Reserve:
    """A file whose blocks are allocated. Its methods block: call them on a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def there(self) -> bool:
        return self._path.exists()

    def make(self) -> bool:
        """Allocate the space if as much again stays free. Return whether it is allocated now."""
        try:
            if self.there and self._path.stat().st_size == RESERVE_BYTES:
                return True
            space = os.statvfs(self._path.parent)
            if space.f_bavail * space.f_frsize < 2 * RESERVE_BYTES:
                return False
            self._allocate()
        except OSError:
            # The disk is full after all, or cannot allocate: a store without a reserve is better than none.
            return False
        return True

    def _allocate(self) -> None:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, RESERVE_BYTES)
        except OSError:
            self._path.unlink()
            raise
        finally:
            os.close(file)

    def give_up(self) -> bool:
        """Free the space. Return False if it was given up before, or cannot be."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


def why_unwritable(beside: Path, size: int) -> OSError | None:
    """Return the system's error for a file of that size there; None if it can be written.

    SQLite tells a full disk from a failing one, but not a quota, a limit on the size or the number of open files, or
    a read-only file system."""
    probe = beside.with_name(beside.name + ".probe")
    try:
        _open_some()
        file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, bytes(_PROBE_BYTES), 0)
            os.fsync(file)
            os.ftruncate(file, size + _PROBE_BYTES)  # a hole: the file has the length, but takes no space
        finally:
            os.close(file)
    except OSError as error:
        return error
    finally:
        with suppress(OSError):
            probe.unlink()
    return None


def _open_some() -> None:
    """Raise OSError if this process may not open as many files as a connection needs."""
    opened: list[int] = []
    try:
        while len(opened) < _DESCRIPTORS:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for each in opened:
            os.close(each)
