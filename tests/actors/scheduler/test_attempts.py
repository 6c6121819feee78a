"""What an answer makes of a job: the table of the contract, section 3, end to end and in virtual time."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, hang, on_simulated_host
from tocsin.actors.scheduler.model.rows import AtRow, JobRow
from tocsin.actors.scheduler.transitions.job import is_expired
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError

BROKEN = Answer(500, {}, b"broken")


def answer_in_turn(sim: SimulatedHost, *answers: Answer) -> None:
    """The n-th delivery gets the n-th answer, later ones the last."""
    left = list(answers)
    sim.reply = lambda delivery: left.pop(0) if len(left) > 1 else left[0]


@on_simulated_host()
async def test_a_job_arrives_when_it_is_due_and_is_gone(sim: SimulatedHost) -> None:
    job_id = await sim.jobs.run_after("5m", "invoices:send", {"invoice": 42}, shard_key="eu", labels=["a", "b"])
    await sim.sleep(301)

    (delivery,) = sim.deliveries
    assert sim.times(job_id) == [300_000]
    assert delivery.body == {
        "id": job_id,
        "args": {"invoice": 42},
        "scheduledFor": 1_800_000_300_000,
        "attempt": 1,
        "lease": delivery.lease,
        "instanceName": "t",
        "functionPath": "invoices:send",
        "shardKey": "eu",
        "labels": ["a", "b"],
    }
    assert await sim.jobs.get(job_id) is None
    assert (await sim.jobs.status()).backlog == 0


@on_simulated_host()
async def test_failures_climb_the_ladder_and_end_dead(sim: SimulatedHost) -> None:
    answer_in_turn(sim, BROKEN)
    job_id = await sim.jobs.run_after(0, "work:run")
    await sim.sleep(2_000)

    assert sim.times(job_id) == [0, 30_000, 90_000, 210_000, 450_000, 930_000]
    assert [one.attempt for one in sim.deliveries] == [1, 2, 3, 4, 5, 6]
    assert len({one.webhook_id for one in sim.deliveries}) == 1
    assert len({one.lease for one in sim.deliveries}) == 6
    dead = await sim.jobs.get(job_id)
    assert dead is not None
    assert (dead.state, dead.reason, dead.attempts, dead.last_status) == ("dead", "exhausted", 6, 500)
    assert dead.last_response == "broken"
    assert dead.parked_at == 1_800_000_930_000
    assert (await sim.jobs.status()).dead == 1


@on_simulated_host()
async def test_a_linear_ladder_with_a_ceiling(sim: SimulatedHost) -> None:
    answer_in_turn(sim, BROKEN)
    retry = Retry(max_retries=4, backoff="linear", base_ms=1_000, max_ms=2_500)
    job_id = await sim.jobs.run_after(0, "work:run", retry=retry)
    await sim.sleep(60)

    assert sim.times(job_id) == [0, 1_000, 3_000, 5_500, 8_000]


@on_simulated_host()
async def test_no_retries_is_legal(sim: SimulatedHost) -> None:
    answer_in_turn(sim, BROKEN)
    job_id = await sim.jobs.run_after(0, "work:run", retry=Retry(max_retries=0))
    await sim.sleep(1)

    record = await sim.jobs.get(job_id)
    assert record is not None and record.state == "dead"


@on_simulated_host()
async def test_gone_and_never_are_dead_at_once(sim: SimulatedHost) -> None:
    for answer in (Answer(410, {}, b""), Answer(400, {"tocsin-retry": "never"}, b"no such thing")):
        answer_in_turn(sim, answer)
        job_id = await sim.jobs.run_after(0, "work:run")
        await sim.sleep(1)

        record = await sim.jobs.get(job_id)
        assert record is not None
        assert (record.state, record.reason, record.attempts) == ("dead", "refused", 1)


@on_simulated_host()
async def test_a_decline_is_not_charged_and_waits_half_a_minute(sim: SimulatedHost) -> None:
    answer_in_turn(sim, *[Answer(409, {"tocsin-declined": "1"}, b"")] * 9, OK)
    job_id = await sim.jobs.run_after(0, "work:run", retry=Retry(max_retries=1, base_ms=1_000))
    await sim.sleep(600)

    assert sim.times(job_id) == [n * 30_000 for n in range(10)]
    assert await sim.jobs.get(job_id) is None


@on_simulated_host()
async def test_declines_are_charged_once_a_day_has_passed(sim: SimulatedHost) -> None:
    answer_in_turn(sim, Answer(409, {"tocsin-declined": "1"}, b""))
    due = sim.now - 25 * 3_600_000
    job_id = await sim.jobs.run_at(due, "work:run", retry=Retry(max_retries=1, base_ms=1_000))
    await sim.sleep(600)

    record = await sim.jobs.get(job_id)
    assert record is not None and record.state == "dead"


@on_simulated_host()
async def test_busy_is_not_charged_and_waits_as_asked(sim: SimulatedHost) -> None:
    answer_in_turn(sim, *[Answer(429, {"retry-after": "100"}, b"")] * 3, OK)
    job_id = await sim.jobs.run_after(0, "work:run", retry=Retry(max_retries=1, base_ms=1_000))
    await sim.sleep(600)

    assert sim.times(job_id) == [0, 100_000, 200_000, 300_000]


@on_simulated_host()
async def test_an_unreachable_origin_charges_nobody(sim: SimulatedHost) -> None:
    sim.down = True
    job_id = await sim.jobs.run_after(0, "work:run", retry=Retry(max_retries=0))
    await sim.sleep(1_200)
    record = await sim.jobs.get(job_id)
    sim.down = False
    await sim.sleep(6)

    assert record is not None and record.attempts == 0
    assert record.last_error is not None and "never connected" in record.last_error.message
    assert len(sim.deliveries) == 1
    assert await sim.jobs.get(job_id) is None


@on_simulated_host()
async def test_after_a_missed_deadline_nothing_overlaps_until_the_lease_ends(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: hang() if delivery.attempt == 1 else OK
    job_id = await sim.jobs.run_after(0, "work:run", timeout_ms=4_000, retry=Retry(base_ms=1_000))
    await sim.sleep(10)
    held = await sim.jobs.get(job_id)
    await sim.sleep(30)

    assert held is not None and held.lease is not None
    assert (held.state, held.lease.kind) == ("running", "unknown")
    assert sim.times(job_id) == [0, 19_000]
    assert sim.deliveries[1].attempt == 2


@on_simulated_host()
async def test_missed_deadlines_are_charged(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: hang()
    job_id = await sim.jobs.run_after(0, "work:run", timeout_ms=1_000, retry=Retry(max_retries=1, base_ms=1))
    await sim.sleep(60)

    record = await sim.jobs.get(job_id)
    assert record is not None
    assert (record.state, record.reason, record.attempts) == ("dead", "exhausted", 2)
    assert len(sim.deliveries) == 2


@on_simulated_host()
async def test_a_retry_that_could_not_be_indexed_parks_the_job(sim: SimulatedHost) -> None:
    answer_in_turn(sim, BROKEN)
    retry = Retry(base_ms=10**15 - 1, max_ms=10**15 - 1)
    job_id = await sim.jobs.run_after(0, "work:run", retry=retry)
    await sim.sleep(1)

    record = await sim.jobs.get(job_id)
    assert record is not None
    assert (record.state, record.reason) == ("dead", "unindexable")


@on_simulated_host()
async def test_the_first_due_instant_survives_retries(sim: SimulatedHost) -> None:
    answer_in_turn(sim, BROKEN, OK)
    job_id = await sim.jobs.run_after("1s", "work:run")
    await sim.sleep(2)
    waiting = await sim.jobs.get(job_id)
    await sim.sleep(60)

    assert waiting is not None
    assert waiting.next_attempt_at == 1_800_000_031_000
    assert {one.body["scheduledFor"] for one in sim.deliveries} == {1_800_000_001_000}


@on_simulated_host()
async def test_a_dead_letter_retried_has_a_fresh_budget_and_the_same_webhook_id(sim: SimulatedHost) -> None:
    answer_in_turn(sim, BROKEN, BROKEN, OK)
    job_id = await sim.jobs.run_after(0, "work:run", {"n": 1}, retry=Retry(max_retries=0))
    await sim.sleep(1)
    retried = await sim.jobs.dead_retry(job_id)
    await sim.sleep(1)
    again = await sim.jobs.get(job_id)
    assert again is not None and again.attempts == 1
    await sim.jobs.dead_retry(job_id)
    await sim.sleep(1)

    assert (retried.retried, retried.id, retried.scheduled_for) == (True, job_id, 1_800_000_000_000)
    assert [one.attempt for one in sim.deliveries] == [1, 2, 3]
    assert len({one.webhook_id for one in sim.deliveries}) == 1
    assert await sim.jobs.get(job_id) is None
    assert (await sim.jobs.dead_retry(job_id)).retried is False


@on_simulated_host()
async def test_a_job_that_expires_before_it_is_due_is_refused(sim: SimulatedHost) -> None:
    for expires in (sim.now - 1_000, sim.now + 19_000, sim.now + 20_000):
        with pytest.raises(InvalidInputError, match=rf"^expires_at must be after the due instant .* not {expires}"):
            await sim.jobs.run_after("20s", "work:run", expires_at=expires)
    await sim.jobs.run_after("20s", "work:run", expires_at=sim.now + 20_001)
    assert (await sim.jobs.status()).backlog == 1


@on_simulated_host()
async def test_an_expired_job_is_never_sent_and_is_not_dead(sim: SimulatedHost) -> None:
    sim.down = True
    late = await sim.jobs.run_after(0, "work:run", expires_at=sim.now + 8_000)
    await sim.jobs.set_pool("p", paused=True)
    waiting = await sim.jobs.run_after("5s", "work:run", pool="p", expires_at=sim.now + 10_000)
    await sim.sleep(9)
    sim.down = False
    await sim.sleep(60)

    assert sim.deliveries == []
    assert await sim.jobs.get(late) is None
    assert await sim.jobs.get(waiting) is None
    assert (await sim.jobs.status()).dead == 0


@on_simulated_host()
async def test_a_job_that_was_moved_is_late_from_where_it_was_moved_to(sim: SimulatedHost) -> None:
    """Declines are charged a day past due; this one is due 30 hours after it was first asked for."""
    sim.reply = lambda one: Answer(409, {"tocsin-declined": "1"}, b"")
    await sim.jobs.run_after("1h", "work:run", id="x")
    await sim.jobs.reschedule("x", after="30h")
    await sim.sleep(30 * 3_600 + 300)
    record = await sim.jobs.get("x")

    assert len(sim.deliveries) > 1
    assert record is not None and record.attempts == 0


@on_simulated_host()
async def test_a_dead_letter_retried_after_it_would_have_expired_is_sent(sim: SimulatedHost) -> None:
    answer_in_turn(sim, Answer(410, {}, b""), OK)
    await sim.jobs.run_after(0, "work:run", id="x", expires_at=sim.now + 60_000)
    await sim.sleep(100)
    await sim.jobs.dead_retry("x")
    await sim.sleep(60)

    assert sim.times("x") == [0, 100_000]
    assert await sim.jobs.get("x") is None


def test_a_job_has_expired_at_the_instant_that_was_said() -> None:
    """Whatever its timer does: where a line, a claim or a retry meets it at that millisecond, it is not sent."""
    job = JobRow("x", "1", 0, 0, b"{}", expires_at=1_000)

    assert [is_expired(job, AtRow(0), now) for now in (999, 1_000, 1_001)] == [False, True, True]
    assert not is_expired(job, AtRow(0, expires=False), 2_000), "retried from the dead, it has no such instant any more"
