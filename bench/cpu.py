"""CPU time of a process by kind of thread, which is steadier than time on a machine that does other things too."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TASKS = "/proc/{pid}/task"
LOOP, OTHERS = "loop", "store"
"""The main thread runs the event loop; in a host all others belong to the store."""


def threads_ns(pid: int) -> dict[int, int]:
    """CPU nanoseconds of each living thread of a process. Empty where the system does not say."""
    used: dict[int, int] = {}
    for task in Path(TASKS.format(pid=pid)).glob("*"):
        try:
            used[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # it has ended since, or the system keeps no such counts
    return used


def descendants(pid: int) -> set[int]:
    """The living processes that a process started, and those that they did. Empty where the system does not say."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended since
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def used_ns(pids: Iterable[int]) -> int:
    """CPU nanoseconds of the living threads of these processes."""
    return sum(ns for pid in pids for ns in threads_ns(pid).values())


class Spent:
    """Seconds and CPU of a block of code, in this process or another one."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid or os.getpid()
        self.seconds = 0.0
        self.cpu_us: dict[str, float] = {}
        """Microseconds by kind of thread. Without counts per thread, of this process alone, under `all`."""

    def per(self, count: float) -> dict[str, float]:
        """Microseconds of each kind of thread for one of `count` jobs, and their sum."""
        each = {kind: us / count for kind, us in self.cpu_us.items()}
        return {**each, "all": sum(each.values())} if each else {}


@contextmanager
def spent(pid: int | None = None) -> Iterator[Spent]:
    """Measure the block. A thread that begins in it counts from its beginning; one that ends in it does not count."""
    found = Spent(pid)
    before, own, began = threads_ns(found.pid), time.process_time(), time.perf_counter()
    yield found
    found.seconds = time.perf_counter() - began
    after, used = threads_ns(found.pid), time.process_time() - own
    found.cpu_us = _by_kind(found.pid, before, after)
    if not found.cpu_us and found.pid == os.getpid():
        found.cpu_us = {"all": used * 1e6}


def _by_kind(pid: int, before: Mapping[int, int], after: Mapping[int, int]) -> dict[str, float]:
    used: dict[str, float] = {}
    for thread, ns in after.items():
        kind = LOOP if thread == pid else OTHERS
        used[kind] = used.get(kind, 0.0) + (ns - before.get(thread, 0)) / 1000
    return used
