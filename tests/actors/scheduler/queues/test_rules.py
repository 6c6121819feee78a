"""What may not run is not given to a worker: the catalog and the app's rule are asked before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.stage import Stage, staged
from tocsin import Firing, Job
from tocsin.errors import InvalidInputError

CATALOG: dict[str, Any] = {"mail:send": dict[str, int], "mail:log": Any}


@staged(catalog=lambda: CATALOG)
async def test_what_the_catalog_does_not_know_any_more_is_not_given(stage: Stage) -> None:
    await stage.jobs.run_after(0, "mail:send", {"n": 1}, id="x", queue="q")
    waiting = asyncio.create_task(stage.jobs.claim("late", wait=100))
    await stage.sleep(1)
    await stage.jobs.run_after(0, "mail:send", {"n": 1}, id="y", queue="late")
    send = CATALOG.pop("mail:send")
    try:
        assert await stage.jobs.claim("q", wait=1) == []
        await stage.sleep(1)
        dead = await stage.jobs.get("x")
    finally:
        CATALOG["mail:send"] = send
    assert dead is not None and (dead.state, dead.reason, dead.attempts) == ("dead", "blocked", 0)
    await stage.jobs.dead_retry("x")
    assert [one.id for one in await stage.jobs.claim("q")] == ["x"]
    await stage.jobs.run_after(0, "mail:log", id="z", queue="late")
    assert {one.id for one in await waiting} <= {"y", "z"}


@staged(catalog=CATALOG)
async def test_what_follows_is_checked_when_it_is_submitted(stage: Stage) -> None:
    for path, args, words in (("nobody:knows", None, r"then\[0\]: "), ("mail:send", {"n": "one"}, r"then\[0\]: args")):
        with pytest.raises(InvalidInputError, match=words):
            await stage.jobs.run_after(
                0, "mail:log", queue="q", then=[Job(path=path, args=args, options={"queue": "q"})]
            )  # fmt: skip
    assert not (await stage.jobs.pending()).pending


ASKED: list[str] = []


def tuesday(job: Firing) -> bool:
    ASKED.append(job.id)
    return job.function_path != "not:today"


@staged(authorize_fire=tuesday)
async def test_the_apps_rule_is_asked_before_a_worker_gets_a_job(stage: Stage) -> None:
    ASKED.clear()
    await stage.jobs.run_after(0, "not:today", id="no", queue="q", priority=9)
    await stage.jobs.run_after(0, "fine:run", id="yes", queue="q")
    got = await stage.jobs.claim("q", max=5, wait=10)
    await stage.sleep(1)
    refused = await stage.jobs.get("no")

    assert [one.id for one in got] == ["yes"] and sorted(ASKED) == ["no", "yes"]
    assert refused is not None and (refused.state, refused.reason) == ("dead", "blocked")


@staged(authorize_fire=tuesday)
async def test_a_claim_whose_only_job_was_refused_goes_on_waiting(stage: Stage) -> None:
    waiting = asyncio.create_task(stage.jobs.claim("q", wait=100))
    await stage.jobs.run_after(0, "not:today", id="no", queue="q")
    await stage.sleep(50)
    assert not waiting.done()
    await stage.jobs.run_after(0, "fine:run", id="yes", queue="q")

    assert [one.id for one in await waiting] == ["yes"]
