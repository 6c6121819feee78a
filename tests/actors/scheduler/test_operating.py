"""The circuit, why, history, moving and cancelling in bulk, dead letters in bulk and by age."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError

GONE = Answer(410, {}, b"")


async def after(seconds: float, answer: Answer = OK) -> Answer:
    await asyncio.sleep(seconds)
    return answer


async def codes(stage: Stage, job_id: str) -> list[str]:
    return [one.code for one in await stage.jobs.why(job_id)]


# ---- The circuit ---------------------------------------------------------------------------------


@staged()
async def test_an_origin_down_for_twenty_minutes_kills_nothing_and_is_probed_every_five_seconds(stage: Stage) -> None:
    await stage.jobs.submit_many([Job(path="work:run", after=n) for n in range(1_000)])
    stage.down = True
    await stage.sleep(1_200)
    tried = stage.refused
    status = await stage.jobs.status()
    waiting = (await stage.jobs.list(limit=1000)).records
    stage.down = False
    await stage.sleep(30)

    assert status.health == "red"
    assert 200 <= tried <= 5 + 1_200 / 5 + 5
    assert sum(one.attempt > 0 for one in waiting) <= tried
    assert len(stage.deliveries) == 1_000
    assert (await stage.jobs.status()).dead == 0
    assert (await stage.jobs.status()).health == "green"
    assert max(len(stage.times(one.id)) for one in waiting) == 1


@staged()
async def test_an_open_circuit_rewrites_no_waiting_job(stage: Stage) -> None:
    stage.down = True
    await stage.jobs.submit_many([Job(path="work:run", after=0) for _ in range(500)])
    await stage.sleep(30)
    assert "CIRCUIT_OPEN" in await codes(stage, (await stage.jobs.list(limit=1000)).records[-1].id)
    before = stage.host.runtime.provider.stats()
    await stage.sleep(300)
    after_it = stage.host.runtime.provider.stats()

    rows = after_it.rows_put + after_it.rows_deleted - before.rows_put - before.rows_deleted
    assert rows <= 60 * 16  # one probe every 5 s
    stage.down = False
    await stage.sleep(30)
    assert len(stage.deliveries) == 500


# ---- Why and history -----------------------------------------------------------------------------


@staged(lanes=1)
async def test_why_says_every_reason(stage: Stage) -> None:
    stage.reply = lambda one: after(50)
    await stage.jobs.run_after(0, "work:run", id="holder", pool="p")
    await stage.jobs.run_after("10s", "work:run", id="waiter", pool="p")
    await stage.sleep(1)
    assert await codes(stage, "holder") == ["RUNNING"]
    assert await codes(stage, "waiter") == ["NOT_DUE", "POOL_FULL", "LANES_FULL"]
    full = (await stage.jobs.why("waiter"))[1]
    assert (full.pool, full.holders) == ("p", ["holder"])
    await stage.jobs.set_pool("p", paused=True)
    await stage.sleep(20)
    assert await codes(stage, "waiter") == ["POOL_PAUSED", "LANES_FULL"]
    await stage.jobs.set_pool("p", max_concurrency=0, paused=False)
    assert (await stage.jobs.why("waiter"))[0].message == "pool p is closed: its cap is 0"
    assert await codes(stage, "nobody") == ["NOT_FOUND"]
    await stage.jobs.cancel("waiter")
    await stage.sleep(60)


@staged()
async def test_why_of_a_retrying_and_of_a_dead_job(stage: Stage) -> None:
    stage.reply = lambda one: Answer(500, {}, b"")
    await stage.jobs.run_after(0, "work:run", id="x", retry=Retry(max_retries=1))
    await stage.sleep(1)
    (later,) = await stage.jobs.why("x")
    await stage.sleep(60)
    (dead,) = await stage.jobs.why("x")

    assert (later.code, later.at) == ("RETRY_LATER", 1_800_000_030_000)
    assert "HTTP 500" in later.message
    assert dead.code == "DEAD"
    assert "exhausted" in dead.message


@staged()
async def test_history_keeps_every_attempt_after_the_job_is_gone_and_for_a_week(stage: Stage) -> None:
    replies = iter([Answer(500, {}, b""), Answer(429, {"retry-after": "5"}, b""), OK])
    stage.reply = lambda one: next(replies)
    await stage.jobs.run_after("1s", "work:run", id="x", retry=Retry(base_ms=1_000))
    await stage.sleep(60)
    history = await stage.jobs.history("x")
    await stage.sleep(9 * 86_400)

    assert [(one.attempt, one.outcome, one.status) for one in history] == [
        (1, "failed", 500),
        (2, "busy", 429),
        (3, "done", 200),
    ]
    assert history[0].lateness_ms == 0
    assert await stage.jobs.history("x") == []


@staged()
async def test_history_tells_of_cancels_and_expiries(stage: Stage) -> None:
    await stage.jobs.run_after("1h", "work:run", id="x")
    await stage.jobs.cancel("x")
    await stage.jobs.run_after("1h", "work:run", id="y", expires_at=stage.now + 1_000)
    await stage.sleep(2)

    assert [one.outcome for one in await stage.jobs.history("x")] == ["cancelled"]
    assert [one.outcome for one in await stage.jobs.history("y")] == ["expired"]


# ---- Moving and cancelling -----------------------------------------------------------------------


@staged()
async def test_a_waiting_job_is_moved_and_a_running_one_is_not(stage: Stage) -> None:
    stage.reply = lambda one: after(10)
    await stage.jobs.run_after("1h", "work:run", id="x", priority=3, pool="p")
    moved = await stage.jobs.reschedule("x", after="5s")
    record = await stage.jobs.get("x")
    await stage.sleep(6)
    running = await stage.jobs.reschedule("x", at=stage.now + 99_000)
    await stage.sleep(60)

    assert (moved.rescheduled, moved.scheduled_for) == (True, 1_800_000_005_000)
    assert record is not None and record.scheduled_for == 1_800_000_005_000
    assert (running.rescheduled, running.was_running) == (False, True)
    assert stage.times("x") == [5_000]
    assert stage.deliveries[0].body["scheduledFor"] == 1_800_000_005_000
    assert (await stage.jobs.reschedule("x", after=1)).rescheduled is False


@staged()
async def test_cancel_all_takes_what_fits_and_was_there(stage: Stage) -> None:
    await stage.jobs.submit_many([Job(path="a:b", after="1h", options={"pool": "p"}) for _ in range(700)])
    await stage.jobs.submit_many([Job(path="c:d", after="1h", options={"labels": ["l"]}) for _ in range(20)])
    with pytest.raises(InvalidInputError, match="or all=True"):
        await stage.jobs.cancel_all()
    with pytest.raises(InvalidInputError, match="none of them"):
        await stage.jobs.cancel_all(pool="p", all=True)
    dry = await stage.jobs.cancel_all(pool="p", dry_run=True)
    assert (dry.matched, dry.cancelled) == (700, 0)
    labelled = await stage.jobs.cancel_all(label="l", path="c:d")
    pooled = await stage.jobs.cancel_all(pool="p")
    rest = await stage.jobs.cancel_all(all=True)

    assert (labelled.cancelled, pooled.cancelled, rest.cancelled) == (20, 700, 0)
    assert (await stage.jobs.status()).backlog == 0


# ---- Dead letters --------------------------------------------------------------------------------


async def dead_letters(stage: Stage, count: int, **options: object) -> None:
    stage.reply = lambda one: GONE
    await stage.jobs.submit_many([Job(path="a:b", after=0, options=options) for _ in range(count)])
    await stage.sleep(2)


@staged()
async def test_a_redrive_retries_what_was_dead_before_it_at_its_pace(stage: Stage) -> None:
    await dead_letters(stage, 100, pool="p", max_concurrency=100)
    await dead_letters(stage, 5)
    stage.arrivals.clear()
    stage.reply = lambda one: OK
    dry = await stage.jobs.dead_retry_all(pool="p", dry_run=True)
    redrive = await stage.jobs.dead_retry_all(pool="p", rate_per_second=20)
    assert (dry.matched, redrive.matched, redrive.running) == (100, 100, True)
    await stage.sleep(2.5)
    half = await stage.jobs.redrive(redrive.redrive_id)
    assert half is not None and half.retried == 60
    await stage.sleep(10)
    done = await stage.jobs.redrive(redrive.redrive_id)

    assert done is not None and (done.retried, done.running) == (100, False)
    assert len(stage.arrivals) == 100
    assert (await stage.jobs.status()).dead == 5


@staged()
async def test_a_redrive_can_be_stopped_and_survives_a_crash(stage: Stage) -> None:
    await dead_letters(stage, 100)
    stage.reply = lambda one: OK
    redrive = await stage.jobs.dead_retry_all(all=True, rate_per_second=10)
    await stage.sleep(1.5)
    await stage.crash()
    await stage.open()
    await stage.sleep(2)
    assert await stage.jobs.redrive_stop(redrive.redrive_id) is True
    at_stop = await stage.jobs.redrive(redrive.redrive_id)
    await stage.sleep(60)
    after_it = await stage.jobs.redrive(redrive.redrive_id)

    assert at_stop is not None and 20 < at_stop.retried < 60
    assert after_it == at_stop
    assert at_stop.stopped is True
    assert await stage.jobs.redrive_stop(redrive.redrive_id) is False


@staged()
async def test_letters_that_die_again_are_not_retried_by_the_same_redrive(stage: Stage) -> None:
    await dead_letters(stage, 10)
    redrive = await stage.jobs.dead_retry_all(all=True, rate_per_second=5)
    await stage.sleep(30)
    done = await stage.jobs.redrive(redrive.redrive_id)

    assert done is not None and (done.retried, done.running) == (10, False)
    assert len(stage.deliveries) == 20


@staged()
async def test_dead_letters_are_dropped_by_age_and_counted(stage: Stage) -> None:
    await dead_letters(stage, 3)
    await stage.sleep(29 * 86_400)
    assert (await stage.jobs.status()).dead == 3
    await stage.sleep(2 * 86_400)

    assert (await stage.jobs.status()).dead == 0
    assert (await stage.jobs.status()).retired == 3


@staged(dead_retention_s=None)
async def test_dead_letters_may_be_kept_for_ever(stage: Stage) -> None:
    await dead_letters(stage, 3)
    await stage.sleep(60 * 86_400)

    assert (await stage.jobs.status()).dead == 3
