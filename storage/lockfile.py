"""One process per store: an exclusive lock on `<file>.lock`, held by the system until the process ends."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from tocsin.errors import StoreError, StoreFull, StoreLocked, StoreUnavailable


class LockFile:
    """The lock goes with the process, however it dies; the file stays and means nothing by itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> None:
        """StoreLocked names the process that has it."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._refused(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Over what the last holder wrote, so that it needs no new space on a full disk.
            os.pwrite(file, b"%-15d\n" % os.getpid(), 0)
        except BlockingIOError as error:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise StoreLocked(
                f"{self._path.with_suffix('')} is in use by process {holder}: stop it, use another file, "
                "or talk to it over HTTP",
                pid=holder,
            ) from error
        except OSError as error:
            os.close(file)
            raise self._refused(error) from error
        self._file = file

    def _refused(self, error: OSError) -> StoreError:
        if not self._path.parent.is_dir():
            return StoreUnavailable(f"the folder {self._path.parent} of the store does not exist: make it")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFull(f"no space is left for the lock file {self._path}")
        return StoreUnavailable(f"cannot lock {self._path}: {error.strerror}")

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
