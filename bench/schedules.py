"""`python -m bench schedules`: many schedules in one scheduler: to define, to start with, idle, and due at once."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.lease import Receiver, in_time, receiver_process
from bench.pool import SECRET, Figures, row
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Scheduler

IDLE_S = 10
LEAD_MS = 8_000


async def register(jobs: Scheduler, owner: str, count: int, given: dict[str, Any]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    for first in range(0, count, 1000):
        some = [(f"s{n}", given) for n in range(min(1000, count - first))]
        await jobs.schedules.register(f"{owner}{first}", some)
    return time.perf_counter() - started


async def fire(jobs: Scheduler, receiver: Receiver, due_count: int, what: str, figures: Figures) -> None:
    """One-time schedules due at one instant, beside all that are not: a worst case of a minute's start."""

    async def make(due: int) -> None:
        await receiver.forget()
        await register(jobs, f"due{due}-", due_count, {"path": "b", "at": due})

    async def undo() -> None:
        """Those that were too early fire all the same: all of them must have, before others are counted."""
        await receiver.until(due_count)

    await in_time(LEAD_MS, make, undo)
    stats = await receiver.until(due_count)
    more = f"p50 {stats['late_p50_ms']:,.0f} ms, last {stats['late_max_ms']:,.0f} ms"
    row(figures, f"{due_count:,} due at once, {what}: late p99", stats["late_p99_ms"], "ms", more)


async def run(folder: Path, receiver: Receiver, count: int, due_count: int, figures: Figures) -> None:
    url = f"sqlite:///{folder}/schedules.db"

    def host() -> ActorHost:
        return ActorHost.open(url, origin=receiver.url, secrets=[SECRET])

    async with host() as opened:
        jobs = opened.scheduler("bench")
        await fire(jobs, receiver, due_count, "nothing beside them", figures)
        taken = await register(jobs, "far", count, {"path": "b", "cron": "30 9 1 1 *", "timezone": "Europe/Berlin"})
        row(figures, f"{count:,} cron schedules defined", count / taken, "/s")
    started = time.perf_counter()
    async with host() as opened:
        jobs = opened.scheduler("bench")
        await jobs.run_after("1h", "b")
        row(figures, f"start with {count:,} schedules", (time.perf_counter() - started) * 1000, "ms")
        used = time.process_time()
        await asyncio.sleep(IDLE_S)
        share = (time.process_time() - used) / IDLE_S * 100
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        row(figures, f"CPU while {count:,} schedules are not due", share, "%", f"process {memory:,.0f} MB at most")
        await fire(jobs, receiver, due_count, f"{count:,} beside them", figures)


def measure(count: int, due_count: int, folder: str | None) -> Figures:
    """All of it; the figures by name."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(dir=folder) as made, receiver_process() as receiver:
        asyncio.run(run(Path(made), receiver, count, due_count, figures))
    return figures
