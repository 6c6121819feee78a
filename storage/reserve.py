"""Eight MiB kept aside beside the store: given up when the disk is full, so that work under way can end."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

RESERVE_BYTES = 8 * 1024 * 1024
_PROBE_BYTES = 64 * 1024
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Of the disk, of a quota, of a limit on the size of files."""


class Reserve:
    """A really allocated file. Blocking calls: use them on a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def there(self) -> bool:
        return self._path.exists()

    def make(self) -> bool:
        """Set the space aside, if as much again stays free; whether it is there now."""
        try:
            if self.there and self._path.stat().st_size == RESERVE_BYTES:
                return True
            space = os.statvfs(self._path.parent)
            if space.f_bavail * space.f_frsize < 2 * RESERVE_BYTES:
                return False
            self._allocate()
        except OSError:
            # Full after all, or a file system that cannot: no reserve is a smaller fault than no store.
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
        """Free the space; False if it was given up before, or cannot be."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True


def no_space(beside: Path, size: int) -> bool:
    """Whether a file of that size cannot grow there for want of space. SQLite tells a full disk from a failing one,
    but not a quota or a limit on the size of files."""
    probe = beside.with_name(beside.name + ".probe")
    try:
        file = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, bytes(_PROBE_BYTES), 0)
            os.fsync(file)
            os.ftruncate(file, size + _PROBE_BYTES)  # a hole: it takes no space, but has the length
        finally:
            os.close(file)
    except OSError as error:
        return error.errno in _NO_SPACE
    finally:
        with suppress(OSError):
            probe.unlink()
    return False
