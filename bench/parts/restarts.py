"""How long a process takes from its start to its first callback: beside many pending jobs, and after SIGKILL."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.children import bare_start, firing
from bench.figures import Row
from bench.lease import PAYLOAD, now_ms
from bench.setting import Part, Setting, preload, until
from bench.wire import asked
from tocsin import Job

KILLS = 3
LANES = 64
LEASE_S = 1 + 15
"""Of an attempt of a job with the shortest deadline: what was in flight at a kill comes again after that."""
WHOLE = 0.2
"""The scale from which on it is worth while to wait that long for what comes twice."""
START = (
    Row("start", "start beside the most pending, to the first callback", "s", most=1.0, limits=("start/bare",)),
    Row("start/bare", "a Python process that only imports tocsin", "s"),
)
KILLED = (
    Row("killed", "start after SIGKILL, to the next callback", "s", most=2.0, limits=("start/bare",)),
    Row("killed/lost", "jobs lost in three kills", "jobs", most=0),
    Row("killed/doubled", "callbacks that came twice in three kills", "jobs", most=KILLS * LANES),
)


async def start(bench: Setting) -> None:
    """From the start of the interpreter. The job is due before."""
    store = await bench.large_store(bench.most_pending)
    for _ in range(bench.repeats):
        await _due(bench, store, 1)
        bench.book.note("start/bare", bare_start())
        began = time.time()
        with firing(store, bench.receiver):
            stats = await bench.arrived(1)
        bench.book.note("start", stats["first"] - began)


async def killed(bench: Setting) -> None:
    """Killed in the middle of many callbacks, again and again; what is not counted arrives nowhere else."""
    store, count = bench.store(), bench.count(6_000, 1_500)
    await _due(bench, store, count)
    began = time.time()
    for kill in range(KILLS):
        with firing(store, bench.receiver) as process:
            if kill:
                await _next(bench, began)
            await _seen(bench, count * (kill + 1) // (KILLS + 2))
            process.kill()
            process.wait()
        killed_at = time.monotonic()
        bench.book.note("start/bare", bare_start())  # what the killed one had sent is read by then
        began = time.time()
    with firing(store, bench.receiver):
        await _next(bench, began)
        if bench.scale < WHOLE:
            return
        await asyncio.sleep(max(killed_at + LEASE_S + 3 - time.monotonic(), 0))
        stats = await asked(bench.receiver, "/stats")
    bench.book.note("killed/lost", count - stats["unique"])
    bench.book.note("killed/doubled", stats["count"] - stats["unique"])


async def _due(bench: Setting, store: Path, count: int) -> None:
    """Leave jobs in the store that are due when this returns, and that no process has looked at since."""
    lead = 1_000 + count // 5
    while True:
        await bench.forget()
        async with bench.open(store) as host:
            due = now_ms() + lead
            some = [Job(path="bench:due", args=PAYLOAD, at=due, options={"timeout_ms": 1_000})] * count
            await preload(host.scheduler("bench"), some)
        if now_ms() < due and not (await asked(bench.receiver, "/count"))["count"]:
            await asyncio.sleep(max(due - now_ms(), 0) / 1000)
            return
        async with bench.open(store):  # some have run, and the rest must have before others are counted
            await bench.arrived(count)
        lead *= 3


async def _next(bench: Setting, began: float) -> None:
    """Note when the first callback after that instant came."""

    async def came() -> bool:
        return await _after(bench, began) is not None

    await until(came, "no callback came after a restart")
    bench.book.note("killed", (await _after(bench, began) or began) - began)


async def _after(bench: Setting, instant: float) -> float | None:
    found: float | None = (await asked(bench.receiver, f"/after?{instant}"))["at"]
    return found


async def _seen(bench: Setting, count: int) -> None:
    async def seen() -> bool:
        return bool((await asked(bench.receiver, "/count"))["count"] >= count)

    await until(seen, f"fewer than {count} callbacks came", every_s=0.005)


STARTING = Part("start", "Start beside many pending jobs", START, start, once=True)
KILLING = Part("killed", "Restart after SIGKILL", KILLED, killed, once=True)
