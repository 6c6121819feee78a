"""Slots of a schedule's past are run at a pace, each once, and in nobody's way."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError

NOW = 1_800_000_000_000
"""2027-01-15T08:00Z, when every test begins."""
HOUR = 3_600_000
DAY = 24 * HOUR


async def hourly(sim: SimulatedHost, **options: Any) -> None:
    await sim.jobs.schedules.put("h", "work:run", cron="0 * * * *", **{"overlap": "allow", **options})


def slots_of(sim: SimulatedHost) -> list[int]:
    """The slots that were called for, in the order of when they started."""
    return [int(job_id[5:20]) for _, job_id in sorted(sim.arrivals) if job_id.startswith("cron-")]


async def latest(sim: SimulatedHost) -> Backfill:
    return (await sim.jobs.schedules.backfills("h"))[0]


@on_simulated_host()
async def test_slots_before_it_was_made_are_run_once_in_order_at_the_pace(sim: SimulatedHost) -> None:
    await hourly(sim)
    begun = await sim.jobs.schedules.backfill("h", NOW - DAY, NOW, rate_per_second=5)
    first = NOW - DAY
    assert (begun.matched, begun.left_out, begun.state) == (24, 0, "running")
    assert list(begun.slots) == [first + n * HOUR for n in range(5)]
    await sim.sleep(2.5)
    assert len(sim.deliveries) == 15
    await sim.sleep(10)
    assert slots_of(sim) == [first + n * HOUR for n in range(24)]
    assert max(Counter(at // 1_000 for at, _ in sim.arrivals).values()) <= 5

    done = await latest(sim)
    assert (done.state, done.started, done.reached) == ("done", 24, NOW - 1)
    page = await sim.jobs.schedules.occurrences("h")
    assert [one.state for one in page.occurrences] == ["fired"] * 24
    assert {one.backfill_id for one in page.occurrences} == {begun.backfill_id}


@on_simulated_host()
async def test_a_dry_run_counts_and_changes_nothing(sim: SimulatedHost) -> None:
    await hourly(sim)
    before = {actor: rows.range(b"", b"\xff", 1_000_000, False) for actor, rows in sim.disk.maps.items()}
    dry = await sim.jobs.schedules.backfill("h", NOW - DAY, NOW + DAY, dry_run=True)
    assert (dry.matched, dry.state, dry.backfill_id) == (25, "dry run", "")
    await sim.sleep(5)
    assert sim.deliveries == [] and await sim.jobs.schedules.backfills("h") == []
    assert {actor: rows.range(b"", b"\xff", 1_000_000, False) for actor, rows in sim.disk.maps.items()} == before


@on_simulated_host()
async def test_what_fired_is_left_out_and_slots_to_come_come_by_themselves(sim: SimulatedHost) -> None:
    await hourly(sim)
    await sim.sleep(3 * 3_600 + 10)
    assert len(slots_of(sim)) == 3
    begun = await sim.jobs.schedules.backfill("h", NOW - 2 * HOUR, NOW + DAY)
    assert (begun.matched, begun.left_out) == (3, 3)  # that of NOW itself came before the schedule was made
    await sim.sleep(10)
    assert Counter(slots_of(sim)) == Counter(NOW + n * HOUR for n in range(-2, 4))
    await sim.sleep(3_600)
    assert slots_of(sim)[-1] == NOW + 4 * HOUR and len(slots_of(sim)) == 7


@on_simulated_host()
async def test_two_that_overlap_run_each_slot_once_one_after_the_other(sim: SimulatedHost) -> None:
    await hourly(sim)
    one = await sim.jobs.schedules.backfill("h", NOW - 20 * HOUR, NOW - 5 * HOUR, rate_per_second=2)
    await sim.sleep(0.01)
    two = await sim.jobs.schedules.backfill("h", NOW - 10 * HOUR, NOW, rate_per_second=2)
    listed = await sim.jobs.schedules.backfills("h")
    assert [(each.backfill_id, each.state, each.waits_for) for each in listed] == [
        (two.backfill_id, "waiting", one.backfill_id), (one.backfill_id, "running", None),
    ]  # fmt: skip
    await sim.sleep(30)
    assert slots_of(sim) == [NOW - n * HOUR for n in range(20, 0, -1)]
    assert [each.started for each in await sim.jobs.schedules.backfills("h")] == [5, 15]
    again = await sim.jobs.schedules.backfill("h", NOW - 20 * HOUR, NOW)
    assert (again.matched, again.left_out, again.state) == (0, 20, "done")


@on_simulated_host()
async def test_each_slot_is_run_once_whenever_the_host_dies(sim: SimulatedHost) -> None:
    await hourly(sim)
    await sim.jobs.schedules.backfill("h", NOW - 40 * HOUR, NOW, rate_per_second=10)
    for seconds in (0.0, 0.1, 1.0, 1.05, 1.5):
        await sim.sleep(seconds)
        await sim.crash()
        await sim.open()
    await sim.sleep(600)
    jobs = {one.headers["webhook-id"]: one.body["schedule"]["slot"] for one in sim.deliveries}
    assert sorted(jobs.values()) == [NOW - n * HOUR for n in range(40, 0, -1)]
    assert (await latest(sim)).started == 40


@on_simulated_host()
async def test_skipped_and_coalesced_slots_get_a_run_of_their_own(sim: SimulatedHost) -> None:
    await hourly(sim, misfire="one")
    await sim.crash()
    await asyncio.sleep(5 * 3_600 + 600)
    await sim.open()
    await sim.sleep(10)
    assert slots_of(sim) == [NOW + 5 * HOUR]  # it stands for the four before it
    await sim.jobs.schedules.pause("h")
    await sim.sleep(3 * 3_600)
    begun = await sim.jobs.schedules.backfill("h", NOW + HOUR, NOW + 9 * HOUR)
    assert (begun.matched, begun.left_out) == (7, 1)  # also those that passed while it is paused
    await sim.sleep(10)
    assert Counter(slots_of(sim)) == Counter(NOW + n * HOUR for n in range(1, 9))
    await sim.jobs.schedules.resume("h")
    await sim.sleep(10)
    assert len(slots_of(sim)) == 8
    page = await sim.jobs.schedules.occurrences("h")
    assert [(one.slot, one.state) for one in page.occurrences] == [(NOW + n * HOUR, "fired") for n in range(8, 0, -1)]


@on_simulated_host()
async def test_a_part_of_a_run_of_slots_leaves_the_rest_as_it_was(sim: SimulatedHost) -> None:
    await hourly(sim)
    await sim.jobs.schedules.pause("h")
    await sim.sleep(6 * 3_600 + 60)
    await sim.jobs.schedules.resume("h")
    await sim.sleep(1)
    await sim.jobs.schedules.backfill("h", NOW + HOUR, NOW + 3 * HOUR)
    await sim.sleep(5)
    page = await sim.jobs.schedules.occurrences("h")
    assert [(one.slot, one.state, one.until, one.count) for one in page.occurrences] == [
        (NOW + 3 * HOUR, "skipped", NOW + 6 * HOUR, 4), (NOW + 2 * HOUR, "fired", None, None),
        (NOW + HOUR, "fired", None, None),
    ]  # fmt: skip
    await sim.jobs.schedules.backfill("h", NOW + 4 * HOUR, NOW + 5 * HOUR)
    await sim.sleep(5)
    assert slots_of(sim) == [NOW + HOUR, NOW + 2 * HOUR, NOW + 4 * HOUR]


@on_simulated_host()
async def test_one_runs_at_a_time_where_the_schedule_says_so_and_the_next_slot_is_held_back(sim: SimulatedHost) -> None:
    running = most = 0

    async def work(one: Delivery) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(40)
        running -= 1
        return OK

    sim.reply = work
    await sim.jobs.schedules.put("h", "work:run", cron="* * * * *", overlap="skip")
    await sim.jobs.schedules.backfill("h", NOW - 5 * 60_000, NOW, rate_per_second=100)
    await sim.sleep(20 * 60 - 1)
    assert most == 1
    slots = slots_of(sim)
    during = [NOW + n * 60_000 for n in range(-5, 8) if n != 0]
    assert sorted(slots)[: len(during)] == during  # none that came meanwhile was skipped
    own = [slot for slot in slots if slot < NOW]
    assert own == sorted(own) and slots[:2] == own[:2]
    assert (await latest(sim)).state == "done"


@on_simulated_host()
async def test_a_slot_of_the_past_whose_turn_comes_while_another_one_runs_waits_for_it(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(20 if one.body["schedule"]["slot"] > NOW else 0.01)
    await sim.jobs.schedules.put("h", "work:run", cron="* * * * *", overlap="skip")
    await sim.jobs.schedules.backfill("h", NOW - 90 * 60_000, NOW, rate_per_second=1)
    await sim.sleep(115)
    of_past = [at for at, job_id in sim.arrivals if int(job_id[5:20]) < NOW]
    (own,) = [at for at, job_id in sim.arrivals if int(job_id[5:20]) > NOW]
    assert own in range(60_000, 60_100)
    assert not [at for at in of_past if own <= at < own + 20_000]
    assert len(of_past) == 90 and (await latest(sim)).state == "done"


@on_simulated_host(occurrences_kept=10)
async def test_slots_whose_rows_are_dropped_are_not_run_again(sim: SimulatedHost) -> None:
    await hourly(sim)
    await sim.sleep(100 * 3_600 + 10)  # a hundred have fired, and some thirty are kept
    fired = len(slots_of(sim))
    assert fired == 100 and len((await sim.jobs.schedules.occurrences("h")).occurrences) <= 30
    every = await sim.jobs.schedules.backfill("h", NOW - 80 * HOUR, NOW + 200 * HOUR)
    assert every.matched == 81 and every.left_out == 100
    await sim.sleep(30)
    assert len(slots_of(sim)) == 181 == len(set(slots_of(sim)))
    again = await sim.jobs.schedules.backfill("h", NOW - 100 * HOUR, NOW + 200 * HOUR)
    assert (again.matched, again.left_out) == (20, 181)
    await sim.sleep(30)
    assert len(slots_of(sim)) == 201 == len(set(slots_of(sim)))


@on_simulated_host()
async def test_its_jobs_wait_for_their_pool_and_behind_what_is_due(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(10)
    await hourly(sim, pool="p", max_concurrency=1)
    await sim.jobs.schedules.backfill("h", NOW - 10 * HOUR, NOW, rate_per_second=10)
    await sim.sleep(1)
    await sim.jobs.run_after(0, "work:urgent", id="urgent", pool="p", priority=1)
    await sim.jobs.run_after(0, "work:other", id="other")
    await sim.sleep(12)
    assert sim.times("other") == [1_000] and sim.times("urgent") == [10_000]
    await sim.sleep(120)
    assert len(slots_of(sim)) == 10


@on_simulated_host(max_jobs=5)
async def test_it_waits_while_the_instance_is_full(sim: SimulatedHost) -> None:
    gate = asyncio.Event()

    async def work(one: Delivery) -> Answer:
        await gate.wait()
        return OK

    sim.reply = work
    await hourly(sim)
    await sim.jobs.schedules.backfill("h", NOW - 12 * HOUR, NOW, rate_per_second=100)
    await sim.sleep(30)
    assert len(slots_of(sim)) == 5 and (await latest(sim)).state == "running"
    gate.set()
    await sim.sleep(10)
    assert slots_of(sim) == [NOW - n * HOUR for n in range(12, 0, -1)]
    assert (await latest(sim)).state == "done"


@on_simulated_host()
async def test_it_is_stopped_and_gone_on_with_by_another(sim: SimulatedHost) -> None:
    await hourly(sim)
    one = await sim.jobs.schedules.backfill("h", NOW - 20 * HOUR, NOW, rate_per_second=2)
    await sim.sleep(3.5)
    assert await sim.jobs.schedules.backfill_stop("h", one.backfill_id) is True
    assert await sim.jobs.schedules.backfill_stop("h", one.backfill_id) is False
    assert await sim.jobs.schedules.backfill_stop("h", "nobody") is False
    await sim.sleep(10)
    assert len(slots_of(sim)) == 8 and (await latest(sim)).state == "stopped"
    two = await sim.jobs.schedules.backfill("h", NOW - 20 * HOUR, NOW, rate_per_second=50)
    assert (two.matched, two.left_out) == (12, 8)
    await sim.sleep(10)
    assert slots_of(sim) == [NOW - n * HOUR for n in range(20, 0, -1)]


@on_simulated_host()
async def test_it_ends_with_its_schedule_and_when_the_rule_is_another(sim: SimulatedHost) -> None:
    await hourly(sim)
    await sim.jobs.schedules.backfill("h", NOW - 20 * HOUR, NOW, rate_per_second=2)
    await sim.sleep(1.5)
    await sim.jobs.schedules.put("h", "work:run", cron="30 * * * *", overlap="allow")
    await sim.sleep(10)
    stopped = await latest(sim)
    assert stopped.state == "stopped" and "another rule" in str(stopped.error) and stopped.started == 4
    begun = await sim.jobs.schedules.backfill("h", NOW - 20 * HOUR, NOW, rate_per_second=2)
    assert begun.matched == 20  # none of its slots is one of the other rule
    await sim.sleep(1.5)
    await sim.jobs.schedules.delete("h")
    await sim.sleep(20)
    stopped = await latest(sim)
    assert stopped.state == "stopped" and "deleted" in str(stopped.error)
    assert len(slots_of(sim)) == 8
    await sim.sleep(31 * 86_400)
    assert await sim.jobs.schedules.backfills("h") == []  # it goes with the history


@on_simulated_host()
async def test_a_run_expires_by_when_it_was_started_and_says_its_slot(sim: SimulatedHost) -> None:
    await hourly(sim, expires_after=60)
    await sim.jobs.schedules.backfill("h", NOW - 2 * HOUR, NOW)
    await sim.sleep(1)
    assert slots_of(sim) == [NOW - 2 * HOUR, NOW - HOUR]
    assert {one.body["scheduledFor"] for one in sim.deliveries} == {NOW}
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("h", "work:run", cron="0 * * * *", overlap="allow", pool="p", expires_after=60)
    await sim.jobs.schedules.backfill("h", NOW - 4 * HOUR, NOW)
    await sim.sleep(120)
    await sim.jobs.set_pool("p", paused=False, max_concurrency=9)
    assert len(slots_of(sim)) == 2
    again = await sim.jobs.schedules.backfill("h", NOW - 4 * HOUR, NOW)
    assert again.matched == 2  # they have expired, and never ran
    await sim.sleep(5)
    assert sorted(slots_of(sim)) == [NOW - n * HOUR for n in range(4, 0, -1)]


@on_simulated_host()
async def test_what_cannot_be_is_refused_in_words(sim: SimulatedHost) -> None:
    schedules = sim.jobs.schedules
    with pytest.raises(NotFoundError, match="there is no schedule 'h'"):
        await schedules.backfill("h", NOW - DAY, NOW)
    await hourly(sim)
    for said, start, end, options in (
        ("end .* must be after start", NOW, NOW, {}),
        ("rate_per_second must be", NOW - DAY, NOW, {"rate_per_second": 0}),
        ("at most 100,000 are run", NOW - 20 * 366 * DAY, NOW, {}),
        ("start", "yesterday", NOW, {}),
    ):
        with pytest.raises(InvalidInputError, match=said):
            await schedules.backfill("h", start, end, **options)  # type: ignore[arg-type]
    for n in range(20):
        await schedules.backfill("h", NOW - (n + 2) * DAY, NOW - n * DAY, rate_per_second=1)
    with pytest.raises(ConflictError, match="20 backfills"):
        await schedules.backfill("h", NOW - 50 * DAY, NOW)
    (entry, *_) = (await sim.jobs.audit(action="schedules.backfill")).actions
    assert entry.about == "h" and entry.given["ratePerSecond"] == 1
