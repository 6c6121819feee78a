"""Part of `python -m bench queues`: chains, whose links start each in the commit that settles the one before."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.lease import gather, timed
from bench.pool import Figures, row
from tocsin import Job, Scheduler, Worker

PATH = "bench:link"
LEVELS = 50
"""Of a chain at most: so long is the longest that one submit may give."""


async def chains(jobs: Scheduler, figures: Figures, links: int = 1_000) -> None:
    """A thousand links, in chains that run one after the other and all at once."""
    seconds = await _run(jobs, links // LEVELS, LEVELS, at_once=False)
    row(
        figures,
        f"links/s, one chain of {LEVELS} after the other",
        links / seconds,
        "/s",
        f"{seconds / links * 1000:.2f} ms a link",
    )
    seconds = await _run(jobs, links // 10, 10, at_once=True)
    row(figures, f"links/s, {links // 10} chains of 10 at once", links / seconds, "/s", "concurrency 64")


async def _run(jobs: Scheduler, count: int, links: int, *, at_once: bool) -> float:
    ended = asyncio.Semaphore(0)
    left = dict.fromkeys(range(count), links)

    async def link(args: Any) -> None:
        left[args] -= 1
        if not left[args]:
            ended.release()

    def options(number: int) -> dict[str, Any]:
        made: dict[str, Any] = {"queue": "chains"}
        for _ in range(links - 1):
            made = {"queue": "chains", "then": [Job(path=PATH, args=number, options=made)]}
        return made

    async def one(number: int) -> None:
        await jobs.run_after(0, PATH, number, **options(number))
        if not at_once:
            await ended.acquire()

    async def work() -> None:
        async with Worker(jobs, {PATH: link}, "chains", concurrency=64):
            if at_once:
                await gather([one(number) for number in range(count)])
                for _ in range(count):
                    await ended.acquire()
            else:
                for number in range(count):
                    await one(number)

    return await timed(work)
