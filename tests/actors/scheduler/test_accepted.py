"""Accepted work: the lane is free, lease and slot stay held until `complete`, `extend` or a lapse."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.model.rows import DAY_MS
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, PayloadTooLargeError, StaleLeaseError

ACCEPTED = Answer(202, {"tocsin-accepted": "1"}, b"")


def accept_all(stage: Stage) -> None:
    stage.reply = lambda one: ACCEPTED


async def lease_of(stage: Stage) -> str:
    await stage.sleep(1)
    return stage.deliveries[-1].lease


@staged(lanes=1)
async def test_accepted_work_frees_its_lane_and_holds_its_slot(stage: Stage) -> None:
    accept_all(stage)
    for n in range(3):
        await stage.jobs.run_after(0, "work:run", id=f"j{n}", pool="p", max_concurrency=2)
    await stage.jobs.run_after(0, "work:run", id="free")
    await stage.sleep(1)
    pool = await stage.jobs.pool("p")

    assert {one.id for one in stage.deliveries} == {"j0", "j1", "free"}
    assert (pool.in_flight, pool.queued) == (2, 1)
    assert [holder.kind for holder in pool.holders] == ["accepted", "accepted"]
    assert await stage.jobs.complete("j0", stage.deliveries[0].lease) is True
    await stage.sleep(1)
    assert stage.deliveries[-1].id == "j2"
    for one in stage.deliveries[1:]:
        await stage.jobs.complete(one.id, one.lease)


@staged()
async def test_a_completion_settles_and_says_the_same_again_for_ten_minutes(stage: Stage) -> None:
    accept_all(stage)
    await stage.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(stage)
    assert await stage.jobs.complete("x", lease, result={"rows": 3})
    assert await stage.jobs.complete("x", lease)
    (attempt,) = await stage.jobs.history("x")
    await stage.sleep(601)
    with pytest.raises(StaleLeaseError):
        await stage.jobs.complete("x", lease)

    assert await stage.jobs.get("x") is None
    assert (attempt.outcome, attempt.attempt) == ("done", 1)
    assert attempt.result is not None and bytes(attempt.result) == b'{"rows":3}'


@staged()
async def test_accepted_and_silent_lapses_and_is_charged(stage: Stage) -> None:
    stage.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "60000"}, b"")
    await stage.jobs.run_after(0, "work:run", id="x", retry=Retry(max_retries=1, base_ms=1_000))
    await stage.sleep(300)
    record = await stage.jobs.get("x")

    assert stage.times("x") == [0, 61_000]
    assert record is not None and record.last_error is not None
    assert (record.state, record.reason, record.attempts) == ("dead", "exhausted", 2)
    assert "not completed" in record.last_error.message
    assert [one.outcome for one in await stage.jobs.history("x")] == ["lapsed", "lapsed"]


@staged()
async def test_the_default_lease_of_accepted_work_is_fifteen_minutes(stage: Stage) -> None:
    accept_all(stage)
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.sleep(1)
    record = await stage.jobs.get("x")

    assert record is not None and record.lease is not None
    assert record.lease.until == 1_800_000_000_000 + 900_000
    assert record.state == "running"
    await stage.jobs.complete("x", stage.deliveries[0].lease)


@staged()
async def test_extending_holds_the_lease_as_long_as_asked(stage: Stage) -> None:
    stage.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "10000"}, b"")
    await stage.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(stage)
    for _ in range(5):
        assert await stage.jobs.extend("x", lease, 20_000) == stage.now + 20_000
        await stage.sleep(15)

    assert len(stage.times("x")) == 1
    await stage.jobs.complete("x", lease)
    with pytest.raises(StaleLeaseError):
        await stage.jobs.extend("x", lease, 20_000)


@staged()
async def test_a_completion_that_overtakes_its_answer_wins(stage: Stage) -> None:
    async def complete_first(one: Delivery) -> Answer:
        await stage.jobs.complete("x", one.lease)
        await asyncio.sleep(5)
        return Answer(500, {}, b"too late to say so")

    stage.reply = complete_first
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.sleep(120)

    assert len(stage.deliveries) == 1
    assert await stage.jobs.get("x") is None
    assert [one.outcome for one in await stage.jobs.history("x")] == ["done"]


@staged()
async def test_a_failure_that_overtakes_a_good_answer_stands(stage: Stage) -> None:
    async def fail_first(one: Delivery) -> Answer:
        if one.attempt == 1:
            await stage.jobs.complete("x", one.lease, ok=False, error="out of stock", delay="20s")
            await asyncio.sleep(5)
        return OK

    stage.reply = fail_first
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.sleep(10)
    waiting = await stage.jobs.get("x")
    await stage.sleep(60)

    assert waiting is not None and waiting.last_error is not None
    assert (waiting.attempts, waiting.last_error.message) == (1, "out of stock")
    assert stage.times("x") == [0, 20_000]


@staged()
async def test_a_failure_that_is_not_retryable_is_dead(stage: Stage) -> None:
    accept_all(stage)
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.jobs.complete("x", await lease_of(stage), ok=False, error="no such customer", retryable=False)
    record = await stage.jobs.get("x")

    assert record is not None and record.last_error is not None
    assert (record.state, record.reason, record.last_error.message) == ("dead", "refused", "no such customer")


@staged()
async def test_success_after_the_lease_ended_counts_while_the_job_waits(stage: Stage) -> None:
    stage.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "10000"}, b"")
    await stage.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(stage)
    await stage.sleep(20)  # lapsed; the next attempt is half a minute away
    assert await stage.jobs.complete("x", lease) is True

    assert await stage.jobs.get("x") is None
    await stage.sleep(120)
    assert len(stage.deliveries) == 1


@staged()
async def test_a_lease_of_the_attempt_before_settles_nothing(stage: Stage) -> None:
    """D5: a late answer of attempt 1 must not free the slot of attempt 2."""
    stage.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "10000"}, b"")
    await stage.jobs.run_after(0, "work:run", id="x", pool="p", retry=Retry(base_ms=1_000))
    first = await lease_of(stage)
    await stage.sleep(12)
    assert len(stage.deliveries) == 2
    with pytest.raises(StaleLeaseError, match="no longer"):
        await stage.jobs.complete("x", first)

    assert (await stage.jobs.pool("p")).in_flight == 1
    await stage.jobs.complete("x", stage.deliveries[1].lease)


@staged()
async def test_a_worker_hears_that_its_job_was_cancelled(stage: Stage) -> None:
    accept_all(stage)
    await stage.jobs.run_after(0, "work:run", id="x", pool="p")
    lease = await lease_of(stage)
    await stage.jobs.cancel("x")
    with pytest.raises(StaleLeaseError, match="was cancelled") as caught:
        await stage.jobs.extend("x", lease, 60_000)
    assert caught.value.details["cancelled"] is True
    assert (await stage.jobs.pool("p")).in_flight == 1
    assert await stage.jobs.complete("x", lease) is True

    assert (await stage.jobs.pool("p")).in_flight == 0
    assert await stage.jobs.complete("x", lease) is True


@staged()
async def test_made_up_leases_and_bad_values_are_refused(stage: Stage) -> None:
    accept_all(stage)
    with pytest.raises(StaleLeaseError):
        await stage.jobs.complete("x", "1.2.3")  # an instance that was never written
    await stage.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(stage)
    for wrong in ("1.2.3", lease[:-1] + ("0" if lease[-1] != "0" else "1"), "x" * 200):
        with pytest.raises(StaleLeaseError):
            await stage.jobs.complete("x", wrong)
    with pytest.raises(StaleLeaseError):
        await stage.jobs.complete("other", lease)
    with pytest.raises(InvalidInputError, match="lease must be"):
        await stage.jobs.complete("x", "")
    with pytest.raises(InvalidInputError, match=r"lease_ms must be 1000\.\.3600000"):
        await stage.jobs.extend("x", lease, 3_600_001)
    with pytest.raises(PayloadTooLargeError, match="65536"):
        await stage.jobs.complete("x", lease, result="x" * 66_000)

    assert await stage.jobs.complete("x", lease) is True


@staged()
async def test_accepted_work_outlives_its_host(stage: Stage) -> None:
    accept_all(stage)
    await stage.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(stage)
    await stage.crash()
    await stage.open()
    await stage.sleep(60)

    assert len(stage.deliveries) == 1
    assert await stage.jobs.complete("x", lease) is True
    assert await stage.jobs.get("x") is None


@staged()
async def test_a_completion_is_known_again_across_midnight(stage: Stage) -> None:
    """The history has a folder for each day of UTC; the stage begins at eight in the morning."""
    accept_all(stage)
    await stage.sleep(16 * 3_600 - 10)
    await stage.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(stage)
    assert await stage.jobs.complete("x", lease)
    before = stage.now // DAY_MS
    await stage.sleep(300)

    assert stage.now // DAY_MS == before + 1
    assert await stage.jobs.complete("x", lease) is True


@staged()
async def test_what_has_failed_is_not_done_by_a_later_word_of_the_same_attempt(stage: Stage) -> None:
    """While it is remembered the answer is the same again; afterwards the lease settles nothing."""
    await stage.jobs.run_after(0, "work:run", id="x", queue="q")
    [claimed] = await stage.jobs.claim("q")
    failed = await stage.jobs.settle("x", claimed.lease, ok=False, delay="1h")
    assert await stage.jobs.settle("x", claimed.lease) == failed
    await stage.sleep(601)
    with pytest.raises(StaleLeaseError):
        await stage.jobs.settle("x", claimed.lease)

    record = await stage.jobs.get("x")
    assert record is not None and record.attempts == 1
