"""The engines that several hosts share, each as a place at which any number of them may connect."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.storage.disk_engine import DiskEngine
from tocsin.storage.ownership.engine import SharedEngine
from tocsin.storage.shared_disk import SharedDisk

Connect = Callable[[], SharedEngine]
"""Makes one more connection to the same store."""


def disk() -> Connect:
    shared = SharedDisk()
    return lambda: DiskEngine(shared)


PLACES: list[Callable[[], Connect]] = [disk]
"""Every engine does each statement alike."""
