"""`python -m bench pool`: hand-over of slots, unpooled latency beside a saturated pool, rows written and scanned.

The first two on a real file with real callbacks, the last on the memory engine, where rows are counted, not timed.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.lease import QUIET_S, Receiver, in_time, now_ms, rate, receiver_process
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job, Scheduler
from tocsin.dispatch.asgi_transport import AsgiTransport, Message
from tocsin.storage.memory import MemoryProvider

SECRET = "whsec_" + "a2V5" * 8
Figures = dict[str, float]


def row(figures: Figures, what: str, figure: float, unit: str, more: str = "") -> None:
    figures[what] = round(figure, 3)
    print(f"{what:<58} {figure:>12,.2f} {unit:<6} {more}", flush=True)


async def bulk(jobs: Scheduler, made: Sequence[Job]) -> None:
    for start in range(0, len(made), 1000):
        await jobs.submit_many(made[start : start + 1000])


# ---- Timed, on a file ----------------------------------------------------------------------------


async def hand_over(folder: Path, receiver: Receiver, cap: int, count: int, figures: Figures) -> None:
    """How fast one pool of this cap works off its waiters: each start waits for an end."""
    await receiver.forget()
    async with open_host(folder / f"cap{cap}.db", receiver) as host:
        jobs = host.scheduler("bench")
        await jobs.set_pool("p", max_concurrency=cap)
        due = now_ms() + 1_000
        await bulk(jobs, [Job(path="b", at=due, options={"pool": "p"}) for _ in range(count)])
        stats = await receiver.until(count)
    row(figures, f"hand-overs/s, one pool, cap {cap}", rate(count - 1, stats["seconds"]), "/s")


async def beside_saturated(
    folder: Path, receiver: Receiver, waiters: int, count: int, figures: Figures, lanes: int = 64
) -> None:
    """Lateness of unpooled jobs due in the same instant as the waiters of a pool of cap 1, of whom only one runs.

    With as many lanes as jobs they all start at once, and arrive as fast as the HTTP client sends."""
    await receiver.forget()
    async with open_host(folder / f"beside{waiters}-{count}-{lanes}.db", receiver, lanes) as host:
        jobs = host.scheduler("bench")
        await jobs.set_pool("p", max_concurrency=1)
        free: list[str] = []

        async def make(due: int) -> None:
            await receiver.forget()
            free[:] = [f"free{due}-{n}" for n in range(count)]  # another id for each try: some may have run
            await bulk(jobs, [Job(path="b", at=due, options={"pool": "p"}) for _ in range(waiters)])
            await bulk(jobs, [Job(path="b", at=due, options={"id": one}) for one in free])

        due = await in_time(4_000, make, lambda: jobs.cancel_all(all=True))
        stats = await receiver.until(count, f"free{due}-")
        await jobs.set_pool("p", paused=True)
        started = sorted([await started_at(jobs, one) - due for one in free])
        await jobs.cancel_all(pool="p")
    what = f"{count} unpooled beside {waiters:,} waiters, {lanes} lanes"
    row(figures, f"{what}, started after", started[count // 2], "ms", f"last {started[-1]} ms")
    more = f"p50 {stats['late_p50_ms']:.1f} ms, last {stats['late_max_ms']:.1f} ms after due"
    row(figures, f"{what}, first to last", stats["seconds"] * 1000, "ms", more)


async def started_at(jobs: Scheduler, job_id: str) -> int:
    """When its first attempt started. The history has it once that is settled, which is after its callback arrived."""
    end = time.monotonic() + QUIET_S
    while not (attempts := await jobs.history(job_id)):
        if time.monotonic() > end:
            raise SystemExit(f"{job_id} arrived, and was not settled within {QUIET_S:g} s")
        await asyncio.sleep(0.01)
    return attempts[0].started


def open_host(path: Path, receiver: Receiver, lanes: int = 64) -> ActorHost:
    return ActorHost.open(
        f"sqlite:///{path}", origin=receiver.url, secrets=[SECRET], lanes=lanes, max_in_flight=max(256, lanes)
    )


# ---- Counted, in memory --------------------------------------------------------------------------


class Answering:
    """An ASGI app that says ok, and tells when it has done so often enough."""

    def __init__(self, enough: int) -> None:
        self._left = enough
        self.done = asyncio.Event()

    async def __call__(self, scope: Message, receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]
        self._left -= 1
        if self._left == 0:
            self.done.set()


class Counting(MemoryProvider):
    """Counts the rows that scans bring."""

    scanned = 0

    def __init__(self) -> None:
        super().__init__()
        disk, scan = self.disk, self.disk.scan_many

        def counted(*args: object, **options: object) -> object:
            found = scan(*args, **options)  # type: ignore[arg-type]
            self.scanned += sum(map(len, found))
            return found

        disk.scan_many = counted  # type: ignore[method-assign, assignment]


async def rows_per_job(what: str, made: Sequence[Job], figures: Figures, cap: int | None = None) -> None:
    """Rows put and deleted per job from schedule to end, and rows scanned per start."""
    app, provider = Answering(len(made)), Counting()
    async with ActorHost.open(
        provider, origin="http://127.0.0.1:9", secrets=[SECRET], transport=AsgiTransport(app)
    ) as host:
        jobs = host.scheduler("bench")
        if cap is not None:
            await jobs.set_pool("p", max_concurrency=cap)
        before, scanned = provider.stats(), provider.scanned
        await bulk(jobs, made)
        await app.done.wait()
        await host.stop()
        after = provider.stats()
    written = after.rows_put + after.rows_deleted - before.rows_put - before.rows_deleted
    more = f"scanned per job {(provider.scanned - scanned) / len(made):.2f}"
    row(figures, f"rows written per job, {what}", written / len(made), "rows", more)


async def waiting_writes_nothing(waiters: int, seconds: float, figures: Figures) -> None:
    """Row operations of many waiters while their pool is held by one long job."""
    provider = MemoryProvider()
    hold = asyncio.Event()

    async def app(scope: Message, receive: object, send: object) -> None:
        await hold.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    async with ActorHost.open(
        provider, origin="http://127.0.0.1:9", secrets=[SECRET], transport=AsgiTransport(app), drain_s=0.1
    ) as host:
        jobs = host.scheduler("bench")
        await bulk(jobs, [Job(path="b", after=0, options={"pool": "p"}) for _ in range(waiters)])
        await asyncio.sleep(0.2)
        before = provider.stats()
        await asyncio.sleep(seconds)
        after = provider.stats()
        written = after.rows_put + after.rows_deleted - before.rows_put - before.rows_deleted
        row(figures, f"row operations in {seconds:g} s of {waiters:,} waiters", written, "rows")
        hold.set()


def measure(waiters: int, folder: str | None) -> Figures:
    """All of it; the figures by name."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory(dir=folder) as made, receiver_process() as receiver:
        for cap, count in ((1, 1_000), (8, 3_000), (64, 5_000)):
            asyncio.run(hand_over(Path(made), receiver, cap, count, figures))
        for beside in (0, 10_000):
            asyncio.run(beside_saturated(Path(made), receiver, beside, 500, figures))
            asyncio.run(beside_saturated(Path(made), receiver, beside, 500, figures, lanes=512))
            asyncio.run(beside_saturated(Path(made), receiver, beside, 50, figures))
    plain = [Job(path="b", after=0) for _ in range(5_000)]
    asyncio.run(rows_per_job("unpooled", plain, figures))
    one = [Job(path="b", after=0, options={"pool": "p"}) for _ in range(5_000)]
    asyncio.run(rows_per_job("one pool, cap 64", one, figures, 64))
    priorities = [Job(path="b", after=0, options={"pool": "p", "priority": n % 5}) for n in range(5_000)]
    asyncio.run(rows_per_job("one pool, cap 8, five priorities", priorities, figures, 8))
    started = time.perf_counter()
    asyncio.run(rows_per_job(f"one pool, cap 64, {waiters:,} waiters", one[:1] * waiters, figures, 64))
    row(figures, f"  of which each took, {waiters:,} waiters", (time.perf_counter() - started) / waiters * 1e6, "us")
    each = [Job(path="b", after=0, options={"pool": f"p{n}"}) for n in range(waiters)]
    started = time.perf_counter()
    asyncio.run(rows_per_job(f"{waiters:,} pools with one job each", each, figures))
    row(figures, f"  of which each took, {waiters:,} pools", (time.perf_counter() - started) / waiters * 1e6, "us")
    asyncio.run(waiting_writes_nothing(10_000, 2.0, figures))
    return figures
