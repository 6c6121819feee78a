"""Clocks that were days ahead and are set back: what had passed stays in the record, what had not comes again."""

from __future__ import annotations

import asyncio

from tests.actors.scheduler.recurring.slots import DAY, HOUR, MINUTE, START, accounted, cursor_of, occurrences, slots_of
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.model.schedule_rows import slot_key


@on_simulated_host()
async def test_a_run_of_slots_is_cut_at_the_clock_whatever_rule_came_after_it(sim: SimulatedHost) -> None:
    """Of 150 minutes that had passed before an edit, one was left when the new rule was asked."""
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *", paused=True)
    await sim.sleep(150 * 60 + 30)
    sim.clock.step(2 * DAY)
    await sim.jobs.schedules.put("x", "work:run", at=sim.now + 15_000, paused=True)
    sim.clock.step(-2 * DAY)
    await sim.jobs.schedules.put("another", "work:run", every=3_600)
    await sim.sleep(1)
    [run] = await occurrences(sim, "x")

    assert (run.slot, run.reason, run.count) == (START + MINUTE, "paused", None), "of the old rule nothing is counted"
    assert START + 150 * MINUTE <= (run.until or 0) <= sim.now


@on_simulated_host()
async def test_a_run_that_began_with_the_slot_of_this_instant_is_one_slot(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", cron="0 0 * * *", paused=True)
    first = START // DAY * DAY + DAY
    await sim.sleep((first - START) / 1000 - 60)
    sim.clock.step(3 * DAY)
    await sim.jobs.schedules.put("x", "work:run", every=3 * 86_400, paused=True)
    sim.clock.step(first - sim.now)
    await sim.jobs.schedules.put("another", "work:run", every=3_600)
    for _ in range(100):
        await asyncio.sleep(0)
    [one] = await occurrences(sim, "x")

    assert (one.slot, one.until) == (first, None) and accounted([one]) == {"skipped": 1}


@on_simulated_host()
async def test_a_run_is_cut_though_a_slot_inside_it_has_a_row_of_its_own(sim: SimulatedHost) -> None:
    """The clock was ahead twice: first a slot fired there, then all around it passed."""
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", overlap="allow")
    sim.clock.step(3 * DAY)
    await sim.sleep(3_700)
    ahead = set(slots_of(sim.deliveries))
    sim.clock.step(-3 * DAY)
    await sim.sleep(61)
    await sim.jobs.schedules.pause("x")
    sim.clock.step(6 * DAY)
    await sim.jobs.schedules.resume("x")
    await sim.sleep(61)
    sim.clock.step(-5 * DAY // 2)
    set_back_to = sim.now
    await sim.sleep(4 * 3_600)
    found = await occurrences(sim, "x")
    came = [one.slot for one in found if one.state == "fired" and one.slot > set_back_to]

    assert max(ahead) < set_back_to and len(came) == 4, "the story is not told"
    assert [one for one in found if (one.until or 0) > set_back_to + MINUTE] == []


@on_simulated_host()
async def test_what_a_pause_had_passed_is_no_more_than_had_come(sim: SimulatedHost) -> None:
    """It was resumed while the clock was two days ahead, and the host died before it looked."""
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", paused=True)
    sim.clock.step(2 * DAY)
    await sim.jobs.schedules.resume("x")
    await sim.crash()
    assert (cursor_of(sim, "x").skip_to or 0) >= START + 2 * DAY, "the story is not told"
    sim.clock.step(-2 * DAY)
    await sim.open()
    await sim.sleep(3 * 3_600 + 60)

    assert slots_of(sim.deliveries) == [START + HOUR, START + 2 * HOUR, START + 3 * HOUR]


@on_simulated_host()
async def test_a_row_that_cannot_be_read_is_one_fewer_also_when_a_clock_is_set_back(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *")
    await sim.sleep(3 * 3_600 + 60)
    sim.clock.step(3 * DAY)
    await sim.sleep(61)
    key = slot_key("x", START + 2 * HOUR)
    sim.disk.maps["scheduler/t"].apply({key: b"no row"})
    sim.clock.step(-3 * DAY)
    await sim.sleep(61)

    assert cursor_of(sim, "x").kept == len(await occurrences(sim, "x"))
    sim.disk.maps["scheduler/t"].apply({b"bad/" + key: None})


# ---- Made again ----------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_moment_that_lies_within_what_another_schedule_passed_comes_once(sim: SimulatedHost) -> None:
    """A run stands for slots of its own rule; the moment is none of them."""
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", cron="0 * * * *", paused=True)
    await sim.sleep(4 * 3_600)
    await schedules.delete("x")
    moment = START + 90 * MINUTE
    for _ in range(2):
        await schedules.put("x", "work:run", at=moment)
        await sim.sleep(5)
        await schedules.delete("x")
    run, one = await occurrences(sim, "x")

    assert (run.state, run.count, one.state, one.slot) == ("skipped", 4, "fired", moment)
    assert slots_of(sim.deliveries) == [moment]
