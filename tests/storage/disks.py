"""Disks of their own, small enough to fill, and a file on them that takes the space others leave."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 1024 * 1024


class SmallDisk:
    """A mounted disk; `fill` leaves so many bytes, `free` gives them back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._filler = folder, folder / "filler"

    @property
    def free_bytes(self) -> int:
        space = os.statvfs(self.folder)
        return space.f_bavail * space.f_frsize

    def fill(self, leave: int = 0) -> None:
        with self._filler.open("ab", buffering=0) as file:
            while (free := self.free_bytes - leave) > 0:
                file.write(bytes(min(free, MIB)))

    def free(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, mib: int = 48) -> Iterator[SmallDisk]:
    """A tmpfs. Only root may mount: elsewhere the test is skipped, and tests/storage/test_limited.py has a limit
    that every user can set. Where CI is set it is not skipped."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tocsin-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode != 0:
        why = f"a small disk cannot be mounted here: {mounted.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
