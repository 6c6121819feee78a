"""The circuit, why, history, moving and cancelling in bulk, dead letters in bulk and by age."""

from __future__ import annotations

import re

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host, why_codes
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError

GONE = Answer(410, {}, b"")


# ---- The circuit ---------------------------------------------------------------------------------


@on_simulated_host()
async def test_an_origin_down_for_twenty_minutes_kills_nothing_and_is_probed_every_five_seconds(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.submit_many([Job(path="work:run", after=n) for n in range(1_000)])
    sim.down = True
    await sim.sleep(1_200)
    tried = sim.refused
    status = await sim.jobs.status()
    waiting = (await sim.jobs.list(limit=1000)).records
    sim.down = False
    await sim.sleep(30)

    assert status.health == "red"
    assert 200 <= tried <= 5 + 1_200 / 5 + 5
    assert sum(one.attempt > 0 for one in waiting) <= tried
    assert len(sim.deliveries) == 1_000
    assert (await sim.jobs.status()).dead == 0
    assert (await sim.jobs.status()).health == "green"
    assert max(len(sim.times(one.id)) for one in waiting) == 1


@on_simulated_host()
async def test_an_open_circuit_rewrites_no_waiting_job(sim: SimulatedHost) -> None:
    sim.down = True
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(500)])
    await sim.sleep(30)
    assert "CIRCUIT_OPEN" in await why_codes(sim, (await sim.jobs.list(limit=1000)).records[-1].id)
    before = sim.host.runtime.provider.stats()
    await sim.sleep(300)
    after_it = sim.host.runtime.provider.stats()

    rows = after_it.rows_put + after_it.rows_deleted - before.rows_put - before.rows_deleted
    assert rows <= 60 * 16  # one probe every 5 s
    sim.down = False
    await sim.sleep(30)
    assert len(sim.deliveries) == 500


# ---- Why and history -----------------------------------------------------------------------------


@on_simulated_host(lanes=1)
async def test_why_says_every_reason(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(50)
    await sim.jobs.run_after(0, "work:run", id="holder", pool="p")
    await sim.jobs.run_after("10s", "work:run", id="waiter", pool="p")
    await sim.sleep(1)
    [running] = await sim.jobs.why("holder")
    assert running.code == "RUNNING"
    assert running.message == (
        "it is running: its callback has been on its way for 1s, or its host was lost: tried again when its lease "
        "ends, in 1m 14s"
    )
    assert running.at is not None
    assert await why_codes(sim, "waiter") == ["NOT_DUE", "POOL_FULL", "LANES_FULL"]
    full = (await sim.jobs.why("waiter"))[1]
    assert (full.pool, full.holders) == ("p", ["holder"])
    await sim.jobs.set_pool("p", paused=True)
    await sim.sleep(20)
    assert await why_codes(sim, "waiter") == ["POOL_PAUSED", "LANES_FULL"]
    await sim.jobs.set_pool("p", max_concurrency=0, paused=False)
    assert (await sim.jobs.why("waiter"))[0].message == "pool p is closed: its cap is 0"
    assert await why_codes(sim, "nobody") == ["NOT_FOUND"]
    await sim.jobs.cancel("waiter")
    await sim.sleep(60)


@on_simulated_host()
async def test_why_of_a_retrying_and_of_a_dead_job(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(500, {}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", retry=Retry(max_retries=1))
    await sim.sleep(1)
    (later,) = await sim.jobs.why("x")
    await sim.sleep(60)
    (dead,) = await sim.jobs.why("x")

    assert (later.code, later.at) == ("RETRY_LATER", 1_800_000_030_000)
    assert re.match(r"its next attempt is in \d+s after: ", later.message)
    assert "HTTP 500" in later.message
    assert dead.code == "DEAD"
    assert "exhausted" in dead.message


@on_simulated_host()
async def test_history_keeps_every_attempt_after_the_job_is_gone_and_for_a_week(sim: SimulatedHost) -> None:
    replies = iter([Answer(500, {}, b""), Answer(429, {"retry-after": "5"}, b""), OK])
    sim.reply = lambda one: next(replies)
    await sim.jobs.run_after("1s", "work:run", id="x", retry=Retry(base_ms=1_000))
    await sim.sleep(60)
    history = await sim.jobs.history("x")
    await sim.sleep(9 * 86_400)

    assert [(one.attempt, one.outcome, one.status) for one in history] == [
        (1, "failed", 500),
        (2, "busy", 429),
        (3, "done", 200),
    ]
    assert history[0].lateness_ms == 0
    assert await sim.jobs.history("x") == []


@on_simulated_host()
async def test_history_tells_of_cancels_and_expiries(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run", id="x")
    await sim.jobs.cancel("x")
    await sim.jobs.pause()
    await sim.jobs.run_after("1s", "work:run", id="y", expires_at=sim.now + 2_000)
    await sim.sleep(3)

    assert [one.outcome for one in await sim.jobs.history("x")] == ["cancelled"]
    assert [one.outcome for one in await sim.jobs.history("y")] == ["expired"]


# ---- Moving and cancelling -----------------------------------------------------------------------


@on_simulated_host()
async def test_a_waiting_job_is_moved_and_a_running_one_is_not(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(10)
    await sim.jobs.run_after("1h", "work:run", id="x", priority=3, pool="p")
    moved = await sim.jobs.reschedule("x", after="5s")
    record = await sim.jobs.get("x")
    await sim.sleep(6)
    running = await sim.jobs.reschedule("x", at=sim.now + 99_000)
    await sim.sleep(60)

    assert (moved.rescheduled, moved.scheduled_for) == (True, 1_800_000_005_000)
    assert record is not None and record.scheduled_for == 1_800_000_005_000
    assert (running.rescheduled, running.was_running) == (False, True)
    assert sim.times("x") == [5_000]
    assert sim.deliveries[0].body["scheduledFor"] == 1_800_000_005_000
    assert (await sim.jobs.reschedule("x", after=1)).rescheduled is False


@on_simulated_host()
async def test_a_job_is_not_moved_to_where_it_would_have_expired_and_stays_where_it_is(sim: SimulatedHost) -> None:
    expires = sim.now + 60_000
    await sim.jobs.run_after("10s", "work:run", id="x", expires_at=expires)

    for beyond in (expires, expires + 1):
        with pytest.raises(InvalidInputError, match=rf"job 'x' expires at {expires} \(expires_at\)"):
            await sim.jobs.reschedule("x", at=beyond)
    moved = await sim.jobs.reschedule("x", at=expires - 1)
    await sim.sleep(61)

    assert moved.rescheduled
    assert len(sim.times("x")) == 1


@on_simulated_host()
async def test_a_dead_job_that_was_retried_expires_no_more_and_may_be_moved_anywhere(sim: SimulatedHost) -> None:
    sim.reply = lambda one: GONE
    expires = sim.now + 5_000
    await sim.jobs.run_after(0, "work:run", id="x", expires_at=expires)
    await sim.sleep(1)
    await sim.jobs.pause()
    await sim.jobs.dead_retry("x")

    assert (await sim.jobs.reschedule("x", at=expires + 1)).rescheduled


@on_simulated_host()
async def test_cancel_all_takes_what_fits_and_was_there(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many([Job(path="a:b", after="1h", options={"pool": "p"}) for _ in range(700)])
    await sim.jobs.submit_many([Job(path="c:d", after="1h", options={"labels": ["l"]}) for _ in range(20)])
    with pytest.raises(InvalidInputError, match="or all=True"):
        await sim.jobs.cancel_all()
    with pytest.raises(InvalidInputError, match="none of them"):
        await sim.jobs.cancel_all(pool="p", all=True)
    dry = await sim.jobs.cancel_all(pool="p", dry_run=True)
    assert (dry.matched, dry.cancelled) == (700, 0)
    labelled = await sim.jobs.cancel_all(label="l", path="c:d")
    pooled = await sim.jobs.cancel_all(pool="p")
    rest = await sim.jobs.cancel_all(all=True)

    assert (labelled.cancelled, pooled.cancelled, rest.cancelled) == (20, 700, 0)
    assert (await sim.jobs.status()).backlog == 0


# ---- Dead letters --------------------------------------------------------------------------------


async def dead_letters(sim: SimulatedHost, count: int, **options: object) -> None:
    sim.reply = lambda one: GONE
    await sim.jobs.submit_many([Job(path="a:b", after=0, options=options) for _ in range(count)])
    await sim.sleep(2)


@on_simulated_host()
async def test_a_redrive_retries_what_was_dead_before_it_at_its_pace(sim: SimulatedHost) -> None:
    await dead_letters(sim, 100, pool="p", max_concurrency=100)
    await dead_letters(sim, 5)
    sim.arrivals.clear()
    sim.reply = lambda one: OK
    dry = await sim.jobs.dead_retry_all(pool="p", dry_run=True)
    redrive = await sim.jobs.dead_retry_all(pool="p", rate_per_second=20)
    assert (dry.matched, redrive.matched, redrive.running) == (100, 100, True)
    await sim.sleep(2.5)
    half = await sim.jobs.redrive(redrive.redrive_id)
    assert half is not None and half.retried == 60
    await sim.sleep(10)
    done = await sim.jobs.redrive(redrive.redrive_id)

    assert done is not None and (done.retried, done.running) == (100, False)
    assert len(sim.arrivals) == 100
    assert (await sim.jobs.status()).dead == 5


@on_simulated_host()
async def test_a_redrive_can_be_stopped_and_survives_a_crash(sim: SimulatedHost) -> None:
    await dead_letters(sim, 100)
    sim.reply = lambda one: OK
    redrive = await sim.jobs.dead_retry_all(all=True, rate_per_second=10)
    await sim.sleep(1.5)
    await sim.crash()
    await sim.open()
    await sim.sleep(2)
    assert await sim.jobs.redrive_stop(redrive.redrive_id) is True
    at_stop = await sim.jobs.redrive(redrive.redrive_id)
    await sim.sleep(60)
    after_it = await sim.jobs.redrive(redrive.redrive_id)

    assert at_stop is not None and 20 < at_stop.retried < 60
    assert after_it == at_stop
    assert at_stop.stopped is True
    assert await sim.jobs.redrive_stop(redrive.redrive_id) is False


@on_simulated_host()
async def test_letters_that_die_again_are_not_retried_by_the_same_redrive(sim: SimulatedHost) -> None:
    await dead_letters(sim, 10)
    redrive = await sim.jobs.dead_retry_all(all=True, rate_per_second=5)
    await sim.sleep(30)
    done = await sim.jobs.redrive(redrive.redrive_id)

    assert done is not None and (done.retried, done.running) == (10, False)
    assert len(sim.deliveries) == 20


async def later(sim: SimulatedHost, *, days: int) -> None:
    """Let the clock of the wall pass that long, and timers look at it; a host that idles for days takes seconds."""
    sim.clock.step(days * 86_400_000)
    await sim.sleep(180)


@on_simulated_host()
async def test_dead_letters_are_dropped_by_age_and_counted(sim: SimulatedHost) -> None:
    await dead_letters(sim, 3)
    await later(sim, days=29)
    assert (await sim.jobs.status()).dead == 3
    await later(sim, days=2)

    assert (await sim.jobs.status()).dead == 0
    assert (await sim.jobs.status()).retired == 3


@on_simulated_host(dead_retention_s=None)
async def test_dead_letters_may_be_kept_for_ever(sim: SimulatedHost) -> None:
    await dead_letters(sim, 3)
    await later(sim, days=60)

    assert (await sim.jobs.status()).dead == 3
