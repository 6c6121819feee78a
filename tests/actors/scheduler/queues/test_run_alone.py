"""A job that has lost four workers gets one for itself, also where all are busy."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.dispatch.pulled import WorkerInfo


@on_simulated_host()
async def test_a_job_that_runs_alone_is_not_held_up_by_workers_that_always_have_others(sim: SimulatedHost) -> None:
    """Two workers with two jobs at once each, and always more to do: one is kept free for it."""
    await sim.jobs.run_after(0, "w:r", id="alone", queue="q")
    for _ in range(4):
        await sim.jobs.claim("q", lease_ms=1_000, worker=WorkerInfo(id="lost"))
        await sim.sleep(1.1)
    await sim.jobs.reschedule("alone", after=3.3)
    for n in range(200):
        await sim.jobs.run_after(0, "w:r", id=f"other{n}", queue="q")
    order: list[str] = []
    holds: Counter[str] = Counter()
    beside: dict[str, int] = {}

    async def slot(worker: str, first: float) -> None:
        await sim.sleep(first)
        while len(order) < 60:
            for one in await sim.jobs.claim("q", wait=1, worker=WorkerInfo(id=worker)):
                holds[worker] += 1
                beside[one.id] = holds[worker]
                order.append(one.id)
                await sim.sleep(1)
                holds[worker] -= 1
                await sim.jobs.complete(one.id, one.lease)

    await asyncio.gather(*(slot(worker, first) for worker, first in (("a", 0), ("a", 0.5), ("b", 0.2), ("b", 0.7))))

    assert 8 < order.index("alone") < 24 and beside["alone"] == 1
    assert len(set(order)) == len(order)


@on_simulated_host()
async def test_a_worker_is_kept_free_no_longer_than_the_job_is_there(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "w:r", id="alone", queue="q")
    for _ in range(4):
        await sim.jobs.claim("q", lease_ms=1_000, worker=WorkerInfo(id="lost"))
        await sim.sleep(1.1)
    await sim.jobs.reschedule("alone", after=1)
    await sim.jobs.run_after(0, "w:r", id="first", queue="q")
    [first] = await sim.jobs.claim("q", worker=WorkerInfo(id="w"))
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=100, worker=WorkerInfo(id="w")))
    await sim.sleep(2)
    await sim.jobs.run_after(0, "w:r", id="second", queue="q")
    await sim.sleep(1)
    assert not waiting.done()

    await sim.jobs.cancel("alone")
    assert [one.id for one in await waiting] == ["second"]
    assert await sim.jobs.complete(first.id, first.lease)


@on_simulated_host()
async def test_of_several_such_jobs_each_gets_its_worker(sim: SimulatedHost) -> None:
    """In two queues, with workers of both that always have something."""
    alone = {f"alone{n}": f"q{n % 2}" for n in range(4)}
    for id, queue in alone.items():
        await sim.jobs.run_after(0, "w:r", id=id, queue=queue)
    for _ in range(4):
        await sim.jobs.claim(max=4, lease_ms=1_000)
        await sim.sleep(1.1)
    for id in alone:
        await sim.jobs.reschedule(id, after=3)
    for n in range(300):
        await sim.jobs.run_after(0, "w:r", id=f"other{n}", queue=f"q{n % 2}")
    has: dict[str, set[str]] = {"a": set(), "b": set()}
    done: list[str] = []

    async def slot(worker: str, first: float) -> None:
        await sim.sleep(first)
        while len(done) < 100:
            for one in await sim.jobs.claim(wait=1, worker=WorkerInfo(id=worker)):
                assert not has[worker] & alone.keys() and (one.id not in alone or not has[worker])
                has[worker].add(one.id)
                await sim.sleep(0.7)
                has[worker].discard(one.id)
                await sim.jobs.complete(one.id, one.lease)
                done.append(one.id)

    await asyncio.gather(*(slot(worker, n / 10) for n, worker in enumerate("ababab")))
    assert alone.keys() <= set(done[:60]) and len(set(done)) == len(done)


@on_simulated_host()
async def test_suspects_share_a_worker_with_others_and_each_other(sim: SimulatedHost) -> None:
    """One worker with eight slots, forty jobs that two workers were lost with, and ten fresh ones behind them."""
    suspects = [f"suspect{n}" for n in range(40)]
    for id in suspects:
        await sim.jobs.run_after(0, "w:r", id=id, queue="q")
    for _ in range(2):
        await sim.jobs.claim(max=100, lease_ms=1_000)
        await sim.sleep(1.1)
    began = sim.now
    for n in range(10):
        await sim.jobs.run_after(0, "w:r", id=f"fresh{n}", queue="q")
    got: dict[str, int] = {}
    has: set[str] = set()

    async def slot() -> None:
        while len(got) < 50:
            for one in await sim.jobs.claim("q", wait=1, worker=WorkerInfo(id="w")):
                has.add(one.id)
                got[one.id] = sim.now - began
                assert len(has & set(suspects)) <= 4
                await sim.sleep(1)
                has.discard(one.id)
                await sim.jobs.complete(one.id, one.lease)

    await asyncio.gather(*(slot() for _ in range(8)))
    assert max(got[f"fresh{n}"] for n in range(10)) < 3_000
    assert max(got.values()) < 12_000


@on_simulated_host()
async def test_a_worker_is_not_kept_free_again_before_others_had_their_time(sim: SimulatedHost) -> None:
    for n in range(3):
        await sim.jobs.run_after(0, "w:r", id=f"alone{n}", queue="q")
    for _ in range(4):
        await sim.jobs.claim(max=3, lease_ms=1_000)
        await sim.sleep(1.1)
    for n in range(400):
        await sim.jobs.run_after(0, "w:r", id=f"other{n}", queue="q")
    done: dict[str, int] = {}
    began = sim.now

    async def slot() -> None:
        while len(done) < 150:
            for one in await sim.jobs.claim("q", wait=1, worker=WorkerInfo(id="w")):
                await sim.sleep(4 if one.id.startswith("alone") else 0.5)
                await sim.jobs.complete(one.id, one.lease)
                done[one.id] = sim.now - began

    await asyncio.gather(*(slot() for _ in range(4)))
    alone = sorted(done[f"alone{n}"] for n in range(3))
    assert [later - earlier >= 2 * 4_000 for earlier, later in pairwise(alone)] == [True, True], alone
    assert alone[-1] < 40_000
