"""Clocks that step or were wrong: each slot once, none forgotten, and nothing waits for a lifetime."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.actors.scheduler.recurring.slots import DAY, HOUR, MINUTE, START, accounted, cursor_of, occurrences, slots_of
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.dispatch.testing import Delivery

CENTURY = 72 * 366 * DAY


def recurring(sim: SimulatedHost) -> list[Delivery]:
    return [one for one in sim.deliveries if "schedule" in one.body]


# ---- Steps ---------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_clock_that_steps_back_fires_nothing_twice_and_delays_nothing_new(sim: SimulatedHost) -> None:
    """An hour back while a job is 10 s away."""
    await sim.jobs.schedules.put("x", "work:run", every=60, overlap="allow")
    await sim.sleep(605)
    sim.clock.step(-HOUR)
    due = sim.now + 10_000
    await sim.jobs.run_at(due, "work:other", id="other")
    await sim.sleep(12)
    assert 0 <= sim.times("other")[0] + START - due <= 1_000
    await sim.sleep(3600 + 120)

    assert len(recurring(sim)) == len(set(slots_of(recurring(sim)))) == 12


@pytest.mark.parametrize("misfire", ["skip", "one", "all"])
def test_a_rule_of_every_second_runs_within_two_seconds_of_a_start(misfire: str) -> None:
    """72 hours down."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put("x", "work:run", every=1, misfire=misfire, overlap="allow")
        await sim.close()
        await sim.sleep(72 * 3_600)
        opened = sim.now
        await sim.open()
        await sim.sleep(10)
        first = min(at for at, _ in sim.arrivals) + START
        assert first - opened <= 2_000
        assert max(slots_of(sim.deliveries)) >= sim.now - 2_000

    run()


@on_simulated_host()
async def test_after_a_step_forward_and_back_slots_go_on_where_the_clock_had_been(sim: SimulatedHost) -> None:
    """What it had come to is used up, so a schedule is silent for as long as the step was, and no longer."""
    await sim.jobs.schedules.put("x", "work:run", every=1, overlap="allow")
    await sim.sleep(5)
    sim.clock.step(2 * HOUR)
    await sim.sleep(60.5)  # between two slots: at an instant of one, either may come first
    used = max(slots_of(sim.deliveries))
    sim.clock.step(-2 * HOUR)
    before = len(sim.deliveries)
    await sim.sleep((used - sim.now) / 1000)
    assert len(sim.deliveries) == before
    await sim.sleep(3)

    assert slots_of(sim.deliveries)[before] == used + 1_000


@on_simulated_host()
async def test_a_clock_that_steps_forward_misses_slots_and_says_so(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", every=60, misfire="skip")
    await sim.sleep(61)
    sim.clock.step(HOUR)
    await sim.sleep(180)
    first, run, *rest = await occurrences(sim, "x")

    assert (first.state, run.state, run.reason) == ("fired", "skipped", "misfire")
    assert 58 <= (run.count or 0) <= 60
    assert len(recurring(sim)) == len(set(slots_of(recurring(sim)))) == 1 + sum(one.state == "fired" for one in rest)


@on_simulated_host()
async def test_an_edit_while_the_clock_is_behind_uses_no_slot_twice(sim: SimulatedHost) -> None:
    """Also slots that have no row of their own: those that were folded into another one."""
    schedules = sim.jobs.schedules
    await schedules.put("x", "work:run", cron="*/5 * * * *", overlap="allow")
    await sim.close()
    await sim.sleep(1800)
    await sim.open()
    await sim.sleep(60)
    used = sim.now
    sim.clock.step(-HOUR)
    await sim.jobs.schedules.put("x", "work:run", cron="*/10 * * * *", overlap="allow")
    await sim.jobs.schedules.pause("x")
    await sim.jobs.schedules.resume("x")
    await sim.jobs.schedules.delete("x")
    await sim.jobs.schedules.put("x", "work:run", cron="*/10 * * * *", overlap="allow")
    await sim.sleep(2 * 3600)
    slots_fired = slots_of(recurring(sim))

    assert len(slots_fired) == len(set(slots_fired))
    assert [slot for slot in slots_fired if slot <= used] == slots_fired[:1], "the rest of them was accounted for"
    assert len(slots_fired) >= 5


@pytest.mark.parametrize("rule", [{"cron": "0 * * * *"}, {"every": 3600}])
@pytest.mark.parametrize("fired", [True, False])
def test_a_clock_that_was_a_lifetime_ahead_is_left_behind_though_nothing_else_happens(
    rule: dict[str, object], fired: bool
) -> None:
    """All alarms are in 2098. Also when no slot had come there."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        sim.clock.step(CENTURY)
        await sim.jobs.schedules.put("x", "work:run", **rule)  # type: ignore[arg-type]
        await sim.sleep(3700 if fired else 60)
        before = len(sim.deliveries)
        sim.clock.step(-CENTURY)
        await sim.sleep(2 * 3600 + 120)
        assert before == fired and len(sim.deliveries) - before == 2
        assert all(slot < START + DAY for slot in slots_of(sim.deliveries)[before:])

    run()


@pytest.mark.parametrize("crashed", [True, False])
def test_a_host_that_starts_with_a_clock_behind_its_store_wakes_its_schedules(crashed: bool) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        sim.clock.step(CENTURY)
        await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *")
        await sim.jobs.schedules.put("paused", "work:run", cron="0 * * * *", paused=True)
        await sim.sleep(3601)
        await (sim.crash() if crashed else sim.close())
        sim.clock.step(-CENTURY)
        await sim.open()
        await sim.sleep(2 * 3600)
        assert len(sim.deliveries) == 3
        await sim.jobs.schedules.resume("paused")
        await sim.sleep(3600)
        assert [one.body["schedule"]["name"] for one in sim.deliveries].count("paused") == 1

    run()


@on_simulated_host()
async def test_after_two_days_back_no_slot_fires_twice_and_none_of_the_future_stays_skipped(sim: SimulatedHost) -> None:
    """The clock was two days ahead: what was skipped there had not come; what was fired there was."""
    await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire="all", overlap="allow", catch_up_limit=3)
    await sim.sleep(90 * 60)
    sim.clock.step(2 * DAY)
    await sim.sleep(90 * 60)
    ahead = set(slots_of(sim.deliveries))
    sim.clock.step(-2 * DAY)
    await sim.sleep(60)
    set_back_to = sim.now
    await sim.sleep(3 * 86_400)
    fired = slots_of(sim.deliveries)

    assert len(fired) == len(set(fired)) and ahead <= set(fired)
    first, run, *rest = await occurrences(sim, "x")
    assert (first.slot, run.reason) == (START + HOUR, "catch_up") and (run.until or 0) <= set_back_to
    assert sorted(fired)[1:] == list(range(START + 4 * HOUR, max(fired) + 1, HOUR)), "what was skipped there came"
    assert set(accounted(rest)) == {"fired"}


@on_simulated_host()
async def test_a_backlog_is_interrupted_by_a_clock_that_was_far_ahead(sim: SimulatedHost) -> None:
    await through_a_lifetime(sim)
    fired = slots_of(recurring(sim))

    assert sum(slot < START + HOUR for slot in fired) >= 8 and len(fired) == len(set(fired))


async def through_a_lifetime(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire="all", overlap="allow")
    sim.clock.step(CENTURY)
    await sim.sleep(60.1)  # the step is noticed, and of the backlog of a lifetime the newest fire
    sim.clock.step(-CENTURY)
    await sim.sleep(600)


@on_simulated_host()
async def test_an_alarm_that_backs_off_is_not_muted_by_a_step_back(sim: SimulatedHost) -> None:
    """It failed once and waits 2 s; then the clock goes back by an hour."""
    await sim.jobs.schedules.put("x", "work:run", every=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tocsin.actors.scheduler.actor.scheduler_actor.SchedulerActor.alarm", broken)
        await sim.sleep(60.5)
        assert sim.host.runtime.alarms.failing
    sim.clock.step(-HOUR)
    await sim.jobs.run_after(30, "work:other", id="other")
    await sim.sleep(120)

    assert sim.times("other")


async def broken(*_: object, **__: object) -> None:
    raise RuntimeError("as the test wanted")


@on_simulated_host()
async def test_a_backlog_goes_on_though_the_clock_steps_back(sim: SimulatedHost) -> None:
    """What is left for the next turn is no matter of the clock."""
    await sim.jobs.schedules.put(
        "x", "work:run", every=1, misfire="all", overlap="allow", catch_up_limit=None, queue="q"
    )
    await sim.close()
    await sim.sleep(3_600)
    await sim.open()
    for _ in range(200):
        await asyncio.sleep(0)
        if cursor_of(sim, "x").last > START:
            break
    before = cursor_of(sim, "x").last
    sim.clock.step(-30 * MINUTE)
    await sim.sleep(120)

    assert START < before < START + 1_000_000, "the story is not told"
    assert cursor_of(sim, "x").last >= START + 1_800_000


def test_a_step_back_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        sim.clock.step(CENTURY)
        await sim.jobs.schedules.put("x", "work:run", every=60)
        await sim.sleep(61)
        sim.clock.step(-CENTURY)
        await sim.sleep(600)

    with caplog.at_level(logging.WARNING):
        run()
    said = [record.getMessage() for record in caplog.records]

    assert sum("was stepped back" in line for line in said) == 1
    assert sum("behind the latest slot" in line for line in said) == 1
