"""Clocks that were days ahead and are set back: what had passed stays in the record, what had not comes again."""

from __future__ import annotations

import asyncio

from tests.actors.scheduler.recurring.slots import DAY, HOUR, MINUTE, START, accounted, occurrences, slots_of
from tests.actors.scheduler.stage import Stage, staged
from tocsin.actors.scheduler.model.rows import decode
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, cursor_key, slot_key


def cursor_of(stage: Stage, name: str) -> CursorRow:
    value = stage.disk.maps["scheduler/t"].get(cursor_key(name))
    assert value is not None
    return decode(CursorRow, b"", value)


@staged()
async def test_a_run_of_slots_is_cut_at_the_clock_whatever_rule_came_after_it(stage: Stage) -> None:
    """Of 150 minutes that had passed before an edit, one was left when the new rule was asked."""
    await stage.jobs.schedules.put("x", "work:run", cron="* * * * *", paused=True)
    await stage.sleep(150 * 60 + 30)
    stage.clock.step(2 * DAY)
    await stage.jobs.schedules.put("x", "work:run", at=stage.now + 15_000, paused=True)
    stage.clock.step(-2 * DAY)
    await stage.jobs.schedules.put("another", "work:run", every=3_600)
    await stage.sleep(1)
    [run] = await occurrences(stage, "x")

    assert (run.slot, run.reason, run.count) == (START + MINUTE, "paused", None), "of the old rule nothing is counted"
    assert START + 150 * MINUTE <= (run.until or 0) <= stage.now


@staged()
async def test_a_run_that_began_with_the_slot_of_this_instant_is_one_slot(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="0 0 * * *", paused=True)
    first = START // DAY * DAY + DAY
    await stage.sleep((first - START) / 1000 - 60)
    stage.clock.step(3 * DAY)
    await stage.jobs.schedules.put("x", "work:run", every=3 * 86_400, paused=True)
    stage.clock.step(first - stage.now)
    await stage.jobs.schedules.put("another", "work:run", every=3_600)
    for _ in range(100):
        await asyncio.sleep(0)
    [one] = await occurrences(stage, "x")

    assert (one.slot, one.until) == (first, None) and accounted([one]) == {"skipped": 1}


@staged()
async def test_a_run_is_cut_though_a_slot_inside_it_has_a_row_of_its_own(stage: Stage) -> None:
    """The clock was ahead twice: first a slot fired there, then all around it passed."""
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", overlap="allow")
    stage.clock.step(3 * DAY)
    await stage.sleep(3_700)
    ahead = set(slots_of(stage.deliveries))
    stage.clock.step(-3 * DAY)
    await stage.sleep(61)
    await stage.jobs.schedules.pause("x")
    stage.clock.step(6 * DAY)
    await stage.jobs.schedules.resume("x")
    await stage.sleep(61)
    stage.clock.step(-5 * DAY // 2)
    set_back_to = stage.now
    await stage.sleep(4 * 3_600)
    found = await occurrences(stage, "x")
    came = [one.slot for one in found if one.state == "fired" and one.slot > set_back_to]

    assert max(ahead) < set_back_to and len(came) == 4, "the story is not told"
    assert [one for one in found if (one.until or 0) > set_back_to + MINUTE] == []


@staged()
async def test_what_a_pause_had_passed_is_no_more_than_had_come(stage: Stage) -> None:
    """It was resumed while the clock was two days ahead, and the host died before it looked."""
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", paused=True)
    stage.clock.step(2 * DAY)
    await stage.jobs.schedules.resume("x")
    await stage.crash()
    assert (cursor_of(stage, "x").skip_to or 0) >= START + 2 * DAY, "the story is not told"
    stage.clock.step(-2 * DAY)
    await stage.open()
    await stage.sleep(3 * 3_600 + 60)

    assert slots_of(stage.deliveries) == [START + HOUR, START + 2 * HOUR, START + 3 * HOUR]


@staged()
async def test_a_row_that_cannot_be_read_is_one_fewer_also_when_a_clock_is_set_back(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *")
    await stage.sleep(3 * 3_600 + 60)
    stage.clock.step(3 * DAY)
    await stage.sleep(61)
    key = slot_key("x", START + 2 * HOUR)
    stage.disk.maps["scheduler/t"].apply({key: b"no row"})
    stage.clock.step(-3 * DAY)
    await stage.sleep(61)

    assert cursor_of(stage, "x").kept == len(await occurrences(stage, "x"))
    stage.disk.maps["scheduler/t"].apply({b"bad/" + key: None})


# ---- Made again ----------------------------------------------------------------------------------


@staged()
async def test_a_moment_that_lies_within_what_another_schedule_passed_comes_once(stage: Stage) -> None:
    """A run stands for slots of its own rule; the moment is none of them."""
    schedules = stage.jobs.schedules
    await schedules.put("x", "work:run", cron="0 * * * *", paused=True)
    await stage.sleep(4 * 3_600)
    await schedules.delete("x")
    moment = START + 90 * MINUTE
    for _ in range(2):
        await schedules.put("x", "work:run", at=moment)
        await stage.sleep(5)
        await schedules.delete("x")
    run, one = await occurrences(stage, "x")

    assert (run.state, run.count, one.state, one.slot) == ("skipped", 4, "fired", moment)
    assert slots_of(stage.deliveries) == [moment]
