"""Disks of their own, small enough to fill, and a file on them that takes the space others leave."""

from __future__ import annotations

import os
import shutil
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


class LoopDisk:
    """ext4 on a file: it turns read-only at an error, as a real one does."""

    def __init__(self, folder: Path, image: Path) -> None:
        self.folder, self._image = folder, image

    def mount(self) -> subprocess.CompletedProcess[str]:
        command = ["mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True)

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True, capture_output=True)

    def break_down(self) -> None:
        """An error that the file system believes it has found."""
        lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        [device] = [one[0] for one in lines if one[1] == str(self.folder)]
        Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("1")

    def repair(self) -> None:
        self.unmount()
        subprocess.run(["e2fsck", "-fy", str(self._image)], capture_output=True)  # 1: it mended something
        assert self.mount().returncode == 0


@contextmanager
def ext4_disk(folder: Path) -> Iterator[LoopDisk]:
    """Skipped where loop devices cannot be mounted, which is common in containers, also of CI."""
    folder.mkdir()
    image = folder.with_name(folder.name + ".img")
    disk = LoopDisk(folder, image)
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4 here")
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    if (mounted := disk.mount()).returncode != 0:
        pytest.skip(f"a file cannot be mounted as a disk here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        disk.unmount()
