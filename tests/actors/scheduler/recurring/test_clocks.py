"""Clocks that step, stop or were wrong, zones that change, waits of years: each slot once, and none forgotten."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.scheduler.recurring.slots import DAY, HOUR, MINUTE, accounted, occurrences, slots_of
from tests.actors.scheduler.stage import Stage, staged
from tocsin.actors.cron.zones import database_version
from tocsin.actors.scheduler.recurring import recheck, slots
from tocsin.actors.scheduler.recurring.allowance import Allowance
from tocsin.actors.scheduler.recurring.rows import CursorRow, cursor_key
from tocsin.actors.scheduler.recurring.schedule import Schedule
from tocsin.actors.scheduler.rows import decode
from tocsin.actors.scheduler.turn import Turn
from tocsin.dispatch.testing import Delivery

CENTURY = 72 * 366 * DAY
START = 1_800_000_000_000


def recurring(stage: Stage) -> list[Delivery]:
    return [one for one in stage.deliveries if "schedule" in one.body]


def arrived(stage: Stage, delivery: Delivery) -> int:
    """When, on the wall clock."""
    return next(at for at, job in stage.arrivals if job == delivery.id) + START


# ---- Steps ---------------------------------------------------------------------------------------


@staged()
async def test_a_clock_that_steps_back_fires_nothing_twice_and_delays_nothing_new(stage: Stage) -> None:
    """Scenario K01: an hour back while a job is 10 s away."""
    await stage.jobs.schedules.put("x", "work:run", every=60, overlap="allow")
    await stage.sleep(605)
    stage.clock.step(-HOUR)
    due = stage.now + 10_000
    await stage.jobs.run_at(due, "work:other", id="other")
    await stage.sleep(12)
    assert 0 <= stage.times("other")[0] + START - due <= 1_000
    await stage.sleep(3600 + 120)

    assert len(recurring(stage)) == len(set(slots_of(recurring(stage)))) == 12


@staged()
async def test_a_clock_that_steps_forward_misses_slots_and_says_so(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", every=60, misfire="skip")
    await stage.sleep(61)
    stage.clock.step(HOUR)
    await stage.sleep(180)
    first, run, *rest = await occurrences(stage, "x")

    assert (first.state, run.state, run.reason) == ("fired", "skipped", "misfire")
    assert 58 <= (run.count or 0) <= 60
    assert (
        len(recurring(stage)) == len(set(slots_of(recurring(stage)))) == 1 + sum(one.state == "fired" for one in rest)
    )


@staged()
async def test_an_edit_while_the_clock_is_behind_uses_no_slot_twice(stage: Stage) -> None:
    """Also slots that have no row of their own: those that were folded into another one."""
    schedules = stage.jobs.schedules
    await schedules.put("x", "work:run", cron="*/5 * * * *", overlap="allow")
    await stage.close()
    await stage.sleep(1800)
    await stage.open()
    await stage.sleep(60)
    used = stage.now
    stage.clock.step(-HOUR)
    await stage.jobs.schedules.put("x", "work:run", cron="*/10 * * * *", overlap="allow")
    await stage.jobs.schedules.pause("x")
    await stage.jobs.schedules.resume("x")
    await stage.jobs.schedules.delete("x")
    await stage.jobs.schedules.put("x", "work:run", cron="*/10 * * * *", overlap="allow")
    await stage.sleep(2 * 3600)
    slots_fired = slots_of(recurring(stage))

    assert len(slots_fired) == len(set(slots_fired))
    assert [slot for slot in slots_fired if slot <= used] == slots_fired[:1], "the rest of them was accounted for"
    assert len(slots_fired) >= 5


@pytest.mark.parametrize("rule", [{"cron": "0 * * * *"}, {"every": 3600}])
@pytest.mark.parametrize("fired", [True, False])
def test_a_clock_that_was_a_lifetime_ahead_is_left_behind_though_nothing_else_happens(
    rule: dict[str, object], fired: bool
) -> None:
    """Scenario K04: all alarms are in 2098. Also when no slot had come there."""

    @staged()
    async def run(stage: Stage) -> None:
        stage.clock.step(CENTURY)
        await stage.jobs.schedules.put("x", "work:run", **rule)  # type: ignore[arg-type]
        await stage.sleep(3700 if fired else 60)
        before = len(stage.deliveries)
        stage.clock.step(-CENTURY)
        await stage.sleep(2 * 3600 + 120)
        assert before == fired and len(stage.deliveries) - before == 2
        assert all(slot < START + DAY for slot in slots_of(stage.deliveries)[before:])

    run()


@pytest.mark.parametrize("crashed", [True, False])
def test_a_host_that_starts_with_a_clock_behind_its_store_wakes_its_schedules(crashed: bool) -> None:
    @staged()
    async def run(stage: Stage) -> None:
        stage.clock.step(CENTURY)
        await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *")
        await stage.jobs.schedules.put("paused", "work:run", cron="0 * * * *", paused=True)
        await stage.sleep(3601)
        await (stage.crash() if crashed else stage.close())
        stage.clock.step(-CENTURY)
        await stage.open()
        await stage.sleep(2 * 3600)
        assert len(stage.deliveries) == 3
        await stage.jobs.schedules.resume("paused")
        await stage.sleep(3600)
        assert [one.body["schedule"]["name"] for one in stage.deliveries].count("paused") == 1

    run()


@staged()
async def test_after_two_days_back_no_slot_fires_twice_and_none_of_the_future_stays_skipped(stage: Stage) -> None:
    """The clock was two days ahead: what was skipped there had not come; what was fired there was."""
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", misfire="all", overlap="allow", catch_up_limit=3)
    await stage.sleep(90 * 60)
    stage.clock.step(2 * DAY)
    await stage.sleep(90 * 60)
    ahead = set(slots_of(stage.deliveries))
    stage.clock.step(-2 * DAY)
    await stage.sleep(3 * 86_400)
    fired = slots_of(stage.deliveries)

    assert len(fired) == len(set(fired)) and ahead <= set(fired)
    first, run, *rest = await occurrences(stage, "x")
    assert (first.slot, run.reason) == (START + HOUR, "catch_up") and (run.until or 0) <= START + 3 * HOUR
    assert sorted(fired)[1:] == list(range(START + 4 * HOUR, max(fired) + 1, HOUR)), "what was skipped there came"
    assert set(accounted(rest)) == {"fired"}


@staged()
async def test_a_backlog_is_interrupted_by_a_clock_that_was_far_ahead(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "COUNTED", 2_000)
        await through_a_lifetime(stage)
    fired = slots_of(recurring(stage))

    assert sum(slot < START + HOUR for slot in fired) >= 8 and len(fired) == len(set(fired))


async def through_a_lifetime(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire="all", overlap="allow")
    stage.clock.step(CENTURY)
    await stage.sleep(60.1)  # the step is noticed, and the backlog of a lifetime is being counted
    stage.clock.step(-CENTURY)
    await stage.sleep(600)


@staged()
async def test_an_alarm_that_backs_off_is_not_muted_by_a_step_back(stage: Stage) -> None:
    """It failed once and waits 2 s; then the clock goes back by an hour."""
    await stage.jobs.schedules.put("x", "work:run", every=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tocsin.actors.scheduler.scheduler.run_timers", broken)
        await stage.sleep(60.5)
        assert stage.host.runtime.alarms.failing
    stage.clock.step(-HOUR)
    await stage.jobs.run_after(30, "work:other", id="other")
    await stage.sleep(120)

    assert stage.times("other")


async def broken(*_: object, **__: object) -> None:
    raise RuntimeError("as the test wanted")


@staged()
async def test_a_backlog_goes_on_though_the_clock_steps_back(stage: Stage) -> None:
    """What is left for the next turn is no matter of the clock."""
    await stage.jobs.schedules.put("x", "work:run", every=1, misfire="all", overlap="allow", catch_up_limit=10)
    await stage.close()
    await stage.sleep(6 * 3600)
    await stage.open()
    for _ in range(200):
        await asyncio.sleep(0)
        if cursor_of(stage, "x").missed_from is not None:
            break
    counted = cursor_of(stage, "x").missed
    stage.clock.step(-HOUR)
    await stage.sleep(300)

    assert counted and cursor_of(stage, "x").missed_from is None and len(stage.deliveries) >= 10


def cursor_of(stage: Stage, name: str) -> CursorRow:
    value = stage.disk.maps["scheduler/t"].get(cursor_key(name))
    assert value is not None
    return decode(CursorRow, b"", value)


# ---- Stops ---------------------------------------------------------------------------------------


@staged()
async def test_a_machine_that_was_suspended_fires_within_a_minute(stage: Stage) -> None:
    """Scenario K03: wall +540 s, monotonic +0, in the middle of a wait of 600 s."""
    put = await stage.jobs.schedules.put("x", "work:run", every=600)
    await stage.sleep(30)
    stage.clock.step(540_000)
    await stage.sleep(120)

    [one] = stage.deliveries
    assert 0 <= arrived(stage, one) - (put.next_at or 0) <= 61_000


@staged()
async def test_a_night_of_suspend_is_one_fire(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="* * * * *")
    await stage.sleep(61)
    stage.clock.step(8 * HOUR)
    await stage.sleep(61)

    assert 2 <= len(stage.deliveries) <= 3
    assert [one.state for one in await occurrences(stage, "x")][:3] == ["fired", "coalesced", "fired"]


@staged(look_again_s=3_600, idle_after_s=86_400)
async def test_waits_of_years_end_in_time(stage: Stage) -> None:
    """Scenario T07: no timer of 32 bits."""
    due = stage.now + 400 * DAY
    yearly = await stage.jobs.schedules.put("yearly", "work:run", cron="0 0 1 1 *")
    await stage.jobs.run_at(due, "work:once", id="once")
    await stage.sleep(60 * 86_400)
    assert stage.deliveries == []
    await stage.sleep(341 * 86_400)

    assert [one.body["scheduledFor"] for one in stage.deliveries] == [yearly.preview[0], due]
    assert all(arrived(stage, one) - one.body["scheduledFor"] < 1_000 for one in stage.deliveries)


@staged()
async def test_who_waits_for_years_hardly_wakes(stage: Stage) -> None:
    """Scenario T07: fewer than two looks a minute, at the clock and nothing else."""
    await stage.jobs.schedules.put("yearly", "work:run", cron="0 0 1 1 *")
    await stage.sleep(3_600)
    before = stage.host.runtime.provider.stats()
    looks = 0
    tick = stage.host.runtime.alarms._watch_clock

    def counted(now: int) -> None:
        nonlocal looks
        looks += 1
        tick(now)

    stage.host.runtime.alarms._watch_clock = counted  # type: ignore[method-assign]
    await stage.sleep(86_400)

    assert looks < 2 * 24 * 60 and stage.host.runtime.provider.stats() == before


@staged()
async def test_every_minute_of_a_day_each_once_through_stalls_and_crashes(stage: Stage) -> None:
    """Scenario T15, and the must-show: exactly 1,440 jobs, one per slot."""
    start = stage.now
    await stage.jobs.schedules.put(
        "x", "work:run", cron="* * * * *", misfire="all", overlap="allow", catch_up_limit=None
    )
    await stall_and_crash(stage, start)
    due = [slot for slot in slots_of(stage.deliveries) if start < slot <= start + DAY]

    assert due.count(due[0]) == 1 and sorted(set(due)) == list(range(start + MINUTE, start + DAY + 1, MINUTE))
    ids = {one.webhook_id for one in stage.deliveries if start < one.body["schedule"]["slot"] <= start + DAY}
    assert len(ids) == 1_440


@staged(occurrences_kept=10_000)
async def test_every_minute_of_a_day_is_accounted_for_once_with_the_defaults(stage: Stage) -> None:
    start = stage.now
    await stage.jobs.schedules.put("x", "work:run", cron="* * * * *")
    await stall_and_crash(stage, start)
    seen: list[int] = []
    cursor: str | None = None
    while True:
        page = await stage.jobs.schedules.occurrences("x", limit=500, cursor=cursor)
        for one in page.occurrences:
            seen += range(one.slot, (one.until or one.slot) + 1, MINUTE)
            assert one.until is None or one.count == len(range(one.slot, one.until + 1, MINUTE))
        if not page.truncated:
            break
        cursor = page.cursor
    of_day = [slot for slot in seen if start < slot <= start + DAY]

    assert len(of_day) == 1_440 == len(set(of_day))


async def stall_and_crash(stage: Stage, start: int) -> None:
    """The loop stands still now and then, for up to 90 s; three times the host dies."""
    for n in range(3):
        while stage.now < start + (n + 1) * 6 * HOUR:
            await stage.sleep(stage.random.random() * 600)
            stall(stage, stage.random.random() * 90)
        await stage.crash()
        await stage.sleep(stage.random.random() * 90)
        await stage.open(occurrences_kept=10_000)
    await stage.sleep((start + DAY - stage.now) / 1000 + 420)


def stall(stage: Stage, seconds: float) -> None:
    """Nothing runs meanwhile: both clocks go on, and all timers are late."""
    asyncio.get_running_loop()._time += seconds  # type: ignore[attr-defined]


@staged()
async def test_a_wake_up_that_comes_early_fires_nothing_before_its_slot(stage: Stage) -> None:
    """Scenario T16: at each wake-up the clock shows 3 ms before the slot; a thousand times."""
    start = stage.now
    await stage.jobs.schedules.put("x", "work:run", every=1, overlap="allow")
    for n in range(1_000):
        stage.clock.step(-3)
        await stage.sleep(1)
        assert len(stage.deliveries) <= n + 1
    await stage.sleep(10)
    early = [one for one in stage.deliveries if arrived(stage, one) < one.body["schedule"]["slot"]]
    fired = slots_of(stage.deliveries)

    assert early == [] and fired == list(range(start + 1_000, max(fired) + 1, 1_000))


# ---- Jitter, deploys -----------------------------------------------------------------------------


@staged(lanes=64)
async def test_jitter_spreads_an_hour_and_stays_after_a_restart(stage: Stage) -> None:
    """Scenario T18: never before the slot, the same offset each time, and lateness counts from slot and offset."""
    await stage.jobs.schedules.register(
        "app", [(f"s{n}", {"path": "work:run", "cron": "0 * * * *", "jitter": 60}) for n in range(200)]
    )
    await stage.sleep(3661)
    await stage.crash()
    await stage.open()
    await stage.sleep(3600)
    offsets: dict[str, set[int]] = {}
    for one in stage.deliveries:
        schedule = one.body["schedule"]
        offsets.setdefault(schedule["name"], set()).add(one.body["scheduledFor"] - schedule["slot"])
        assert schedule["slot"] <= one.body["scheduledFor"] <= arrived(stage, one)

    assert len(offsets) == 200 and all(len(found) == 1 for found in offsets.values())
    spread = sorted(found.pop() for found in offsets.values())
    assert spread[0] < 3_000 and 57_000 < spread[-1] < 60_000
    assert max(one.lateness_ms for one in await occurrences(stage, "app:s7")) < 1_000


@pytest.mark.parametrize("down_s", [3.34, 183.0])
def test_a_slot_in_the_middle_of_a_deploy_fires_once(down_s: float) -> None:
    """Scenario M04: stopped 2.6 s before the slot, started after it."""

    @staged()
    async def run(stage: Stage) -> None:
        put = await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *")
        slot = put.preview[0]
        await stage.sleep((slot - stage.now) / 1000 - 2.6)
        await stage.close()
        await stage.sleep(down_s)
        await stage.open()
        await stage.sleep(5)
        assert slots_of(stage.deliveries) == [slot]

    run()


@staged()
async def test_hours_late_is_run_once_and_says_how_late(stage: Stage) -> None:
    """Scenario M01 and M03: the default; the next slot is the first one after now."""
    put = await stage.jobs.schedules.put("x", "work:run", cron="0 3 * * *")
    slot = put.preview[0]
    await stage.sleep((slot - stage.now) / 1000 - 300)
    await stage.close()
    await stage.sleep(300 + 16_800)
    await stage.open()
    await stage.sleep(1)
    [one] = await occurrences(stage, "x")
    record = await stage.jobs.schedules.get("x")

    assert (one.slot, one.state) == (slot, "fired") and 16_800_000 <= one.lateness_ms < 16_801_000
    assert record is not None and record.next_at == slot + DAY
    assert slots_of(stage.deliveries) == [slot]


@staged()
async def test_editing_what_it_carries_does_not_move_the_next_slot(stage: Stage) -> None:
    """Scenario M09."""
    put = await stage.jobs.schedules.put("x", "work:run", {"v": 1}, every=5400)
    await stage.sleep(600)
    args = await stage.jobs.schedules.put("x", "work:run", {"v": 2}, every=5400)
    zone = await stage.jobs.schedules.put("x", "work:run", {"v": 2}, cron="0 9 * * *", timezone="America/New_York")
    await stage.sleep(60)

    assert args.next_at == put.next_at and (zone.next_at or 0) > stage.now
    assert stage.deliveries == []


# ---- Zones ---------------------------------------------------------------------------------------


@staged()
async def test_other_time_zones_at_the_next_start_move_the_stored_next_slots(
    stage: Stage,
) -> None:
    """A country gives up its summer time between two runs: what is stored was computed with the old rules."""
    await stage.jobs.schedules.put("moved", "work:moved", cron="0 12 * * *", timezone="Europe/Berlin")
    await stage.jobs.schedules.put("kept", "work:kept", cron="0 12 * * *")
    before = await stage.jobs.schedules.get("moved")
    await stage.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recheck, "database_version", lambda: "2099z")
        rule = slots.rule_of("0 12 * * *", "Europe/Berlin")
        slots._next.cache_clear()
        patch.setattr(rule, "next_ms", slots.rule_of("30 11 * * *", "Europe/Berlin").next_ms)
        await stage.open()
        await stage.sleep(1)
        after = await stage.jobs.schedules.get("moved")
        assert before is not None and after is not None
        assert (after.next_at or 0) - (before.next_at or 0) == -30 * MINUTE and after.revision == before.revision
        await stage.sleep(86_400)
    slots._next.cache_clear()
    fired = {one.body["functionPath"]: one.body["schedule"]["slot"] for one in stage.deliveries}

    assert fired["work:moved"] == after.next_at and len(stage.deliveries) == 2


@staged()
async def test_a_zone_that_is_known_again_takes_its_schedule_up_again(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="0 * * * *", timezone="Europe/Berlin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "_rule", unknown)
        await stage.sleep(3601)
        broken = await stage.jobs.schedules.get("x")
        assert broken is not None and broken.state == "error"
    await stage.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recheck, "database_version", lambda: "2099z")
        await stage.open()
        await stage.sleep(10)
        mended = await stage.jobs.schedules.get("x")

    assert mended is not None and mended.state == "active" and len(stage.deliveries) == 1


def unknown(cron: str, timezone: str) -> None:
    from tocsin.errors import UnknownTimezoneError

    raise UnknownTimezoneError(f"timezone {timezone!r} is not known here")


@staged()
async def test_zones_are_looked_at_when_they_have_changed_and_only_then(stage: Stage) -> None:
    await stage.jobs.schedules.put("x", "work:run", cron="0 12 * * *")
    checked: list[str] = []
    whole = recheck._recheck

    async def watched(turn: Turn, one: Schedule, allowance: Allowance) -> None:
        checked.append(one.name)
        await whole(turn, one, allowance)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recheck, "_recheck", watched)
        for version in (database_version(), "2099z", "2099z"):
            await stage.close()
            patch.setattr(recheck, "database_version", lambda version=version: version)
            await stage.open()
            await stage.sleep(86_400)

    assert checked == ["x"]


HOSTS_ZONE = """
import asyncio, functools, os, time
from tests.actors.scheduler.stage import staged

@staged(look_again_s=3_600, idle_after_s=86_400)
async def run(stage):
    await stage.jobs.schedules.put("utc", "work:utc", cron="0 12 * * *")
    await stage.jobs.schedules.put("zoned", "work:zoned", cron="30 2 * * *", timezone="America/New_York")
    await stage.sleep(100 * 86_400)
    print(sorted((one.body["schedule"]["name"], one.body["schedule"]["slot"]) for one in stage.deliveries))

run()
"""


def test_the_zone_of_the_machine_changes_nothing() -> None:
    """Scenarios T09 and T13: through the clock changes of each of them."""
    said = {
        subprocess.run(
            [sys.executable, "-c", HOSTS_ZONE],
            env={**os.environ, "TZ": zone, "PYTHONPATH": str(Path(__file__).parents[4])},
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for zone in ("UTC", "Australia/Sydney")
    }  # fmt: skip

    assert len(said) == 1 and said.pop().count("zoned") == 100


def test_a_step_back_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    @staged()
    async def run(stage: Stage) -> None:
        stage.clock.step(CENTURY)
        await stage.jobs.schedules.put("x", "work:run", every=60)
        await stage.sleep(61)
        stage.clock.step(-CENTURY)
        await stage.sleep(600)

    with caplog.at_level(logging.WARNING):
        run()
    said = [record.getMessage() for record in caplog.records]

    assert sum("was stepped back" in line for line in said) == 1
    assert sum("behind the latest slot" in line for line in said) == 1
