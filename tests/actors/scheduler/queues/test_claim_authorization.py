"""What may not run is not given to a worker: the catalog and the app's rule are asked before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import Firing, Job
from tocsin.errors import InvalidInputError

CATALOG: dict[str, Any] = {"mail:send": dict[str, int], "mail:log": Any}


@on_simulated_host(catalog=lambda: CATALOG)
async def test_what_the_catalog_does_not_know_any_more_is_not_given(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "mail:send", {"n": 1}, id="x", queue="q")
    waiting = asyncio.create_task(sim.jobs.claim("late", wait=100))
    await sim.sleep(1)
    await sim.jobs.run_after(0, "mail:send", {"n": 1}, id="y", queue="late")
    send = CATALOG.pop("mail:send")
    try:
        assert await sim.jobs.claim("q", wait=1) == []
        await sim.sleep(1)
        dead = await sim.jobs.get("x")
    finally:
        CATALOG["mail:send"] = send
    assert dead is not None and (dead.state, dead.reason, dead.attempts) == ("dead", "blocked", 0)
    await sim.jobs.dead_retry("x")
    assert [one.id for one in await sim.jobs.claim("q")] == ["x"]
    await sim.jobs.run_after(0, "mail:log", id="z", queue="late")
    assert {one.id for one in await waiting} <= {"y", "z"}


@on_simulated_host(catalog=CATALOG)
async def test_what_follows_is_checked_when_it_is_submitted(sim: SimulatedHost) -> None:
    for path, args, words in (("nobody:knows", None, r"then\[0\]: "), ("mail:send", {"n": "one"}, r"then\[0\]: args")):
        with pytest.raises(InvalidInputError, match=words):
            await sim.jobs.run_after(
                0, "mail:log", queue="q", then=[Job(path=path, args=args, options={"queue": "q"})]
            )  # fmt: skip
    assert not (await sim.jobs.pending()).pending


ASKED: list[str] = []


def tuesday(job: Firing) -> bool:
    ASKED.append(job.id)
    return job.function_path != "not:today"


@on_simulated_host(authorize_fire=tuesday)
async def test_the_apps_rule_is_asked_before_a_worker_gets_a_job(sim: SimulatedHost) -> None:
    ASKED.clear()
    await sim.jobs.run_after(0, "not:today", id="no", queue="q", priority=9)
    await sim.jobs.run_after(0, "fine:run", id="yes", queue="q")
    got = await sim.jobs.claim("q", max=5, wait=10)
    await sim.sleep(1)
    refused = await sim.jobs.get("no")

    assert [one.id for one in got] == ["yes"] and sorted(ASKED) == ["no", "yes"]
    assert refused is not None and (refused.state, refused.reason) == ("dead", "blocked")


@on_simulated_host(authorize_fire=tuesday)
async def test_a_claim_whose_only_job_was_refused_goes_on_waiting(sim: SimulatedHost) -> None:
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=100))
    await sim.jobs.run_after(0, "not:today", id="no", queue="q")
    await sim.sleep(50)
    assert not waiting.done()
    await sim.jobs.run_after(0, "fine:run", id="yes", queue="q")

    assert [one.id for one in await waiting] == ["yes"]
