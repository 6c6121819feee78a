"""What a job costs beside many others: pending, waiting in a pool, dead; and many idle instances.

Every figure is a ratio: CPU per job on the large store by CPU per job on an empty one, measured in turn.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Mapping
from pathlib import Path

from bench.children import idle_instances
from bench.cpu import spent
from bench.figures import Row
from bench.lease import FAR_MS, PAYLOAD, now_ms, rate
from bench.parts.lateness import beside
from bench.setting import Part, Setting, due_at_once, preload, produced, until
from tocsin import Job, Scheduler
from tocsin.dispatch.transport import Answer

MOST = 1.3
WAITERS = DEAD = 100_000
INSTANCES = 10_000
ROWS = (
    Row("grow/pending/schedule", "CPU of a submit with the most pending, to empty", "times", most=MOST),
    Row("grow/pending/drain", "CPU of a callback with the most pending, to empty", "times", most=MOST),
    Row("grow/waiters/schedule", "CPU of a submit beside 100,000 waiters, to empty", "times", most=MOST),
    Row("grow/waiters/drain", "CPU of a callback beside 100,000 waiters, to empty", "times", most=MOST),
    Row("grow/dead/schedule", "CPU of a submit beside 100,000 dead, to empty", "times", most=MOST),
    Row("grow/dead/drain", "CPU of a callback beside 100,000 dead, to empty", "times", most=MOST),
    Row("grow/idle/schedule", "CPU of a submit beside 10,000 idle instances, to empty", "times", most=MOST),
    Row("grow/idle/memory", "memory of 10,000 idle instances", "MB", most=150),
    Row("grow/made", "jobs put into the large store", "/s", limits=("commit/1000",)),
)
LATE_ROWS = (
    Row("late/pending/p50", "lateness at 100 jobs/s beside the most pending, p50", "ms", most=2.5),
    Row("late/pending/p99", "lateness at 100 jobs/s beside the most pending, p99", "ms", most=8.0),
)
Costs = Mapping[str, float]


async def costs(bench: Setting, store: Path | None) -> tuple[Costs, Costs]:
    """CPU microseconds per submit and per callback, and how many of each a second."""
    count = bench.count(2_500)
    async with bench.open(store) as host:
        return await _costs(bench, host.scheduler("bench"), count)


async def _costs(bench: Setting, jobs: Scheduler, count: int) -> tuple[Costs, Costs]:
    at = now_ms() + FAR_MS
    with spent() as submitting:
        await produced(lambda: jobs.run_at(at, "bench:far", PAYLOAD, id=bench.own_id()), count, 32)
    stats, firing = await due_at_once(bench, jobs, count)
    return (
        {"cpu": submitting.per(count).get("all", 0.0), "rate": count / submitting.seconds},
        {"cpu": firing.per(count).get("all", 0.0), "rate": rate(count - 1, stats["seconds"])},
    )


async def compared(bench: Setting, name: str, store: Path | None) -> tuple[float, float]:
    """Note the ratios of the store's costs to those of an empty one, in turn; the rates of submits and callbacks."""
    rates: list[tuple[float, float]] = []
    for _ in range(bench.repeats):
        empty, filled = await costs(bench, None), await costs(bench, store)
        for kind, before, after in (("schedule", empty[0], filled[0]), ("drain", empty[1], filled[1])):
            if before["cpu"]:
                bench.book.note(f"{name}/{kind}", after["cpu"] / before["cpu"])
        rates.append((filled[0]["rate"], filled[1]["rate"]))
    return statistics.median(one for one, _ in rates), statistics.median(one for _, one in rates)


# ---- Pending -------------------------------------------------------------------------------------


async def pending(bench: Setting) -> None:
    """At each size on the way."""
    curves = bench.book.curves["backlog"]
    for kind in ("submits/s, 32 producers", "callbacks/s, 64 lanes"):
        curves[kind] = []
    sizes = [size for size in (0, 10_000, 100_000, 1_000_000, 5_000_000) if size < bench.most_pending]
    for size in [*sizes, bench.most_pending]:
        last = size == bench.most_pending
        store = await bench.large_store(size) if size else None
        found = await compared(bench, "grow/pending" if last else f"grow/pending/{size}", store)
        for points, figure in zip(curves.values(), found, strict=True):
            points.append((size, figure))


async def late(bench: Setting) -> None:
    store = await bench.large_store(bench.most_pending)
    for _ in range(bench.repeats):
        await beside(bench, store, "late/pending", f"{bench.most_pending:,} pending")


# ---- Waiting, dead, idle -------------------------------------------------------------------------


class Gone:
    """A transport whose receiver is gone for ever: each attempt is a death."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, **limits: float) -> Answer:
        return Answer(410, {}, b"")

    async def aclose(self) -> None: ...


async def waiters(bench: Setting) -> None:
    store, count = bench.store(), bench.count(WAITERS)
    async with bench.open(store) as host:
        jobs = host.scheduler("bench")
        await jobs.set_pool("held", paused=True)
        held = Job(path="bench:due", args=PAYLOAD, after=0, options={"pool": "held"})
        await preload(jobs, [held] * (count - 1))
        last = await jobs.run_after(0, "bench:due", PAYLOAD, pool="held")

        async def last_waits() -> bool:
            return (found := await jobs.get(last)) is not None and found.state == "waiting"

        await until(last_waits, "jobs of a paused pool do not wait", every_s=0.05)
    await compared(bench, "grow/waiters", store)


async def dead(bench: Setting) -> None:
    store, count = bench.store(), bench.count(DEAD)
    logging.disable(logging.WARNING)  # deaths are logged
    async with bench.open(store, transport=Gone(), lanes=256) as host:
        jobs = host.scheduler("bench")
        await preload(jobs, [Job(path="bench:due", args=PAYLOAD, after=0)] * count)

        async def all_died() -> bool:
            return (await jobs.status()).dead >= count

        await until(all_died, "not all jobs have died", every_s=0.1)
    logging.disable(logging.NOTSET)
    await compared(bench, "grow/dead", store)


async def idle(bench: Setting) -> None:
    """In a process of its own, which does nothing else."""
    found = await idle_instances(bench.store(), bench.count(INSTANCES), bench.count(2_500))
    bench.book.note("grow/idle/schedule", found["ratio"])
    if "memory_mb" in found:
        bench.book.note("grow/idle/memory", found["memory_mb"])


async def others(bench: Setting) -> None:
    await waiters(bench)
    await dead(bench)
    await idle(bench)


PENDING = Part("pending", "Beside many pending jobs", (ROWS[0], ROWS[1], ROWS[8]), pending, once=True)
OTHERS = Part("others", "Beside waiters, dead jobs and idle instances", ROWS[2:8], others, once=True)
LATE = Part("lateness-pending", "Lateness beside many pending jobs", LATE_ROWS, late, once=True)
