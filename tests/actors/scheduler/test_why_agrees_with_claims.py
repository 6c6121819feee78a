"""Claims and `why` decide by the same rules: a due job that does not start has a reason, and one without starts."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.suspects import LOSSES_TOGETHER
from tocsin.actors.testing import simulate
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer

NAMES = ("t", "u")
OF_THE_MOMENT = {"RUNNING", "NOT_FOUND", "NOT_DUE", "RETRY_LATER"}


@pytest.mark.parametrize("seed", range(12))
def test_a_due_callback_waits_if_and_only_if_there_is_a_reason(seed: int) -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open(lanes=4, max_in_flight=5)

        async def reply(one: Delivery) -> Answer:
            await asyncio.sleep(random.choice((0.1, 2, 5)))
            return OK

        sim.reply = reply
        seen: set[str] = set()
        for _ in range(40):
            jobs = sim.host.scheduler(random.choice(NAMES))
            match random.randint(0, 6):
                case 0:
                    await jobs.pause(random.random() < 0.5)
                case 1:
                    await jobs.set_pool("p", max_concurrency=random.choice((0, 1, 2)), paused=random.random() < 0.3)
                case 2:
                    sim.down = not sim.down
                case 3:
                    sim.disk_full(random.random() < 0.3)
                case 4 if random.random() < 0.5:
                    await sim.crash()
                    await sim.open(lanes=4, max_in_flight=5)
                case _ if sim.host.runtime.provider.trouble is None:
                    options = {"pool": random.choice((None, "p")), "timeout_ms": 6_000}
                    await jobs.submit_many([Job(path="w:r", after=random.choice((0, 1)), options=options)] * 3)
                case _:
                    pass
            await sim.sleep(random.choice((0.5, 3, 25)))
            for name in NAMES:
                seen |= await look(sim, name)
        assert {"LANES_FULL", "HOST_FULL"} & seen or {"POOL_FULL", "INSTANCE_PAUSED"} & seen
        sim.down = False
        sim.disk_full(False)
        for name in NAMES:
            await sim.host.scheduler(name).pause(False)
            await sim.host.scheduler(name).set_pool("p", max_concurrency=2, paused=False)
        await sim.sleep(600)
        assert [(await sim.host.scheduler(name).status()).backlog for name in NAMES] == [0, 0]
        await sim.close()

    simulate(seed, main)


async def look(sim: SimulatedHost, name: str) -> set[str]:
    """The codes of what holds up the jobs of one scheduler. One without any has started a moment later."""
    jobs, found = sim.host.scheduler(name), set[str]()
    free = []
    for record in (await jobs.list(state="waiting", limit=50)).records:
        codes = {one.code for one in await jobs.why(record.id)}
        found |= codes
        # How far it is kept apart is said of every suspect, also of one that may start.
        held = codes - {"APART", "ALONE"} if record.losses >= LOSSES_TOGETHER else codes
        if not held:
            free.append(record.id)
    await sim.sleep(0.05)
    for job_id in free:
        now = {one.code for one in await jobs.why(job_id)}
        assert now & OF_THE_MOMENT or now - {"APART", "ALONE"}, f"{job_id} waits without a reason: {now}"
    return found
