"""Fair pools under everything at random: each job ends, and the rows are sound whenever they are looked at."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.testing import simulate
from tocsin.dispatch.rate import Rate
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer

STEPS: Final = 100
LANES: Final = (1, 2, 8, 64)


@pytest.mark.parametrize("seed", range(3))
def test_each_job_ends_whatever_is_set_cancelled_moved_or_killed_meanwhile(seed: int) -> None:
    async def main(random: Random) -> None:
        run = _Run(SimulatedHost(random), Random(seed))
        await run.go()

    simulate(seed, main)


class _Run:
    def __init__(self, sim: SimulatedHost, random: Random) -> None:
        self.sim, self.random = sim, random
        self.ids: list[str] = []
        sim.reply = self.work

    async def work(self, one: Delivery) -> Answer:
        await asyncio.sleep(self.random.choice([0, 0.1, 1, 5]))
        return OK if self.random.random() < 0.9 else Answer(500, {}, b"")

    async def go(self) -> None:
        sim, random = self.sim, self.random
        await sim.open(lanes=random.choice(LANES))
        steps = [self.submit, self.set_pool, self.cancel, self.reschedule, self.claim, self.crash, self.pause]
        for step in range(STEPS):
            await random.choices(steps, [40, 15, 6, 6, 8, 4, 3])[0]()
            await sim.sleep(random.choice([0, 0.01, 0.5, 2]))
            if step % 10 == 0:
                assert await sim.faults() == []
        await sim.jobs.set_instance(paused=False)
        for pool in "pq":
            await sim.jobs.set_pool(pool, max_concurrency=3, paused=False, rate="none")
        for _ in range(2_000):
            await self.claim(100)
            await sim.sleep(5)
            status = await sim.jobs.status()
            if not status.backlog and not status.in_flight:
                break
        else:
            raise AssertionError(f"{status.backlog} jobs are left")
        assert await sim.faults() == []
        await sim.close()

    async def submit(self) -> None:
        random, made = self.random, list[Job]()
        for _ in range(random.randrange(1, 30)):
            job_id = f"j{len(self.ids)}"
            self.ids.append(job_id)
            options: dict[str, Any] = {"id": job_id, "priority": random.randrange(-2, 3)}
            if random.random() < 0.9:
                options["shard_key"] = random.choice(["a", "b", "c", job_id])
            if random.random() < 0.85:
                options["pool"] = random.choice("pq")
            if random.random() < 0.3:
                options["queue"] = "w"
            if random.random() < 0.1:
                options["expires_at"] = self.sim.now + random.randrange(20_000, 40_000)
            made.append(Job(path="w:r", after=random.choice([0, 0, 0, 1, 7]), options=options))
        await self.sim.jobs.submit_many(made)

    async def set_pool(self) -> None:
        random = self.random
        settings: list[dict[str, Any]] = [
            {"fair": True}, {"fair": False}, {"max_per_key": random.randrange(3)}, {"weights": {"a": 3}},
            {"max_concurrency": random.randrange(6)}, {"paused": random.random() < 0.5},
            {"rate": Rate(random.randrange(1, 20), per="1s")}, {"rate": "none"},
        ]  # fmt: skip
        await self.sim.jobs.set_pool(random.choice("pq"), **random.choice(settings))

    async def cancel(self) -> None:
        if self.ids:
            await self.sim.jobs.cancel(self.random.choice(self.ids))

    async def reschedule(self) -> None:
        if self.ids and not (await self.sim.jobs.list(limit=1)).records:
            return
        for one in (await self.sim.jobs.list(limit=5)).records:
            if one.expires_at is None:
                await self.sim.jobs.reschedule(one.id, after=self.random.choice([0, 3]))

    async def claim(self, most: int = 8) -> None:
        for one in await self.sim.jobs.claim("w", max=most, wait=0):
            if most == 100 or self.random.random() < 0.8:
                await self.sim.jobs.complete(one.id, one.lease)

    async def crash(self) -> None:
        await self.sim.crash()
        await self.sim.open(lanes=self.random.choice(LANES))

    async def pause(self) -> None:
        await self.sim.jobs.set_instance(paused=self.random.random() < 0.5)
