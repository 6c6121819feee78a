"""One process per store: an exclusive lock on `<file>.lock`, held by the system until the process ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tocsin.errors import StoreLocked, StoreUnavailable


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
            raise StoreUnavailable(f"cannot open the lock file {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise StoreLocked(
                f"{self._path.with_suffix('')} is in use by process {holder}: stop it, use another file, "
                "or talk to it over HTTP",
                pid=holder,
            ) from error
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
