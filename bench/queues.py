"""`python -m bench queues`: claims, jobs worked off, latency, what waiting costs, queues side by side, chains; peers.

Every figure is of one run on this machine, SQLite with synchronous=FULL. Compare ratios within one run.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from bench.lease import gather, timed
from bench.pool import Figures, row
from bench.queues_chained import chains
from bench.queues_waiting import Starts, beside_a_long_one, idle, idle_over_http, waited_for
from bench.served import TOKEN, served
from tocsin import ActorHost, Job, RemoteScheduler, Scheduler, Worker

PRODUCERS = 32
WORKERS = (1, 8, 64)
PATH = "bench:nothing"


async def backlog(jobs: Scheduler, count: int, queue: str) -> None:
    for start in range(0, count, 1000):
        some = [Job(path=PATH, after=0, options={"queue": queue}) for _ in range(min(1000, count - start))]
        await jobs.submit_many(some)


async def produced(jobs: Scheduler | RemoteScheduler, count: int, queue: str, producers: int = PRODUCERS) -> None:
    """One call a job, as apps do."""
    numbers = iter(range(count))

    async def produce() -> None:
        for _ in numbers:
            await jobs.run_after(0, PATH, queue=queue)

    await gather([produce() for _ in range(producers)])


# ---- Claims --------------------------------------------------------------------------------------


async def claimed(jobs: Scheduler, count: int, claimers: int, most: int, figures: Figures) -> None:
    """Leases given to claimers that ask again and again; nothing is settled."""
    queue = f"claims-{claimers}-{most}"
    await backlog(jobs, count, queue)

    async def claim() -> None:
        while await jobs.claim(queue, max=most, wait=0):
            pass

    seconds = await timed(lambda: gather([claim() for _ in range(claimers)]))
    row(figures, f"claims/s, {claimers} claimers, {most} at once", count / seconds, "/s")


# ---- Jobs from end to end ------------------------------------------------------------------------


class Counted:
    """A handler that knows when it has run often enough."""

    def __init__(self, enough: int) -> None:
        self._left = enough
        self.done = asyncio.Event()

    async def __call__(self, args: Any) -> None:
        self._left -= 1
        if not self._left:
            self.done.set()


async def worked_off(source: Any, count: int, queue: str, workers: int) -> float:
    """Seconds until a worker has settled all that the queue holds."""
    handler = Counted(count)

    async def work() -> None:
        async with Worker(source, {PATH: handler}, queue, concurrency=workers):
            await handler.done.wait()

    return await timed(work)


async def end_to_end(source: Any, producer: Any, count: int, queue: str, workers: int) -> float:
    """Seconds from the first submit until all are settled, the worker waiting from the start."""
    handler = Counted(count)

    async def work() -> None:
        async with Worker(source, {PATH: handler}, queue, concurrency=workers):
            await produced(producer, count, queue)
            await handler.done.wait()

    return await timed(work)


async def jobs_per_s(jobs: Scheduler, count: int, figures: Figures) -> None:
    for workers in WORKERS:
        fewer = max(count // 5, 200) if workers == 1 else count
        await backlog(jobs, fewer, f"off{workers}")
        seconds = await worked_off(jobs, fewer, f"off{workers}", workers)
        row(figures, f"jobs/s worked off, concurrency {workers}", fewer / seconds, "/s", "from a backlog")
        seconds = await end_to_end(jobs, jobs, fewer, f"e2e{workers}", workers)
        what = f"jobs/s end to end, concurrency {workers}"
        row(figures, what, fewer / seconds, "/s", f"{PRODUCERS} producers beside it, one call a job")


async def remotely(folder: Path, count: int, figures: Figures) -> None:
    """The same over HTTP: the server in a process of its own, the worker and the producers in this one."""
    with served(folder) as server:
        async with RemoteScheduler(server.url, token=TOKEN) as jobs:
            for start in range(0, count, 1000):
                some = [Job(path=PATH, after=0, options={"queue": "off"}) for _ in range(min(1000, count - start))]
                await jobs.submit_many(some)
            seconds = await worked_off(jobs, count, "off", 8)
            row(figures, "jobs/s worked off over HTTP, concurrency 8", count / seconds, "/s", "from a backlog")
            seconds = await end_to_end(jobs, jobs, count, "e2e", 8)
            what = "jobs/s end to end over HTTP, concurrency 8"
            row(figures, what, count / seconds, "/s", f"{PRODUCERS} producers beside it, one call a job")
            await waited_for(jobs, jobs, Starts(), 300, "start after submit, over HTTP", figures)


# ---- All of it -----------------------------------------------------------------------------------


async def run(folder: Path, count: int, long: int, figures: Figures) -> None:
    async with ActorHost.open(f"sqlite:///{folder}/queues.db") as host:
        jobs = host.scheduler("bench")
        for claimers, most in ((1, 1), (8, 1), (64, 1), (1, 100)):
            await claimed(jobs, max(count // 5, 200) if (claimers, most) == (1, 1) else count, claimers, most, figures)
        jobs = host.scheduler("jobs")
        await jobs_per_s(jobs, count, figures)
        await waited_for(jobs, jobs, Starts(), 500, "start after submit, a waiting worker", figures)
        await chains(jobs, figures)
        await idle(jobs, 1_000, figures)
    await remotely(folder, count, figures)
    await idle_over_http(folder, 1_000, figures)
    await beside_a_long_one(folder, long, figures)


def measure(count: int, long: int, folder: str | None, loop: str) -> Figures:
    """All of it but the peers; the figures by name."""
    figures: Figures = {}
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with tempfile.TemporaryDirectory(dir=folder) as made, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run(Path(made), count, long, figures))
    return figures
