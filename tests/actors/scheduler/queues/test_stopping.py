"""A stop in two steps: first nobody waits any more, then the host stops."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.model.records import Firing
from tocsin.actors.testing.clock import START_MS
from tocsin.errors import HostClosedError, NotYetError


@on_simulated_host()
async def test_who_waits_is_answered_and_the_host_goes_on(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run", id="x", queue="q", keep_result="1h")
    claim = asyncio.create_task(sim.jobs.claim("q", wait=300))
    result = asyncio.create_task(sim.jobs.result("x", 300))
    await sim.sleep(1)
    began = sim.now
    sim.host.stop_waiting()

    assert await claim == []
    with pytest.raises(NotYetError):
        await result
    assert sim.now - began < 100
    with pytest.raises(HostClosedError):
        await sim.jobs.claim("q")
    await sim.jobs.run_after(0, "work:run", id="called")
    await sim.sleep(1)
    assert [one.id for one in sim.deliveries] == ["called"]


@on_simulated_host()
async def test_who_waits_as_long_as_it_takes_hears_that_the_host_stops(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run", id="x", keep_result="1h")
    await sim.jobs.run_after(0, "work:run", id="was", keep_result="1h")
    tested = sim.host.scheduler("tested")
    await tested.clock.create(START_MS)
    await tested.run_after("1m", "work:run", id="slow", queue="q")
    result = asyncio.create_task(sim.jobs.result("x"))
    advance = asyncio.create_task(tested.clock.advance("1h"))
    await sim.sleep(1)
    assert (await tested.claim("q", wait=0))[0].id == "slow"
    sim.host.stop_waiting()

    with pytest.raises(HostClosedError, match="'x' is pending, and the host is stopping"):
        await result
    with pytest.raises(HostClosedError, match=r"is to come to .* and the host is stopping"):
        await advance
    with pytest.raises(HostClosedError):
        await sim.jobs.result("x")
    with pytest.raises(NotYetError):
        await sim.jobs.result("x", 0)
    with pytest.raises(NotYetError):
        await tested.clock.wait(10)
    assert await sim.jobs.result("was") is None


@on_simulated_host()
async def test_a_host_that_is_opened_again_lets_claims_wait(sim: SimulatedHost) -> None:
    sim.host.stop_waiting()
    await sim.close()
    await sim.open()
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=300))
    await sim.sleep(1)
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")

    assert [one.id for one in await waiting] == ["x"]


def test_a_claim_whose_only_job_is_blocked_meanwhile_waits_no_more() -> None:
    """It was on its way when the others were answered; then the rule says no."""
    asked: list[asyncio.Event] = []

    async def rule(job: Firing) -> bool:
        asked.append(asyncio.Event())
        await asked[0].wait()
        return False

    @on_simulated_host(authorize_fire=rule)
    async def test(sim: SimulatedHost) -> None:
        await sim.jobs.run_after(0, "work:run", id="x", queue="q")
        waiting = asyncio.create_task(sim.jobs.claim("q", wait=300))
        await sim.sleep(1)
        sim.host.stop_waiting()
        await sim.sleep(1)
        assert asked and not waiting.done()
        began = sim.now
        asked[0].set()

        assert await waiting == [] and sim.now - began < 100

    test()


def test_a_claim_whose_job_is_still_asked_about_is_answered_when_the_host_stops() -> None:
    """The app's rule takes longer than the stop: no worker gets the job, and none waits for ever."""
    asked = asyncio.Event()

    async def rule(job: Firing) -> bool:
        asked.set()
        await asyncio.sleep(60)
        return True

    @on_simulated_host(authorize_fire=rule, drain_s=0.1)
    async def test(sim: SimulatedHost) -> None:
        asked.clear()
        await sim.jobs.run_after(0, "work:run", id="x", queue="q")
        waiting = asyncio.create_task(sim.jobs.claim("q", wait=300))
        await asked.wait()
        await sim.close()
        async with asyncio.timeout(100):
            assert await waiting == []
        await sim.open()
        job = await sim.jobs.get("x")
        assert job is not None and job.losses == 0

    test()
