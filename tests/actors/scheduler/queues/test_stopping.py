"""A stop in two steps: first nobody waits any more, then the host stops."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.stage import Stage, staged
from tocsin.actors.scheduler.model.records import Firing
from tocsin.errors import HostClosedError, NotYetError


@staged()
async def test_who_waits_is_answered_and_the_host_goes_on(stage: Stage) -> None:
    await stage.jobs.run_after("1h", "work:run", id="x", queue="q", keep_result="1h")
    claim = asyncio.create_task(stage.jobs.claim("q", wait=300))
    result = asyncio.create_task(stage.jobs.result("x", 300))
    await stage.sleep(1)
    began = stage.now
    stage.host.stop_waiting()

    assert await claim == []
    with pytest.raises(NotYetError):
        await result
    assert stage.now - began < 100
    with pytest.raises(HostClosedError):
        await stage.jobs.claim("q")
    await stage.jobs.run_after(0, "work:run", id="called")
    await stage.sleep(1)
    assert [one.id for one in stage.deliveries] == ["called"]


@staged()
async def test_a_host_that_is_opened_again_lets_claims_wait(stage: Stage) -> None:
    stage.host.stop_waiting()
    await stage.close()
    await stage.open()
    waiting = asyncio.create_task(stage.jobs.claim("q", wait=300))
    await stage.sleep(1)
    await stage.jobs.run_after(0, "work:run", id="x", queue="q")

    assert [one.id for one in await waiting] == ["x"]


def test_a_claim_whose_only_job_is_blocked_meanwhile_waits_no_more() -> None:
    """It was on its way when the others were answered; then the rule says no."""
    asked: list[asyncio.Event] = []

    async def rule(job: Firing) -> bool:
        asked.append(asyncio.Event())
        await asked[0].wait()
        return False

    @staged(authorize_fire=rule)
    async def test(stage: Stage) -> None:
        await stage.jobs.run_after(0, "work:run", id="x", queue="q")
        waiting = asyncio.create_task(stage.jobs.claim("q", wait=300))
        await stage.sleep(1)
        stage.host.stop_waiting()
        await stage.sleep(1)
        assert asked and not waiting.done()
        began = stage.now
        asked[0].set()

        assert await waiting == [] and stage.now - began < 100

    test()


def test_a_claim_whose_job_is_still_asked_about_is_answered_when_the_host_stops() -> None:
    """The app's rule takes longer than the stop: no worker gets the job, and none waits for ever."""
    asked = asyncio.Event()

    async def rule(job: Firing) -> bool:
        asked.set()
        await asyncio.sleep(60)
        return True

    @staged(authorize_fire=rule, drain_s=0.1)
    async def test(stage: Stage) -> None:
        asked.clear()
        await stage.jobs.run_after(0, "work:run", id="x", queue="q")
        waiting = asyncio.create_task(stage.jobs.claim("q", wait=300))
        await asked.wait()
        await stage.close()
        async with asyncio.timeout(100):
            assert await waiting == []
        await stage.open()
        job = await stage.jobs.get("x")
        assert job is not None and job.losses == 0

    test()
