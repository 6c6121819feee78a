"""Pools, pauses and turns: what callbacks and workers share."""

from __future__ import annotations

import asyncio

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.dispatch.transport import Answer


@on_simulated_host()
async def test_pools_hold_across_queues_and_callbacks(sim: SimulatedHost) -> None:
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    sim.reply = lambda delivery: answer
    await sim.jobs.run_after(0, "work:run", id="called", pool="p", max_concurrency=2)
    for name in ("a", "b"):
        await sim.jobs.run_after(0, "work:run", id=name, pool="p", queue=name, max_concurrency=2)
    await sim.sleep(1)
    [one] = await sim.jobs.claim(max=10, wait=0)
    waiting = asyncio.create_task(sim.jobs.claim(max=10, wait=100))
    await sim.sleep(5)
    assert not waiting.done() and (await sim.jobs.pool("p")).in_flight == 2
    answer.set_result(OK)
    [other] = await waiting

    assert {one.id, other.id} == {"a", "b"}
    for each in (one, other):
        await sim.jobs.complete(each.id, each.lease)


@on_simulated_host()
async def test_callbacks_and_pulled_jobs_of_one_pool_start_in_the_order_of_both(sim: SimulatedHost) -> None:
    """Neither starves the other: the slot goes to the first in start order."""
    at = sim.now
    await sim.jobs.set_pool("p", max_concurrency=1, paused=True)
    for n in range(20):
        await sim.jobs.run_at(at + n, "work:run", id=f"j{n:02d}", pool="p", queue="q" if n % 3 == 1 else None)
    started: list[str] = []
    sim.reply = lambda delivery: started.append(delivery.id) or OK  # type: ignore[func-returns-value]

    async def work() -> None:
        while True:
            for one in await sim.jobs.claim("q", max=5, wait=100):
                started.append(one.id)
                await sim.sleep(0.1)
                await sim.jobs.complete(one.id, one.lease)

    worker = asyncio.create_task(work())
    await sim.sleep(1)
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(10)
    worker.cancel()

    assert started == [f"j{n:02d}" for n in range(20)]


@on_simulated_host()
async def test_a_paused_pool_or_instance_gives_nothing(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", pool="p", queue="q")
    await sim.jobs.set_pool("p", paused=True)
    assert await sim.jobs.claim(wait=1) == []
    await sim.jobs.set_pool("p", paused=False)
    await sim.jobs.pause(True)
    waiting = asyncio.create_task(sim.jobs.claim(wait=100))
    await sim.sleep(10)
    assert not waiting.done()
    await sim.jobs.pause(False)

    assert [one.id for one in await waiting] == ["x"]
