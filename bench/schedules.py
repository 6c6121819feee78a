"""`python -m bench schedules`: many schedules in one scheduler. How fast they are registered, what a start and an idle
minute cost, how late a minute is in which many are due, and whether that depends on how many are not.

On a real file with real callbacks. Compare ratios within one run: the receiver shares the machine.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.lease import Receiver, now_ms, receiver_process
from bench.pool import Figures, row
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.handle import Scheduler

SECRET = "whsec_" + "a2V5" * 8
MINUTE_MS = 60_000
SET = 1_000
LEAD_MS = 8_000
IDLE_S = 10.0


class Loop:
    """How long the loop's steps are: a timer that should ring every few milliseconds, and how late it was at most."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.002)
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - before) * 1000 - 2)

    def take(self) -> float:
        longest, self.longest_ms = self.longest_ms, 0.0
        return longest

    def stop(self) -> None:
        self._task.cancel()


def open_host(path: Path, receiver: Receiver) -> ActorHost:
    return ActorHost.open(f"sqlite:///{path}", origin=receiver.url, secrets=[SECRET], lanes=64)


async def register(jobs: Scheduler, owner: str, count: int, rule: Sequence[str]) -> None:
    """`count` daily schedules; their rules are those of `rule`, over and over."""
    for start in range(0, count, SET):
        numbers = range(start, min(start + SET, count))
        given: list[tuple[str, dict[str, Any]]] = [
            (f"s{n:06d}", {"path": "bench:run", "args": {"n": n}, "cron": rule[n % len(rule)]}) for n in numbers
        ]
        await jobs.schedules.register(f"{owner}{start // SET}", given)


def daily(instants: Sequence[int]) -> list[str]:
    moments = [datetime.fromtimestamp(ms / 1000, UTC) for ms in instants]
    return [f"{at.minute} {at.hour} * * *" for at in moments]


def memory_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 / (1024 if sys.platform == "darwin" else 1)


async def minute(path: Path, receiver: Receiver, total: int, due: int, figures: Figures) -> float:
    """The whole story of one store; CPU seconds per fire."""
    label = f"{total:,} schedules"
    async with open_host(path, receiver) as host:
        jobs = host.scheduler("bench")
        loop = Loop()
        others = daily([now_ms() + (120 + n) * MINUTE_MS for n in range(1_200)])
        began = time.perf_counter()
        await register(jobs, "idle", total - due, others)
        seconds = time.perf_counter() - began
        if total > due:
            row(figures, f"registered, {label}", (total - due) / seconds, "/s", f"longest step {loop.take():.0f} ms")
        loop.stop()

    began, cpu = time.perf_counter(), time.process_time()
    async with open_host(path, receiver) as host:
        jobs = host.scheduler("bench")
        await jobs.schedules.put("first", "bench:run", every=86_400)
        row(figures, f"start to first answer, {label}", (time.perf_counter() - began) * 1000, "ms",
            f"cpu {(time.process_time() - cpu) * 1000:.0f} ms, peak {memory_mib():.0f} MiB")  # fmt: skip
        await asyncio.sleep(1)
        cpu = time.process_time()
        await asyncio.sleep(IDLE_S)
        row(figures, f"idle CPU, {label}", (time.process_time() - cpu) / IDLE_S * 100, "%")
        return await fire(jobs, receiver, due, label, figures)


async def fire(jobs: Scheduler, receiver: Receiver, due: int, label: str, figures: Figures) -> float:
    """They are due in the minute that comes."""
    at = (now_ms() + LEAD_MS + due // 200) // MINUTE_MS * MINUTE_MS + MINUTE_MS
    await register(jobs, "due", due, daily([at]))
    assert now_ms() < at - 2_000, "registering took longer than the lead: give fewer"
    await asyncio.to_thread(receiver.ask, "reset")
    await asyncio.sleep((at - now_ms()) / 1000 - 1)
    loop, cpu = Loop(), time.process_time()
    stats = await receiver.until(due)
    cpu = (time.process_time() - cpu) / due
    more = f"p50 {stats['late_p50_ms']:.0f} ms, last {stats['late_max_ms']:.0f} ms, {stats['unique']:.0f} arrived"
    row(figures, f"lateness p99 of {due:,} due at once, {label}", stats["late_p99_ms"], "ms", more)
    row(figures, f"CPU per fire, {label}", cpu * 1e6, "us", f"longest step {loop.take():.0f} ms")
    loop.stop()
    return cpu


async def backlog(path: Path, receiver: Receiver, figures: Figures) -> None:
    """500 schedules with 500 missed slots each, at a start: how long no other task of the loop gets its turn."""
    async with open_host(path, receiver) as host:
        await host.scheduler("bench").schedules.register(
            "late", [(f"s{n}", {"path": "bench:run", "every": 1, "paused": True}) for n in range(500)]
        )
    await asyncio.sleep(0.1)
    clock = _Ahead(500_000)
    loop = Loop()
    host = ActorHost.open(f"sqlite:///{path}", origin=receiver.url, secrets=[SECRET], clock=clock)
    async with host:
        jobs = host.scheduler("bench")
        for n in range(500):
            await jobs.schedules.put(f"late:s{n}", "bench:run", every=1, misfire="all", overlap="allow",
                                     catch_up_limit=None, paused=False)  # fmt: skip
        loop.take()
        clock.ahead_ms += 500_000
        await asyncio.sleep(5)
        longest = loop.take()
        began = time.perf_counter()
    row(figures, "longest step, 500 schedules x 500 slots behind", longest, "ms")
    row(figures, "from a stop until it is obeyed, meanwhile", (time.perf_counter() - began) * 1000, "ms")
    loop.stop()


class _Ahead:
    """The real clock, some time ahead."""

    look_again_s = 1.0

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def run(folder: Path, receiver: Receiver, total: int, due: int, figures: Figures) -> None:
    few = await minute(folder / "few.db", receiver, due, due, figures)
    many = await minute(folder / "many.db", receiver, total, due, figures)
    row(figures, "CPU per fire, many that are not due to few", many / few, "x")
    await backlog(folder / "late.db", receiver, figures)


def measure(total: int, due: int, folder: str | None) -> Figures:
    """All of it, on fresh stores; the figures by name."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(dir=folder) as made, receiver_process() as receiver:
        asyncio.run(run(Path(made), receiver, total, due, figures))
    return figures
