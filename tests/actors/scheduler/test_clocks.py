"""Test clocks: time stands until it is advanced, and then goes from one due instant to the next, each whole."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin import Job, NotYetError, Retry, Worker
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError

START = datetime(2020, 1, 1, tzinfo=UTC)
START_MS = 1_577_836_800_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BROKEN = Answer(500, {}, b"broken")


async def clocked(sim: SimulatedHost, name: str = "sim", at: datetime | int = START) -> Scheduler:
    jobs = sim.host.scheduler(name)
    await jobs.clock.create(at)
    return jobs


def paths(sim: SimulatedHost) -> list[tuple[str, int]]:
    """What arrived, in order: path, and hours from the start to the instant it was due."""
    return [(one.body["functionPath"], (one.body["scheduledFor"] - START_MS) // HOUR_MS) for one in sim.deliveries]


# ---- Standing still ------------------------------------------------------------------------------


@on_simulated_host(look_again_s=86_400, idle_after_s=30 * 86_400)
async def test_nothing_happens_by_itself_and_a_frozen_instance_has_no_alarm(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    await jobs.run_after("1h", "work:run", id="a", expires_at=START_MS + 2 * HOUR_MS)
    await jobs.schedules.put("hourly", cron="0 * * * *", path="work:slot")
    assert sim.disk.wakes["scheduler/sim"] is None
    await sim.sleep(10 * 86_400)

    assert not sim.deliveries
    assert sim.disk.wakes["scheduler/sim"] is None
    assert [one for one in sim.host.runtime.alarms.due if one.name == "sim"] == []
    record = await jobs.get("a")
    assert record is not None and (record.state, record.scheduled_for) == ("pending", START_MS + HOUR_MS)
    assert [one.code for one in await jobs.why("a")] == ["NOT_DUE", "TEST_CLOCK"]
    assert await sim.faults("sim") == []


@on_simulated_host()
async def test_delays_count_from_where_the_clock_stands_and_what_is_due_there_is_sent_at_once(
    sim: SimulatedHost,
) -> None:
    jobs = await clocked(sim)
    await jobs.run_after(0, "work:now")
    await jobs.run_at(START - timedelta(days=400), "work:overdue")
    await jobs.submit_many([Job("work:many", after="2h"), Job("work:at", at=START + timedelta(hours=3))])
    async with jobs.deferred() as later:
        later.run_after("4h", "work:deferred")
    await sim.sleep(5)
    assert sorted(path for path, _ in paths(sim)) == ["work:now", "work:overdue"]
    hours = {one.function_path: (one.scheduled_for - START_MS) / HOUR_MS for one in (await jobs.list()).records}
    assert hours == {"work:many": 2, "work:at": 3, "work:deferred": 4}
    await jobs.reschedule((await jobs.list()).records[0].id, after="9h")
    await jobs.clock.advance("1d")
    assert [hour for _, hour in paths(sim)[2:]] == [3, 4, 9]


@on_simulated_host()
async def test_a_delay_that_was_counted_by_another_clock_is_counted_again(sim: SimulatedHost) -> None:
    """Handles of a process that does not hold the store, and requests that an advance has overtaken."""
    jobs = await clocked(sim)
    jobs._checks.now_ms = sim.clock.now_ms
    id = await jobs.run_after("1h", "work:run")
    at = await jobs.run_at(START_MS + 2 * HOUR_MS, "work:run")
    found = {one.id: one for one in (await jobs.list()).records}
    assert (found[id].scheduled_for, found[id].enqueued_at) == (START_MS + HOUR_MS, START_MS)
    assert (found[at].scheduled_for, found[at].enqueued_at) == (START_MS + 2 * HOUR_MS, START_MS)


@on_simulated_host()
async def test_a_callback_has_a_real_timestamp_and_a_due_instant_of_the_test_clock(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    await jobs.run_after("30d", "work:run")
    await jobs.clock.advance("40d")
    [delivery] = sim.deliveries
    assert delivery.body["scheduledFor"] == START_MS + 30 * DAY_MS
    assert abs(int(delivery.headers["webhook-timestamp"]) * 1000 - sim.now) < 10_000


# ---- Advancing -----------------------------------------------------------------------------------


@on_simulated_host()
async def test_all_that_is_due_happens_in_order_and_has_ended_before_time_goes_on(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    at: list[tuple[str, int]] = []

    async def reply(delivery: Delivery) -> Answer:
        state = await jobs.clock.get()
        assert state is not None and state.advancing
        at.append((delivery.body["functionPath"], (state.now - START_MS) // HOUR_MS))
        await asyncio.sleep(sim.random.choice([0.01, 3, 40]))
        after_it = await jobs.clock.get()
        assert after_it is not None and after_it.now == state.now, "time went on while an attempt ran"
        return OK

    sim.reply = lambda delivery: reply(delivery)
    await jobs.schedules.put("daily", cron="0 9 * * *", path="daily")
    for hours in (5, 33, 33, 34):
        await jobs.run_after(hours * 3_600, f"once-{hours}")
    await jobs.run_after("10h", "first", then=[Job("second", after="1h")])
    ended = await jobs.clock.advance("2d")

    assert (ended.now, ended.advancing) == (START_MS + 2 * DAY_MS, False)
    assert at[:4] + sorted(at[4:7]) + at[7:] == [
        ("once-5", 5), ("daily", 9), ("first", 10), ("second", 11),
        ("daily", 33), ("once-33", 33), ("once-33", 33), ("once-34", 34),
    ]  # fmt: skip
    assert (await jobs.status()).backlog == 0
    assert await sim.faults("sim") == []


@on_simulated_host()
async def test_retries_expiries_and_retention_take_no_real_time(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    sim.reply = lambda delivery: BROKEN
    await jobs.run_after("1h", "work:run", id="dies", retry=Retry(max_retries=3))
    await jobs.set_pool("stopped", paused=True)
    await jobs.run_after("1h", "work:run", id="expires", pool="stopped", expires_at=START_MS + 5 * HOUR_MS)
    began = sim.now
    await jobs.clock.advance("4h")
    assert [one.attempt for one in sim.deliveries] == [1, 2, 3, 4]
    assert [one.started - START_MS - HOUR_MS for one in await jobs.history("dies")] == [0, 30_000, 90_000, 210_000]
    dead = await jobs.get("dies")
    assert dead is not None and dead.parked_at == START_MS + HOUR_MS + 210_000
    assert await jobs.get("expires") is not None
    await jobs.clock.advance("2h")
    assert await jobs.get("expires") is None
    await jobs.clock.advance("31d")
    assert await jobs.get("dies") is None and await jobs.history("dies") == []
    assert sim.now - began < 10_000


@on_simulated_host()
async def test_an_instant_with_more_than_a_turn_can_do_is_whole_before_time_goes_on(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    await jobs.set_pool("stopped", paused=True)
    options: Any = {"pool": "stopped", "expires_at": START_MS + 2 * HOUR_MS}
    for _ in range(2):
        await jobs.submit_many([Job("work:run", after=3_600, options=options) for _ in range(700)])
    await jobs.clock.advance("2h")
    assert (await jobs.status()).backlog == 0


@on_simulated_host()
async def test_slots_follow_their_rules_on_the_test_clock(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    await jobs.schedules.put("hourly", cron="0 * * * *", path="hourly", misfire="all")
    await jobs.clock.advance("3h")
    await jobs.schedules.pause("hourly")
    await jobs.clock.advance("3h")
    await jobs.schedules.resume("hourly")
    await jobs.clock.advance("2h")
    assert paths(sim) == [("hourly", hour) for hour in (1, 2, 3, 7, 8)]
    ends = (await jobs.schedules.occurrences("hourly")).occurrences
    assert {one.state for one in ends} == {"fired", "skipped"}


@on_simulated_host()
async def test_dead_jobs_are_retried_in_bulk_on_a_clock_that_stands(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    sim.reply = lambda delivery: BROKEN
    await jobs.submit_many([Job("work:run", after=0, options={"retry": Retry(max_retries=0)}) for _ in range(3)])
    await sim.sleep(5)
    sim.reply = lambda delivery: OK
    redrive = await jobs.dead_retry_all(all=True)
    assert redrive.matched == 3
    await jobs.clock.advance("1m")
    status = await jobs.status()
    assert (status.dead, status.backlog) == (0, 0)


@on_simulated_host()
async def test_accepted_work_holds_time_until_it_is_completed(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    sim.reply = lambda delivery: Answer(202, {"tocsin-accepted": "1"}, b"")
    await jobs.run_after("1h", "work:run", id="a")
    await jobs.run_after("2h", "work:run", id="b")
    await jobs.clock.start("1d")
    await sim.sleep(600)
    state = await jobs.clock.get()
    assert state is not None and (state.now, state.waits_for) == (START_MS + HOUR_MS, "1 attempt is under way")
    sim.reply = lambda delivery: OK
    assert await jobs.complete("a", sim.deliveries[0].lease)
    assert (await jobs.clock.wait("1m")).now == START_MS + DAY_MS


@on_simulated_host()
async def test_leases_end_by_the_real_clock(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    sim.reply = lambda delivery: Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": "60000"}, b"")
    await jobs.run_after("1h", "work:run", retry=Retry(max_retries=0))
    await jobs.clock.start("1d")
    await sim.sleep(1)
    [running] = (await jobs.list()).records
    assert running.lease is not None and abs(running.lease.until - sim.now - 60_000) < 2_000
    began = sim.now
    await jobs.clock.wait("5m")
    assert 50_000 < sim.now - began < 70_000
    assert (await jobs.status()).dead == 1


@on_simulated_host()
async def test_what_may_not_start_does_not_hold_time(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    await jobs.set_pool("stopped", paused=True)
    await jobs.run_after("1h", "work:run", pool="stopped")
    await jobs.run_after("2h", "work:other")
    assert (await jobs.clock.advance("1d")).now == START_MS + DAY_MS
    assert paths(sim) == [("work:other", 2)]
    await jobs.set_instance(paused=True)
    await jobs.run_after("1h", "work:third")
    await jobs.clock.advance("1d")
    await jobs.set_pool("stopped", paused=False)
    await jobs.set_instance(paused=False)
    await sim.sleep(1)
    assert {path for path, _ in paths(sim)} == {"work:other", "work:run", "work:third"}


@on_simulated_host()
async def test_an_origin_that_is_down_holds_time_and_says_so(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    await jobs.submit_many([Job("work:run", after=3_600) for _ in range(20)])
    sim.down = True
    with pytest.raises(NotYetError, match=r"after 0:01:00: the origin https://origin\.example cannot be reached"):
        await jobs.clock.advance("1d", timeout="1m")
    sim.down = False
    assert (await jobs.clock.wait("1m")).now == START_MS + DAY_MS
    assert len(sim.deliveries) == 20


@on_simulated_host()
async def test_time_waits_for_workers_that_are_there_and_not_for_ever_for_others(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    seen: list[int] = []

    async def work(args: Any) -> None:
        state = await jobs.clock.get()
        assert state is not None
        seen.append((state.now - START_MS) // HOUR_MS)
        await asyncio.sleep(30)

    for hours in (1, 2, 2, 2, 3):
        await jobs.run_after(hours * 3_600, "work:run", queue="mail")
    async with Worker(jobs, {"work:run": work}, concurrency=1, clock=sim.clock, random=sim.random):
        await jobs.clock.advance("10h")
    assert seen == [1, 2, 2, 2, 3]

    for hours in (1, 2, 3):
        await jobs.run_after(hours * 3_600, "work:run", queue="mail")
    began = sim.now
    await jobs.clock.advance("1d")
    assert 9_000 < sim.now - began < 12_000, "once for all of them"
    assert (await jobs.status()).due == 3


# ---- Refusals, freezing, the end -----------------------------------------------------------------


@on_simulated_host(look_again_s=86_400, idle_after_s=30 * 86_400)
async def test_a_clock_is_given_to_a_new_instance_only_and_never_taken_away(sim: SimulatedHost) -> None:
    live = sim.host.scheduler("live")
    id = await live.run_after("1h", "work:run")
    await live.cancel(id)
    await sim.sleep(60 * 86_400)
    for call in (live.clock.create(START), live.clock.advance("1h"), live.clock.freeze()):
        with pytest.raises(ConflictError, match="live clock"):
            await call
    assert await live.clock.get() is None
    with pytest.raises(NotFoundError):
        await sim.host.scheduler("none").clock.advance("1h")

    jobs = await clocked(sim)
    await jobs.clock.create(START)  # the same again
    with pytest.raises(ConflictError, match="has a test clock already"):
        await jobs.clock.create(START + timedelta(days=1))
    await jobs.remove()
    await jobs.run_after(5, "work:run", id="a")
    record = await jobs.get("a")
    assert record is not None and record.scheduled_for == sim.now + 5_000, "a new instance, on the live clock"


@on_simulated_host()
async def test_one_advance_at_a_time_and_only_forward(sim: SimulatedHost) -> None:
    jobs = await clocked(sim)
    sim.reply = lambda delivery: after(20)
    for hours in (1, 2, 3):
        await jobs.run_after(hours * 3_600, "work:run")
    await jobs.clock.start("1d")
    with pytest.raises(ConflictError, match=r"an advance to \d+ goes on"):
        await jobs.clock.advance("2d")
    await sim.sleep(25)
    frozen = await jobs.clock.freeze()
    assert (frozen.now, frozen.advancing) == (START_MS + 2 * HOUR_MS, False)
    await sim.sleep(600)
    assert len(sim.deliveries) == 2
    for wrong, words in ((START, "must not be before"), (5, "looks like seconds")):
        with pytest.raises(InvalidInputError, match=words):
            await jobs.clock.advance(to=wrong)
    for bad in ({}, {"by": "1h", "to": START}, {"by": START}, {"by": -5}):
        with pytest.raises(InvalidInputError):
            await jobs.clock.advance(**bad)
    await jobs.clock.advance(to=START + timedelta(hours=3))
    assert len(sim.deliveries) == 3
    assert (await jobs.clock.advance(0)).now == START_MS + 3 * HOUR_MS


@on_simulated_host()
async def test_live_instances_beside_it_run_as_ever(sim: SimulatedHost) -> None:
    jobs, live = await clocked(sim), sim.host.scheduler("live")
    await live.run_after(60, "live:run")
    await jobs.run_after(60, "sim:run")
    before = live  # a handle made before
    await jobs.clock.advance("30d")
    assert [path for path, _ in paths(sim)] == ["sim:run"]
    await sim.sleep(61)
    assert [path for path, _ in paths(sim)] == ["sim:run", "live:run"]
    assert (await before.status()).clock is None
    state = (await jobs.status()).clock
    assert state is not None and state.now == START_MS + 30 * DAY_MS
