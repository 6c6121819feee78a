"""Machines that were suspended, stalled, stopped or idle for years; deploys and jitter: each slot once, and in time."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.recurring.slots import DAY, HOUR, MINUTE, arrived, occurrences, slots_of
from tests.actors.scheduler.stage import Stage, staged

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
