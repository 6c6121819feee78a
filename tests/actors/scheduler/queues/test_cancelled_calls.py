"""Calls that are cancelled at any of their steps, while the host works, stops or dies: no job is lost or given twice,
and nothing is left of who waited."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.dispatch.pulled import Claimed
from tocsin.errors import TocsinError

STEPS = 40
"""More than a claim or a wait for a result has."""
LEASE_MS = 5_000


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cancelled(call: Coroutine[Any, Any, Any], after: int) -> Any:
    """What the call came to, if it was quicker."""
    task = asyncio.ensure_future(call)
    await steps(after)
    task.cancel()
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()


async def settle(sim: SimulatedHost, got: list[Claimed] | None) -> list[str]:
    for one in got or []:
        await sim.jobs.complete(one.id, one.lease)
    return [one.id for one in got or []]


@on_simulated_host()
async def test_a_claim_that_is_cancelled_at_any_step_loses_nothing(sim: SimulatedHost) -> None:
    """What it was about to get is there for the next one at once."""
    quick = []
    for after in range(STEPS):
        await sim.jobs.run_after(0, "w:r", id=f"j{after}", queue="q")
        done = await settle(sim, await cancelled(sim.jobs.claim("q", lease_ms=3_600_000), after))
        quick.append(bool(done))
        if not done:
            done = await settle(sim, await sim.jobs.claim("q", wait=1))
        assert done == [f"j{after}"]
        assert await sim.faults() == []
    assert quick[0] is False and quick[-1] is True, "some were cancelled on the way, some had come to their end"
    assert await sim.jobs.queues() == []


@on_simulated_host()
async def test_a_claim_that_waits_and_is_cancelled_around_the_turn_that_serves_it_loses_nothing(
    sim: SimulatedHost,
) -> None:
    for after in range(STEPS):
        waiting = asyncio.ensure_future(sim.jobs.claim("q", lease_ms=3_600_000))
        await sim.sleep(0.1)
        submitted = asyncio.ensure_future(sim.jobs.run_after(0, "w:r", id=f"j{after}", queue="q"))
        await steps(after)
        waiting.cancel()
        await asyncio.wait([waiting, submitted])
        done = await settle(sim, None if waiting.cancelled() else waiting.result())
        if not done:
            done = await settle(sim, await sim.jobs.claim("q", wait=1))
        assert done == [f"j{after}"]


@on_simulated_host()
async def test_a_claim_at_any_step_of_a_stop_is_answered_or_refused(sim: SimulatedHost) -> None:
    """Cancelled or not; whoever had nothing leaves the job to the next host, at the latest when its lease ends."""
    for after in range(0, STEPS, 2):
        for cancel in (False, True):
            name = f"j{after}-{cancel}"
            await sim.jobs.run_after(0, "w:r", id=name, queue="q")
            claim = asyncio.ensure_future(sim.jobs.claim("q", lease_ms=LEASE_MS, wait=300))
            await steps(after)
            stop = asyncio.ensure_future(sim.close())
            await steps(after % 7)
            if cancel:
                claim.cancel()
            done, _ = await asyncio.wait([claim], timeout=30)
            assert done, "a claim outlives its host"
            await stop
            await sim.open()
            try:
                got = [] if claim.cancelled() else claim.result()
            except TocsinError:
                got = []
            done_ids = await settle(sim, got)
            done_ids += await settle(sim, await sim.jobs.claim("q", wait=0 if done_ids else 8))
            assert done_ids == [name]


def test_a_claim_at_any_step_of_a_crash_leaves_the_job_to_the_next_host() -> None:
    for after in range(0, STEPS, 2):

        @on_simulated_host()
        async def crash(sim: SimulatedHost, after: int = after) -> None:
            await sim.jobs.run_after(0, "w:r", id="x", queue="q")
            claim = asyncio.ensure_future(sim.jobs.claim("q", lease_ms=LEASE_MS))
            await steps(after)
            await sim.crash()
            assert claim.done() and await sim.faults() == []
            await sim.open()
            [one] = await sim.jobs.claim("q", wait=10)
            await sim.jobs.complete("x", one.lease)

        crash()


@on_simulated_host()
async def test_who_stops_waiting_for_a_result_at_any_step_leaves_nothing_behind(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "w:r", id="x", queue="q", keep_result=3_600)
    here = sim.host._service.inflight("t")
    watches = here.result_waiters
    for after in range(STEPS):
        await cancelled(sim.jobs.result("x"), after)
        assert watches._waiting == {}
    waiting = [asyncio.ensure_future(sim.jobs.result("x")) for _ in range(3)]
    await sim.sleep(1)
    [one] = await sim.jobs.claim("q")
    ended = asyncio.ensure_future(sim.jobs.complete("x", one.lease, result={"n": 1}))
    await steps(1)
    waiting[0].cancel()
    await asyncio.wait([*waiting, ended])

    assert [task.result() for task in waiting[1:]] == [{"n": 1}] * 2
    assert watches._waiting == {}


@on_simulated_host()
async def test_who_waits_for_a_result_when_the_host_stops_is_answered(sim: SimulatedHost) -> None:
    for after in range(STEPS):
        await sim.jobs.run_after(60, "w:r", id=f"j{after}", queue="q", keep_result=3_600)
        waiting = asyncio.ensure_future(sim.jobs.result(f"j{after}"))
        await steps(after)
        stop = asyncio.ensure_future(sim.close())
        done, _ = await asyncio.wait([waiting], timeout=30)
        assert done and isinstance(waiting.exception(), TocsinError), waiting
        await stop
        await sim.open()
