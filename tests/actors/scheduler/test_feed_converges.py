"""A watcher that keeps to docs/feed.md ends with what the lists say, whatever happened to jobs, host and itself."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest

from tests.actors.scheduler.mirror import Mirror, listed, truth
from tests.actors.scheduler.simulated_host import SimulatedHost
from tocsin.actors.scheduler.client.scheduler import Job, Scheduler
from tocsin.actors.testing import simulate
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import TocsinError

ONCE = Retry(max_retries=0)


async def disturb(sim: SimulatedHost, random: Random) -> None:
    """Do one thing to the scheduler, in vain perhaps."""
    job_id, jobs = f"j{random.randrange(12)}", sim.jobs
    match random.randrange(9):
        case 0 | 1 | 2:
            await jobs.run_after(
                random.choice([0, 1, 3600]), "p", id=job_id, on_conflict=random.choice(["keep", "replace"]),
                queue=random.choice([None, None, "q"]), pool=random.choice([None, "one"]), retry=ONCE,
            )  # fmt: skip
        case 3:
            await jobs.cancel(job_id)
        case 4:
            await jobs.reschedule(job_id, after=random.choice([0, 5, 3600]))
        case 5:
            await jobs.dead_retry(job_id)
        case 6:
            await jobs.dead_cancel(job_id)
        case 7:
            for one in await jobs.claim("q", max=3, wait=0, lease_ms=2_000):
                if random.random() < 0.7:
                    await jobs.complete(one.id, one.lease, ok=random.random() < 0.5)
        case 8:
            await jobs.submit_many([Job("p", after=random.randrange(5), options={"id": f"j{n}"}) for n in range(4)])


async def keep(mirror: Mirror, jobs: Scheduler) -> None:
    """Watch as a client does that reads lists where it must."""
    async for frame in jobs.changes(since=mirror.seq):
        mirror.take(frame)
        if mirror.stale and frame.type == "snapshot":
            mirror.load(await listed(jobs), [])


@pytest.mark.parametrize("seed", range(6))
def test_a_watcher_ends_with_what_the_lists_say_whatever_happened(seed: int) -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        sim.reply = lambda one: Answer(random.choice([200, 200, 410, 500]), {}, b"")
        await sim.open()
        mirror = Mirror()
        watching = asyncio.create_task(keep(mirror, sim.jobs))
        for step in range(120):
            with suppress(TocsinError):  # refused, which is as good a thing to happen as any
                await disturb(sim, random)
            await sim.sleep(random.choice([0, 0, 0.01, 0.15, 1]))
            if random.random() < 0.08:
                watching.cancel()
                await asyncio.wait([watching])
            if random.random() < 0.03:
                await sim.crash()
                await sim.open()
            if watching.done():
                watching = asyncio.create_task(keep(mirror, sim.jobs))
            if step % 40 == 39:
                await sim.sleep(60)
                assert mirror.jobs == await truth(sim.jobs)
        watching.cancel()
        await sim.close()

    simulate(seed, main)
