"""A run that catches up stands for the slots it says, or they do not say that they were coalesced."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.recurring.slots import (
    HOUR,
    MINUTE,
    START,
    all_occurrences,
    cursor_of,
    occurrences,
    slots_of,
)
from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.model.schedule_records import Occurrence
from tocsin.actors.scheduler.model.schedule_rows import slot_key
from tocsin.dispatch.transport import Answer

Ends = list[tuple[int, int, str, str | None]]
RAN = ("fired", "dead", "cancelled", "expired")


def hours(found: list[Occurrence]) -> Ends:
    """From, to, and how they ended."""
    return [
        ((one.slot - START) // HOUR, ((one.until or one.slot) - START) // HOUR, one.state, one.reason) for one in found
    ]


def unaccounted(found: list[Occurrence], start: int, every: int, now: int) -> list[str]:
    """Slots that ended not at all, or twice, or as coalesced without a run that stands for them."""
    wrong: list[str] = []
    ran = [one for one in found if one.job_id is not None and one.state in RAN and not one.triggered]
    ended: dict[int, int] = {}
    for one in found:
        inside = [] if one.triggered else list(range(one.slot, (one.until or one.slot) + 1, every))
        if one.until is not None and one.count is not None and len(inside) != one.count:
            wrong.append(f"{one.slot - START}: {one.count} are {len(inside)}")
        for slot in inside:
            ended[slot] = ended.get(slot, 0) + 1
            stands = any((run.first_slot or run.slot) <= slot < run.slot for run in ran)
            if one.state == "coalesced" and not stands:
                wrong.append(f"{slot - START}: nobody stands for it")
        if one.job_id is not None and one.first_slot is not None:
            stood = [other for other in found if other.state == "coalesced" and one.first_slot <= other.slot < one.slot]
            if one.coalesced != sum(other.count or 1 for other in stood):
                wrong.append(f"{one.slot - START} says {one.coalesced}")
        if one.state == "queued":
            ended |= {slot: 1 for slot in range(one.first_slot or one.slot, one.slot, every) if slot not in ended}
    due = range(start + every, now + 1, every)
    wrong += [f"{slot - START} ended {ended.get(slot, 0)} times" for slot in due if ended.get(slot, 0) != 1]
    return wrong


async def one_lives_and_five_hours_pass(sim: SimulatedHost, **options: Any) -> None:
    """The first run is live until its pool is opened."""
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=3_600, pool="p", **options)
    await sim.sleep(3_601)
    sim.clock.step(5 * HOUR)
    await sim.sleep(61)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_catch_up_that_meets_a_live_run_starts_when_that_ends(overlap: str) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await one_lives_and_five_hours_pass(sim, overlap=overlap)
        assert hours(await occurrences(sim, "x")) == [(1, 1, "fired", None), (6, 6, "queued", None)]
        record = await sim.jobs.schedules.get("x")
        assert record is not None and record.held_back == START + 6 * HOUR
        await sim.jobs.set_pool("p", paused=False)
        await sim.sleep(2)
        first, run, caught_up = await occurrences(sim, "x")
        assert hours([first, run, caught_up]) == [
            (1, 1, "fired", None), (2, 5, "coalesced", None), (6, 6, "fired", None),
        ]  # fmt: skip
        assert run.count == 4
        assert [one.body["schedule"] for one in sim.deliveries] == [
            {"name": "x", "slot": START + HOUR},
            {"name": "x", "slot": START + 6 * HOUR, "firstSlot": START + 2 * HOUR, "coalesced": 4},
        ]

    run()


@on_simulated_host()
async def test_a_single_slot_that_was_missed_is_held_back_too(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=3_600, pool="p", grace=60)
    await sim.sleep(3_601)
    sim.clock.step(HOUR + 2 * MINUTE)
    await sim.sleep(61)
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(2)

    assert slots_of(sim.deliveries) == [START + HOUR, START + 2 * HOUR]


@on_simulated_host()
async def test_a_slot_on_time_that_meets_a_live_run_is_skipped_as_before(sim: SimulatedHost) -> None:
    """Also several of them: a loop that stood still for some seconds misses nothing within the grace."""
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=10, pool="p")
    await sim.sleep(25)
    sim.clock.step(30_000)
    await sim.sleep(70)
    fired, skipped = await occurrences(sim, "x")

    assert (fired.state, skipped.reason, skipped.state) == ("fired", "overlap", "skipped")
    assert unaccounted([fired, skipped], START, 10_000, (skipped.until or 0)) == []


@on_simulated_host()
async def test_what_comes_while_a_catch_up_waits_is_added_to_it(sim: SimulatedHost) -> None:
    """Another outage, and slots on time: one run stands for all of them."""
    await one_lives_and_five_hours_pass(sim)
    await sim.sleep(3 * 3_600)
    sim.clock.step(4 * HOUR)
    await sim.sleep(61)
    assert hours(await occurrences(sim, "x"))[1:] == [(13, 13, "queued", None)]
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(2)
    found = await occurrences(sim, "x")

    assert hours(found)[1:] == [(2, 12, "coalesced", None), (13, 13, "fired", None)]
    assert sim.deliveries[-1].body["schedule"]["coalesced"] == 11 and cursor_of(sim, "x").stands is None


@on_simulated_host()
async def test_a_slot_that_waited_by_its_policy_is_added_to_a_catch_up(sim: SimulatedHost) -> None:
    """`queue` holds the second back and skips the next; then come those of an outage."""
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.schedules.put("x", "work:run", every=3_600, pool="p", overlap="queue")
    await sim.sleep(3 * 3_600 + 1)
    before = hours(await occurrences(sim, "x"))
    sim.clock.step(4 * HOUR)
    await sim.sleep(61)
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(2)
    found = await occurrences(sim, "x")

    assert before == [(1, 1, "fired", None), (2, 2, "queued", None), (3, 3, "skipped", "overlap")]
    assert hours(found) == [
        (1, 1, "fired", None), (2, 2, "coalesced", None), (3, 3, "skipped", "overlap"), (4, 6, "coalesced", None),
        (7, 7, "fired", None),
    ]  # fmt: skip
    assert sim.deliveries[-1].body["schedule"] == {
        "name": "x", "slot": START + 7 * HOUR, "firstSlot": START + 2 * HOUR, "coalesced": 4,
    }  # fmt: skip
    assert unaccounted(found, START, HOUR, sim.now) == []


# ---- What ends it --------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(
    ("how", "states"),
    [
        ("pause", {"paused"}),
        ("delete", {"deleted"}),
        ("cancel", {"coalesced"}),
        ("dead", {"coalesced"}),
        ("again", {"coalesced"}),
    ],
)
def test_however_the_wait_ends_no_slot_says_coalesced_without_a_run(how: str, states: set[str], crash: bool) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        sim.reply = lambda one: Answer(410, {}, b"") if how == "dead" and len(sim.deliveries) == 1 else OK
        await one_lives_and_five_hours_pass(sim, overlap="skip")
        [first, _] = await occurrences(sim, "x")
        if crash:
            await sim.crash()
            await sim.open()
        if how in ("pause", "again"):
            await sim.jobs.schedules.pause("x")
        if how == "again":
            await sim.jobs.schedules.resume("x")
        if how == "delete":
            await sim.jobs.schedules.delete("x")
        if how == "cancel":
            await sim.jobs.cancel(first.job_id or "")
        await sim.jobs.set_pool("p", paused=False)
        await sim.sleep(2)
        found = await occurrences(sim, "x")
        middle = [one for one in found if START + HOUR < one.slot < START + 6 * HOUR]
        assert {one.reason or one.state for one in middle} == states
        assert unaccounted(found, START, HOUR, sim.now) == []

    run()


@on_simulated_host()
async def test_a_catch_up_that_expires_while_it_waits_takes_those_along(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(3_000)
    await sim.jobs.schedules.put("x", "work:run", every=3_600, expires_after="10m", timeout_ms=3_600_000)
    await sim.sleep(3_601)
    sim.clock.step(5 * HOUR)
    await sim.sleep(15 * 60)
    first, older, newest = await occurrences(sim, "x")

    assert hours([older, newest]) == [(2, 5, "expired", None), (6, 6, "expired", None)]
    assert (older.count, newest.first_slot, newest.coalesced) == (4, None, None)
    assert first.live and slots_of(sim.deliveries) == [first.slot]


@on_simulated_host(max_jobs=1)
async def test_without_room_for_the_run_they_are_not_coalesced(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1d", "other:run")
    await sim.jobs.schedules.put("x", "work:run", every=3_600)
    sim.clock.step(5 * HOUR)
    await sim.sleep(61)
    [run] = await occurrences(sim, "x")

    assert (run.state, run.reason, run.count) == ("skipped", "quota", 5)


@on_simulated_host()
async def test_a_taken_id_is_told_of_all_it_was_to_stand_for(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=3_600)
    await sim.sleep(3_601)
    [first] = await occurrences(sim, "x")
    assert first.job_id is not None
    taken = first.job_id.replace(f"{first.slot:015d}", f"{first.slot + 4 * HOUR:015d}")
    await sim.jobs.run_after("1d", "other:run", id=taken)
    sim.clock.step(4 * HOUR)
    await sim.sleep(61)
    found = await occurrences(sim, "x")

    assert hours(found)[1:] == [(2, 4, "skipped", "id_taken"), (5, 5, "skipped", "id_taken")]


@on_simulated_host()
async def test_a_catch_up_survives_a_clock_that_was_days_ahead(sim: SimulatedHost) -> None:
    """What it would have stood for there has not come after all."""
    await one_lives_and_five_hours_pass(sim)
    sim.clock.step(72 * HOUR)
    await sim.sleep(61)
    sim.clock.step(-72 * HOUR)
    await sim.sleep(61)
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(8 * 3_600)
    found = [one for one in await occurrences(sim, "x") if one.slot <= sim.now]

    fired = slots_of(sim.deliveries)
    assert len(fired) == len(set(fired)) and cursor_of(sim, "x").stands is None
    assert [one for one in found if one.state == "coalesced" and (one.until or 0) > START + 7 * HOUR] == []


@on_simulated_host()
async def test_if_the_row_of_the_run_is_lost_those_say_so(sim: SimulatedHost) -> None:
    await one_lives_and_five_hours_pass(sim)
    key = slot_key("x", START + 6 * HOUR)
    sim.disk.maps["scheduler/t"].apply({key: b"no row"})
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(2)
    found = await occurrences(sim, "x")

    assert (2, 5, "skipped", "overlap") in hours(found) and cursor_of(sim, "x").stands is None
    sim.disk.maps["scheduler/t"].apply({b"bad/" + key: None})


@on_simulated_host()
async def test_slots_that_one_look_adds_to_a_catch_up_leave_no_count_behind(sim: SimulatedHost) -> None:
    """Also where the schedule was edited meanwhile, so that a look decides several of them."""
    await one_lives_and_five_hours_pass(sim)
    await sim.jobs.schedules.put("x", "work:run", every=3_600, pool="p", misfire="all")
    await sim.crash()
    await sim.sleep(5 * 3_600)
    await sim.open()
    await sim.sleep(61)
    assert hours(await occurrences(sim, "x")) == [(1, 1, "fired", None), (11, 11, "queued", None)]
    assert await sim.faults() == []
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(2)

    assert unaccounted(await occurrences(sim, "x"), START, HOUR, sim.now) == []


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_a_slot_that_is_held_back_starts_at_once_when_overlaps_are_allowed(overlap: str) -> None:
    """Each run goes on into the next: until nothing is live it would wait for ever, and later slots would pass it."""

    @on_simulated_host(timeout_ms=600_000)
    async def run(sim: SimulatedHost) -> None:
        sim.reply = lambda one: after(500)
        await sim.jobs.schedules.put("x", "work:run", every=400, overlap=overlap, grace=0)
        await sim.sleep(401)
        sim.clock.step(5 * 400_000)
        await sim.sleep(61)
        record = await sim.jobs.schedules.get("x")
        assert record is not None and record.held_back == START + 6 * 400_000
        await sim.jobs.schedules.put("x", "work:run", every=400, overlap="allow", grace=0)
        await sim.sleep(2_000)
        slots = slots_of(sim.deliveries)
        assert slots == sorted(slots) and slots[:3] == [START + n * 400_000 for n in (1, 6, 7)]
        assert unaccounted(await occurrences(sim, "x"), START, 400_000, cursor_of(sim, "x").last) == []

    run()


# ---- Anything ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_slot_ends_once_and_coalesced_ones_have_a_run(seed: int) -> None:
    dice = Random(seed)

    @on_simulated_host(occurrences_kept=100_000)
    async def run(sim: SimulatedHost) -> None:
        every = dice.choice((10, 60, 600))
        sim.reply = lambda one: after(dice.random() * 3 * every, dice.choice((OK, OK, Answer(500, {}, b""))))
        await sim.jobs.schedules.put(
            "x", "work:run", every=every, overlap=dice.choice(("skip", "queue", "queue", "allow")),
            grace=dice.choice((0, 2, 60, 600)), expires_after=dice.choice((None, None, 5 * every)),
        )  # fmt: skip
        start = sim.now
        for _ in range(12):
            await sim.sleep(dice.random() * 4 * every)
            match dice.randrange(8):
                case 0 | 1:
                    sim.clock.step(int(dice.random() * 20 * every * 1000))
                case 2:
                    await sim.crash()
                    await sim.sleep(dice.random() * 10 * every)
                    await sim.open(occurrences_kept=100_000)
                case 3:
                    await sim.jobs.schedules.pause("x")
                case 4 | 5:
                    await sim.jobs.schedules.resume("x")
                case 6:
                    await sim.jobs.schedules.trigger("x")
                case _:
                    live = [one.job_id for one in await occurrences(sim, "x") if one.live and one.job_id]
                    for job_id in live[:1]:
                        await sim.jobs.cancel(job_id)
        await sim.jobs.schedules.resume("x")
        await sim.sleep(7_200)
        cursor = cursor_of(sim, "x")
        assert cursor.queued is None or cursor.live
        assert unaccounted(await all_occurrences(sim), start, every * 1000, cursor.last) == []

    run()
