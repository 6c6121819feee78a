"""Results: what a job came to, for those who wait for it, for as long as was asked."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import msgspec
import pytest

from tests.actors.scheduler.stage import Stage, staged
from tocsin.dispatch.receiver import answers
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, JobFailedError, NotFoundError, NotYetError


async def settle_next(stage: Stage, **how: object) -> None:
    [one] = await stage.jobs.claim("q", wait=100)
    await stage.jobs.complete(one.id, one.lease, **how)  # type: ignore[arg-type]


@staged()
async def test_a_result_is_waited_for_without_polling(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="1h")
    waiting = asyncio.create_task(stage.jobs.result("x", timeout=1_000))
    await stage.sleep(500)
    await settle_next(stage, result={"at": timedelta(seconds=3)})

    assert await waiting == {"at": timedelta(seconds=3)}
    assert await stage.jobs.result("x", timeout=0) == {"at": timedelta(seconds=3)}


@staged()
async def test_a_callback_answers_with_its_result(stage: Stage) -> None:
    stage.reply = lambda one: Answer(201, {"content-type": "application/vnd.x+json"}, b"[1, 2]")
    await stage.jobs.run_after(1, "work:run", id="x", keep_result=60)

    assert await stage.jobs.result("x") == [1, 2]


@staged()
async def test_accepted_work_completes_with_its_result(stage: Stage) -> None:
    stage.reply = lambda one: Answer(202, {"tocsin-accepted": "1"}, b"")
    await stage.jobs.run_after(0, "work:run", id="x", keep_result=60)
    await stage.sleep(1)
    await stage.jobs.complete("x", stage.deliveries[0].body["lease"], result="done")

    assert await stage.jobs.result("x") == "done"


@staged()
async def test_a_result_is_kept_as_long_as_was_asked_and_survives_a_crash(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="10m")
    await settle_next(stage, result=1)
    await stage.crash()
    await stage.open()
    await stage.sleep(590)
    assert await stage.jobs.result("x", 0) == 1
    await stage.sleep(20)

    with pytest.raises(NotFoundError, match="nothing is known"):
        await stage.jobs.result("x", 0)


@staged()
async def test_an_id_that_is_used_again_has_the_result_of_its_last_job(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="10m")
    await settle_next(stage, result=1)
    await stage.sleep(300)
    await stage.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="10m")
    with pytest.raises(NotYetError):
        await stage.jobs.result("x", 0)
    await settle_next(stage, result=2)
    await stage.sleep(400)

    assert await stage.jobs.result("x", 0) == 2


@staged()
async def test_a_dead_cancelled_or_expired_job_has_no_result_and_says_why(stage: Stage) -> None:
    retry = Retry(max_retries=0)
    for name in ("dead", "cancelled", "expired"):
        await stage.jobs.run_after(0, "work:run", id=name, queue=name, keep_result=600, retry=retry,
                                   expires_at=stage.now + 5_000 if name == "expired" else None)  # fmt: skip
    waiting = {name: asyncio.create_task(stage.jobs.result(name, 100)) for name in ("dead", "cancelled", "expired")}
    [one] = await stage.jobs.claim("dead")
    await stage.jobs.complete("dead", one.lease, ok=False, error="no paper")
    await stage.jobs.cancel("cancelled")
    await stage.sleep(10)
    for name, task in waiting.items():
        with pytest.raises(JobFailedError, match=name) as failed:
            await task
        assert failed.value.details["state"] == name
    with pytest.raises(JobFailedError, match="exhausted: no paper"):
        await stage.jobs.result("dead", 0)
    await stage.jobs.dead_retry("dead")
    [two] = await stage.jobs.claim("dead")
    await stage.jobs.complete("dead", two.lease, result="after all")

    assert await stage.jobs.result("dead", 0) == "after all"


@staged()
async def test_who_waits_in_vain_is_told_in_time(stage: Stage) -> None:
    await stage.jobs.run_after(100, "work:run", id="x", queue="q", keep_result=60)
    await stage.jobs.run_after(100, "work:run", id="plain", queue="q")
    began = stage.now
    with pytest.raises(NotYetError, match="pending"):
        await stage.jobs.result("x", "5s")
    assert 5_000 <= stage.now - began < 5_100
    with pytest.raises(NotFoundError, match="did not ask"):
        await stage.jobs.result("plain", 5)
    with pytest.raises(NotFoundError, match="nothing is known"):
        await stage.jobs.result("never", 5)
    for bad in (0.5, 8 * 86_400):
        with pytest.raises(InvalidInputError, match="keep_result must be 1 s to 7 d"):
            await stage.jobs.run_after(0, "work:run", queue="q", keep_result=bad)


@staged()
async def test_a_stopping_host_lets_nobody_wait_for_ever(stage: Stage) -> None:
    await stage.jobs.run_after(100, "work:run", id="x", queue="q", keep_result=60)
    waiting = asyncio.create_task(stage.jobs.result("x"))
    await stage.sleep(1)
    await stage.close()
    with pytest.raises(NotYetError):
        await waiting
    await stage.open()


@staged(lanes=256)
async def test_large_results_that_come_together_are_kept_in_several_turns(stage: Stage) -> None:
    """One commit holds 8 MiB, and these are 12."""
    result = b'"' + b"x" * 60_000 + b'"'
    stage.reply = lambda one: Answer(200, {"content-type": "application/json"}, result)
    for n in range(200):
        await stage.jobs.run_after(1, "work:run", id=f"j{n}", keep_result="1h")
    await stage.sleep(30)

    assert (await stage.jobs.status()).backlog == 0 and len(stage.deliveries) == 200
    assert len((await stage.jobs.result("j199", timeout=1)) or "") == 60_000


@staged()
async def test_why_there_is_no_result_stands_in_the_outcome_and_in_the_history(stage: Stage) -> None:
    """With the receiver kit's own answer: the result is too long."""
    stage.reply = lambda one: answers.done_without_result("the result has 70000 bytes, at most 65536 are sent")
    await stage.jobs.run_after(0, "work:run", id="x", keep_result=60)
    await stage.sleep(2)

    end = await stage.jobs.outcome("x", 0)
    assert (end.state, end.result) == ("done", None)
    assert end.no_result == "HTTP 200: no result: the result has 70000 bytes, at most 65536 are sent"
    (attempt,) = await stage.jobs.history("x")
    assert attempt.error == end.no_result
    assert json.loads(msgspec.json.encode(end))["noResult"] == end.no_result


@staged()
async def test_a_job_without_a_result_has_no_reason_for_it(stage: Stage) -> None:
    stage.reply = lambda one: answers.done()
    await stage.jobs.run_after(0, "work:run", id="x", keep_result=60)
    await stage.sleep(2)

    assert (await stage.jobs.outcome("x", 0)).no_result is None
