"""Accepted work: the lane is free, lease and slot stay held until `complete`, `extend` or a lapse."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.model.rows import DAY_MS
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, PayloadTooLargeError, StaleLeaseError

ACCEPTED = Answer(202, {"tocsin-accepted": "1"}, b"")


def accept_all(sim: SimulatedHost) -> None:
    sim.reply = lambda one: ACCEPTED


async def lease_of(sim: SimulatedHost) -> str:
    await sim.sleep(1)
    return sim.deliveries[-1].lease


@on_simulated_host(lanes=1)
async def test_accepted_work_frees_its_lane_and_holds_its_slot(sim: SimulatedHost) -> None:
    accept_all(sim)
    for n in range(3):
        await sim.jobs.run_after(0, "work:run", id=f"j{n}", pool="p", max_concurrency=2)
    await sim.jobs.run_after(0, "work:run", id="free")
    await sim.sleep(1)
    pool = await sim.jobs.pool("p")

    assert {one.id for one in sim.deliveries} == {"j0", "j1", "free"}
    assert (pool.in_flight, pool.queued) == (2, 1)
    assert [holder.kind for holder in pool.holders] == ["accepted", "accepted"]
    assert await sim.jobs.complete("j0", sim.deliveries[0].lease) is True
    await sim.sleep(1)
    assert sim.deliveries[-1].id == "j2"
    for one in sim.deliveries[1:]:
        await sim.jobs.complete(one.id, one.lease)


@on_simulated_host()
async def test_a_completion_settles_and_says_the_same_again_for_ten_minutes(sim: SimulatedHost) -> None:
    accept_all(sim)
    await sim.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(sim)
    assert await sim.jobs.complete("x", lease, result={"rows": 3})
    assert await sim.jobs.complete("x", lease)
    (attempt,) = await sim.jobs.history("x")
    await sim.sleep(601)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("x", lease)

    assert await sim.jobs.get("x") is None
    assert (attempt.outcome, attempt.attempt) == ("done", 1)
    assert attempt.result == {"rows": 3}


@on_simulated_host()
async def test_accepted_and_silent_lapses_and_is_charged(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "60000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", retry=Retry(max_retries=1, base_ms=1_000))
    await sim.sleep(300)
    record = await sim.jobs.get("x")

    assert sim.times("x") == [0, 61_000]
    assert record is not None and record.last_error is not None
    assert (record.state, record.reason, record.attempts) == ("dead", "exhausted", 2)
    assert "not completed" in record.last_error.message
    assert [one.outcome for one in await sim.jobs.history("x")] == ["lapsed", "lapsed"]


@on_simulated_host()
async def test_the_default_lease_of_accepted_work_is_fifteen_minutes(sim: SimulatedHost) -> None:
    accept_all(sim)
    await sim.jobs.run_after(0, "work:run", id="x")
    await sim.sleep(1)
    record = await sim.jobs.get("x")

    assert record is not None and record.lease is not None
    assert record.lease.until == 1_800_000_000_000 + 900_000
    assert record.state == "running"
    await sim.jobs.complete("x", sim.deliveries[0].lease)


@on_simulated_host()
async def test_extending_holds_the_lease_as_long_as_asked(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "10000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(sim)
    for _ in range(5):
        assert await sim.jobs.extend("x", lease, 20_000) == sim.now + 20_000
        await sim.sleep(15)

    assert len(sim.times("x")) == 1
    await sim.jobs.complete("x", lease)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.extend("x", lease, 20_000)


@on_simulated_host()
async def test_a_completion_that_overtakes_its_answer_wins(sim: SimulatedHost) -> None:
    async def complete_first(one: Delivery) -> Answer:
        await sim.jobs.complete("x", one.lease)
        await asyncio.sleep(5)
        return Answer(500, {}, b"too late to say so")

    sim.reply = complete_first
    await sim.jobs.run_after(0, "work:run", id="x")
    await sim.sleep(120)

    assert len(sim.deliveries) == 1
    assert await sim.jobs.get("x") is None
    assert [one.outcome for one in await sim.jobs.history("x")] == ["done"]


@on_simulated_host()
async def test_a_failure_that_overtakes_a_good_answer_stands(sim: SimulatedHost) -> None:
    async def fail_first(one: Delivery) -> Answer:
        if one.attempt == 1:
            await sim.jobs.complete("x", one.lease, ok=False, error="out of stock", delay="20s")
            await asyncio.sleep(5)
        return OK

    sim.reply = fail_first
    await sim.jobs.run_after(0, "work:run", id="x")
    await sim.sleep(10)
    waiting = await sim.jobs.get("x")
    await sim.sleep(60)

    assert waiting is not None and waiting.last_error is not None
    assert (waiting.attempts, waiting.last_error.message) == (1, "out of stock")
    assert sim.times("x") == [0, 20_000]


@on_simulated_host()
async def test_a_failure_that_is_not_retryable_is_dead(sim: SimulatedHost) -> None:
    accept_all(sim)
    await sim.jobs.run_after(0, "work:run", id="x")
    await sim.jobs.complete("x", await lease_of(sim), ok=False, error="no such customer", retryable=False)
    record = await sim.jobs.get("x")

    assert record is not None and record.last_error is not None
    assert (record.state, record.reason, record.last_error.message) == ("dead", "refused", "no such customer")


@on_simulated_host()
async def test_success_after_the_lease_ended_counts_while_the_job_waits(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "10000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(sim)
    await sim.sleep(20)  # lapsed; the next attempt is half a minute away
    assert await sim.jobs.complete("x", lease) is True

    assert await sim.jobs.get("x") is None
    await sim.sleep(120)
    assert len(sim.deliveries) == 1


@on_simulated_host()
async def test_a_lease_of_the_attempt_before_settles_nothing(sim: SimulatedHost) -> None:
    """D5: a late answer of attempt 1 must not free the slot of attempt 2."""
    sim.reply = lambda one: Answer(200, {"tocsin-accepted": "1", "tocsin-lease-ms": "10000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", pool="p", retry=Retry(base_ms=1_000))
    first = await lease_of(sim)
    await sim.sleep(12)
    assert len(sim.deliveries) == 2
    with pytest.raises(StaleLeaseError, match="no longer"):
        await sim.jobs.complete("x", first)

    assert (await sim.jobs.pool("p")).in_flight == 1
    await sim.jobs.complete("x", sim.deliveries[1].lease)


@on_simulated_host()
async def test_a_worker_hears_that_its_job_was_cancelled(sim: SimulatedHost) -> None:
    accept_all(sim)
    await sim.jobs.run_after(0, "work:run", id="x", pool="p")
    lease = await lease_of(sim)
    await sim.jobs.cancel("x")
    with pytest.raises(StaleLeaseError, match="was cancelled") as caught:
        await sim.jobs.extend("x", lease, 60_000)
    assert caught.value.details["cancelled"] is True
    assert (await sim.jobs.pool("p")).in_flight == 1
    assert await sim.jobs.complete("x", lease) is True

    assert (await sim.jobs.pool("p")).in_flight == 0
    assert await sim.jobs.complete("x", lease) is True


@on_simulated_host()
async def test_made_up_leases_and_bad_values_are_refused(sim: SimulatedHost) -> None:
    accept_all(sim)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("x", "1.2.3")  # an instance that was never written
    await sim.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(sim)
    for wrong in ("1.2.3", lease[:-1] + ("0" if lease[-1] != "0" else "1"), "x" * 200):
        with pytest.raises(StaleLeaseError):
            await sim.jobs.complete("x", wrong)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("other", lease)
    with pytest.raises(InvalidInputError, match="lease must be"):
        await sim.jobs.complete("x", "")
    with pytest.raises(InvalidInputError, match=r"lease_ms must be 1000\.\.3600000"):
        await sim.jobs.extend("x", lease, 3_600_001)
    with pytest.raises(PayloadTooLargeError, match="65536"):
        await sim.jobs.complete("x", lease, result="x" * 66_000)

    assert await sim.jobs.complete("x", lease) is True


@on_simulated_host()
async def test_accepted_work_outlives_its_host(sim: SimulatedHost) -> None:
    accept_all(sim)
    await sim.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(sim)
    await sim.crash()
    await sim.open()
    await sim.sleep(60)

    assert len(sim.deliveries) == 1
    assert await sim.jobs.complete("x", lease) is True
    assert await sim.jobs.get("x") is None


@on_simulated_host()
async def test_a_completion_is_known_again_across_midnight(sim: SimulatedHost) -> None:
    """The history has a folder for each day of UTC; the simulation begins at eight in the morning."""
    accept_all(sim)
    await sim.sleep(16 * 3_600 - 10)
    await sim.jobs.run_after(0, "work:run", id="x")
    lease = await lease_of(sim)
    assert await sim.jobs.complete("x", lease)
    before = sim.now // DAY_MS
    await sim.sleep(300)

    assert sim.now // DAY_MS == before + 1
    assert await sim.jobs.complete("x", lease) is True


@on_simulated_host()
async def test_what_has_failed_is_not_done_by_a_later_word_of_the_same_attempt(sim: SimulatedHost) -> None:
    """While it is remembered the answer is the same again; afterwards the lease settles nothing."""
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    [claimed] = await sim.jobs.claim("q")
    failed = await sim.jobs.settle("x", claimed.lease, ok=False, delay="1h")
    assert await sim.jobs.settle("x", claimed.lease) == failed
    await sim.sleep(601)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.settle("x", claimed.lease)

    record = await sim.jobs.get("x")
    assert record is not None and record.attempts == 1
