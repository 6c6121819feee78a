"""Queue jobs a second with 64 workers: in this process, and over HTTP with the server in another one."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.cpu import Spent, spent
from bench.figures import Row
from bench.served import TOKEN, served
from bench.setting import BULK, Part, Setting
from tocsin import Job, RemoteScheduler, Scheduler, Worker

PATH = "bench:nothing"
WORKERS = 64
IN_PROCESS = (
    Row("queue", "queue jobs worked off, 64 workers", limits=("fire/64",)),
    Row("queue/submit", "queue jobs submitted, 32 producers", limits=("commit/32",)),
)
OVER_HTTP = (
    Row("queue/http", "queue jobs worked off over HTTP, 64 workers", least=1_500, limits=("bare/64", "fire/64")),
    Row("queue/http/server", "  of which the server's CPU"),
)


async def backlog(jobs: Scheduler | RemoteScheduler, count: int) -> None:
    for start in range(0, count, BULK):
        some = [Job(path=PATH, after=0, options={"queue": "q"}) for _ in range(min(BULK, count - start))]
        await jobs.submit_many(some)


async def worked_off(jobs: Any, count: int, pid: int | None = None) -> tuple[Spent, Spent]:
    """What it costs this process, and the one of the server, until the last handler has run and is settled."""
    left, done = count, asyncio.Event()

    async def nothing(args: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    with spent(pid) as server, spent() as cost:
        async with Worker(jobs, {PATH: nothing}, "q", concurrency=WORKERS):
            await done.wait()
    return cost, server


async def in_process(bench: Setting) -> None:
    count = bench.count(6_000)
    async with bench.open() as host:
        jobs = host.scheduler("bench")
        numbers = iter(range(count))

        async def produce() -> None:
            for number in numbers:
                await jobs.run_after(0, PATH, number, queue="q")

        with spent() as made:
            await asyncio.gather(*(produce() for _ in range(32)))
        cost, _ = await worked_off(jobs, count)
    bench.book.note("queue/submit", count / made.seconds, made.per(count))
    bench.book.note("queue", count / cost.seconds, cost.per(count))


async def over_http(bench: Setting) -> None:
    count = bench.count(3_000)
    folder = bench.folder / f"queue{bench.store().stem}"
    folder.mkdir()
    with served(folder) as server:
        async with RemoteScheduler(server.url, token=TOKEN) as jobs:
            await backlog(jobs, count)
            cost, of_server = await worked_off(jobs, count, server.pid)
    bench.book.note("queue/http", count / cost.seconds, cost.per(count))
    bench.book.note("queue/http/server", count / cost.seconds, of_server.per(count))


QUEUE = Part("queues", "Queues", IN_PROCESS, in_process)
QUEUE_HTTP = Part("queues-http", "Queues over HTTP", OVER_HTTP, over_http)
