"""`python -m bench lease`: durable schedules per second, fires per second, lateness; with few and many pending.

Every figure is of one run in this process on this machine, SQLite with synchronous=FULL, the receiver in
another process on the same cores. Compare ratios within one run, not figures between machines.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.receiver import percentile
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job, Scheduler

QUIET_S = 120.0
FAR_MS = 30 * 86_400_000
PAYLOAD = {"invoice": 42, "text": "x" * 160}
Row = tuple[str, str, str]


class Bench:
    """Runs the measurements and keeps a row of text for each."""

    def __init__(self, jobs: int, pending: int, transport: str | None) -> None:
        self.jobs, self.pending, self.transport = jobs, pending, transport
        self.rows: list[Row] = []
        self.figures: dict[str, float] = {}

    def row(self, what: str, figure: float, unit: str, more: str = "") -> None:
        self.rows.append((what, f"{figure:,.0f} {unit}" if figure >= 100 else f"{figure:.2f} {unit}", more))
        self.figures[what] = round(figure, 3)
        print(f"{what:<52} {self.rows[-1][1]:>18}  {more}", flush=True)

    async def run(self, folder: Path, receiver: Receiver) -> None:
        url = f"sqlite:///{folder}/bench.db"
        async with ActorHost.open(
            url, origin=receiver.url, secrets=["whsec_" + "a2V5" * 8], transport=self.transport
        ) as host:
            jobs = host.scheduler("bench")
            if self.pending:
                await self._preload(jobs)
            for producers in (1, 32, 256):
                await self._produce(jobs, producers)
            await self._bulk(jobs)
            await self._fire(jobs, receiver)
            await self._late(jobs, receiver)

    async def _preload(self, jobs: Scheduler) -> None:
        at = now_ms() + FAR_MS
        for start in range(0, self.pending, 1000):
            await jobs.submit_many([Job(path="bench:far", args=PAYLOAD, at=at + n) for n in range(start, start + 1000)])

    async def _produce(self, jobs: Scheduler, producers: int) -> None:
        total = self.jobs if producers > 1 else max(self.jobs // 5, 200)
        numbers = iter(range(total))
        at = now_ms() + FAR_MS
        waits: list[float] = []

        async def produce() -> None:
            for n in numbers:
                before = time.perf_counter()
                await jobs.run_at(at + n, "bench:far", PAYLOAD)
                waits.append(time.perf_counter() - before)

        seconds = await timed(lambda: gather([produce() for _ in range(producers)]))
        waits.sort()
        latency = f"p50 {percentile(waits, 0.5) * 1000:.1f} ms, p99 {percentile(waits, 0.99) * 1000:.1f} ms"
        self.row(f"schedules/s, {producers} producers", total / seconds, "/s", latency)

    async def _bulk(self, jobs: Scheduler) -> None:
        at, batches = now_ms() + FAR_MS, max(self.jobs // 1000, 2)

        async def bulk() -> None:
            for _ in range(batches):
                await jobs.submit_many([Job(path="bench:far", args=PAYLOAD, at=at + n) for n in range(1000)])

        self.row("schedules/s, in bulk of 1,000", batches * 1000 / await timed(bulk), "/s")

    async def _fire(self, jobs: Scheduler, receiver: Receiver) -> None:
        await receiver.forget()
        due = now_ms() + 2_000
        for _ in range(0, self.jobs, 1000):
            await jobs.submit_many([Job(path="bench:due", args=PAYLOAD, at=due) for _ in range(1000)])
        stats = await receiver.until(self.jobs)
        extra = f"{stats['unique']:.0f} of {self.jobs} arrived, {stats['count'] - stats['unique']:.0f} twice"
        self.row("fires/s, 64 lanes", rate(stats["unique"], stats["seconds"]), "/s", extra)

    async def _late(self, jobs: Scheduler, receiver: Receiver) -> None:
        await receiver.forget()
        start, count = now_ms() + 1_500, 1_000
        await jobs.submit_many([Job(path="bench:due", args=PAYLOAD, at=start + n * 10) for n in range(count)])
        stats = await receiver.until(count)
        more = f"p50 {stats['late_p50_ms']:.1f} ms, max {stats['late_max_ms']:.1f} ms"
        self.row("lateness p99 at 100 jobs/s", stats["late_p99_ms"], "ms", more)


class Receiver:
    """The receiver process and its control requests."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, what: str) -> dict[str, float]:
        with urllib.request.urlopen(f"{self.url}/{what}", timeout=QUIET_S) as answer:
            stats: dict[str, float] = json.load(answer)
        return stats

    async def forget(self) -> None:
        """What has arrived."""
        await asyncio.to_thread(self.ask, "reset")

    async def until(self, count: int, prefix: str = "") -> dict[str, float]:
        """The stats once `count` jobs have arrived, however long that takes. SystemExit after two quiet minutes."""
        arrived, since = 0.0, time.monotonic()
        while True:
            stats = await asyncio.to_thread(self.ask, f"stats?{prefix}")
            if stats["unique"] >= count:
                return stats
            if stats["unique"] > arrived:
                arrived, since = stats["unique"], time.monotonic()
            elif time.monotonic() - since > QUIET_S:
                raise SystemExit(f"{arrived:.0f} of {count} jobs arrived, and none in the last {QUIET_S:g} s")
            await asyncio.sleep(0.1)


@contextmanager
def receiver_process() -> Iterator[Receiver]:
    command = [sys.executable, "-m", "bench.receiver", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Receiver(int(process.stdout.readline()))
        finally:
            process.terminate()


async def gather(work: list[Awaitable[None]]) -> None:
    await asyncio.gather(*work)


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    before = time.perf_counter()
    await work()
    return time.perf_counter() - before


def rate(count: float, seconds: float) -> float:
    """A second; of so few that they came at once, as if that had taken a millisecond."""
    return count / max(seconds, 0.001)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def in_time(lead_ms: int, make: Callable[[int], Awaitable[None]], undo: Callable[[], Awaitable[object]]) -> int:
    """An instant by which all was made that is due at it: tried with a longer lead where the machine was too slow."""
    while True:
        due = now_ms() + lead_ms
        await make(due)
        if now_ms() < due:
            return due
        await undo()
        lead_ms *= 3


def measure(jobs: int, pending: int, folder: str | None, transport: str | None, loop: str) -> dict[str, float]:
    """One whole run on a fresh store; the figures by name."""
    print(f"\n{pending:,} pending, {transport or 'default'} transport, {loop} loop")
    bench = Bench(jobs, pending, transport)
    with tempfile.TemporaryDirectory(dir=folder) as made, receiver_process() as receiver:
        factory = None
        if loop == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(bench.run(Path(made), receiver))
    return bench.figures
