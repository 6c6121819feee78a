"""Pools, pauses and turns: what callbacks and workers share."""

from __future__ import annotations

import asyncio

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.dispatch.transport import Answer


@staged()
async def test_pools_hold_across_queues_and_callbacks(stage: Stage) -> None:
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    stage.reply = lambda delivery: answer
    await stage.jobs.run_after(0, "work:run", id="called", pool="p", max_concurrency=2)
    for name in ("a", "b"):
        await stage.jobs.run_after(0, "work:run", id=name, pool="p", queue=name, max_concurrency=2)
    await stage.sleep(1)
    [one] = await stage.jobs.claim(max=10, wait=0)
    waiting = asyncio.create_task(stage.jobs.claim(max=10, wait=100))
    await stage.sleep(5)
    assert not waiting.done() and (await stage.jobs.pool("p")).in_flight == 2
    answer.set_result(OK)
    [other] = await waiting

    assert {one.id, other.id} == {"a", "b"}
    for each in (one, other):
        await stage.jobs.complete(each.id, each.lease)


@staged()
async def test_callbacks_and_pulled_jobs_of_one_pool_start_in_the_order_of_both(stage: Stage) -> None:
    """Neither starves the other: the slot goes to the first in start order."""
    at = stage.now
    await stage.jobs.set_pool("p", max_concurrency=1, paused=True)
    for n in range(20):
        await stage.jobs.run_at(at + n, "work:run", id=f"j{n:02d}", pool="p", queue="q" if n % 3 == 1 else None)
    started: list[str] = []
    stage.reply = lambda delivery: started.append(delivery.id) or OK  # type: ignore[func-returns-value]

    async def work() -> None:
        while True:
            for one in await stage.jobs.claim("q", max=5, wait=100):
                started.append(one.id)
                await stage.sleep(0.1)
                await stage.jobs.complete(one.id, one.lease)

    worker = asyncio.create_task(work())
    await stage.sleep(1)
    await stage.jobs.set_pool("p", paused=False)
    await stage.sleep(10)
    worker.cancel()

    assert started == [f"j{n:02d}" for n in range(20)]


@staged()
async def test_a_paused_pool_or_instance_gives_nothing(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="x", pool="p", queue="q")
    await stage.jobs.set_pool("p", paused=True)
    assert await stage.jobs.claim(wait=1) == []
    await stage.jobs.set_pool("p", paused=False)
    await stage.jobs.pause(True)
    waiting = asyncio.create_task(stage.jobs.claim(wait=100))
    await stage.sleep(10)
    assert not waiting.done()
    await stage.jobs.pause(False)

    assert [one.id for one in await waiting] == ["x"]
