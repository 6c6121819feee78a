"""Machines that were suspended, stalled, stopped or idle for years; deploys and jitter: each slot once, and in time."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.recurring.slots import DAY, HOUR, MINUTE, arrived, occurrences, slots_of
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host

# ---- Stops ---------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_machine_that_was_suspended_fires_within_a_minute(sim: SimulatedHost) -> None:
    """Wall +540 s, monotonic +0, in the middle of a wait of 600 s."""
    put = await sim.jobs.schedules.put("x", "work:run", every=600)
    await sim.sleep(30)
    sim.clock.step(540_000)
    await sim.sleep(120)

    [one] = sim.deliveries
    assert 0 <= arrived(sim, one) - (put.next_at or 0) <= 61_000


@on_simulated_host()
async def test_a_night_of_suspend_is_one_fire(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *")
    await sim.sleep(61)
    sim.clock.step(8 * HOUR)
    await sim.sleep(61)

    assert 2 <= len(sim.deliveries) <= 3
    assert [one.state for one in await occurrences(sim, "x")][:3] == ["fired", "coalesced", "fired"]


@on_simulated_host(look_again_s=3_600, idle_after_s=86_400)
async def test_waits_of_years_end_in_time(sim: SimulatedHost) -> None:
    """No timer of 32 bits."""
    due = sim.now + 400 * DAY
    yearly = await sim.jobs.schedules.put("yearly", "work:run", cron="0 0 1 1 *")
    await sim.jobs.run_at(due, "work:once", id="once")
    await sim.sleep(60 * 86_400)
    assert sim.deliveries == []
    await sim.sleep(341 * 86_400)

    assert [one.body["scheduledFor"] for one in sim.deliveries] == [yearly.preview[0], due]
    assert all(arrived(sim, one) - one.body["scheduledFor"] < 1_000 for one in sim.deliveries)


@on_simulated_host()
async def test_who_waits_for_years_hardly_wakes(sim: SimulatedHost) -> None:
    """Fewer than two looks a minute, at the clock and nothing else."""
    await sim.jobs.schedules.put("yearly", "work:run", cron="0 0 1 1 *")
    await sim.sleep(3_600)
    before = sim.host.runtime.provider.stats()
    looks = 0
    tick = sim.host.runtime.alarms._watch_clock

    def counted(now: int, monotonic: float) -> None:
        nonlocal looks
        looks += 1
        tick(now, monotonic)

    sim.host.runtime.alarms._watch_clock = counted  # type: ignore[method-assign]
    await sim.sleep(86_400)

    assert looks < 2 * 24 * 60 and sim.host.runtime.provider.stats() == before


@on_simulated_host()
async def test_every_minute_of_a_day_each_once_through_stalls_and_crashes(sim: SimulatedHost) -> None:
    """Exactly 1,440 jobs, one per slot."""
    start = sim.now
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *", misfire="all", overlap="allow", catch_up_limit=None)
    await stall_and_crash(sim, start)
    due = [slot for slot in slots_of(sim.deliveries) if start < slot <= start + DAY]

    assert due.count(due[0]) == 1 and sorted(set(due)) == list(range(start + MINUTE, start + DAY + 1, MINUTE))
    ids = {one.webhook_id for one in sim.deliveries if start < one.body["schedule"]["slot"] <= start + DAY}
    assert len(ids) == 1_440


@on_simulated_host(occurrences_kept=10_000)
async def test_every_minute_of_a_day_is_accounted_for_once_with_the_defaults(sim: SimulatedHost) -> None:
    start = sim.now
    await sim.jobs.schedules.put("x", "work:run", cron="* * * * *")
    await stall_and_crash(sim, start)
    seen: list[int] = []
    cursor: str | None = None
    while True:
        page = await sim.jobs.schedules.occurrences("x", limit=500, cursor=cursor)
        for one in page.occurrences:
            seen += range(one.slot, (one.until or one.slot) + 1, MINUTE)
            assert one.until is None or one.count == len(range(one.slot, one.until + 1, MINUTE))
        if not page.truncated:
            break
        cursor = page.cursor
    of_day = [slot for slot in seen if start < slot <= start + DAY]

    assert len(of_day) == 1_440 == len(set(of_day))


async def stall_and_crash(sim: SimulatedHost, start: int) -> None:
    """The loop stands still now and then, for up to 90 s; three times the host dies."""
    for n in range(3):
        while sim.now < start + (n + 1) * 6 * HOUR:
            await sim.sleep(sim.random.random() * 600)
            stall(sim, sim.random.random() * 90)
        await sim.crash()
        await sim.sleep(sim.random.random() * 90)
        await sim.open(occurrences_kept=10_000)
    await sim.sleep((start + DAY - sim.now) / 1000 + 420)


def stall(sim: SimulatedHost, seconds: float) -> None:
    """Nothing runs meanwhile: both clocks go on, and all timers are late."""
    asyncio.get_running_loop()._time += seconds  # type: ignore[attr-defined]


@on_simulated_host()
async def test_a_wake_up_that_comes_early_fires_nothing_before_its_slot(sim: SimulatedHost) -> None:
    """At each wake-up the clock shows 3 ms before the slot; a thousand times."""
    start = sim.now
    await sim.jobs.schedules.put("x", "work:run", every=1, overlap="allow")
    for n in range(1_000):
        sim.clock.step(-3)
        await sim.sleep(1)
        assert len(sim.deliveries) <= n + 1
    await sim.sleep(10)
    early = [one for one in sim.deliveries if arrived(sim, one) < one.body["schedule"]["slot"]]
    fired = slots_of(sim.deliveries)

    assert early == [] and fired == list(range(start + 1_000, max(fired) + 1, 1_000))


# ---- Jitter, deploys -----------------------------------------------------------------------------


@on_simulated_host(lanes=64)
async def test_jitter_spreads_an_hour_and_stays_after_a_restart(sim: SimulatedHost) -> None:
    """Never before the slot, the same offset each time, and lateness counts from slot and offset."""
    await sim.jobs.schedules.register(
        "app", [(f"s{n}", {"path": "work:run", "cron": "0 * * * *", "jitter": 60}) for n in range(200)]
    )
    await sim.sleep(3661)
    await sim.crash()
    await sim.open()
    await sim.sleep(3600)
    offsets: dict[str, set[int]] = {}
    for one in sim.deliveries:
        schedule = one.body["schedule"]
        offsets.setdefault(schedule["name"], set()).add(one.body["scheduledFor"] - schedule["slot"])
        assert schedule["slot"] <= one.body["scheduledFor"] <= arrived(sim, one)

    assert len(offsets) == 200 and all(len(found) == 1 for found in offsets.values())
    spread = sorted(found.pop() for found in offsets.values())
    assert spread[0] < 3_000 and 57_000 < spread[-1] < 60_000
    assert max(one.lateness_ms for one in await occurrences(sim, "app:s7")) < 1_000


@pytest.mark.parametrize("down_s", [3.34, 183.0])
def test_a_slot_in_the_middle_of_a_deploy_fires_once(down_s: float) -> None:
    """Stopped 2.6 s before the slot, started after it."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        put = await sim.jobs.schedules.put("x", "work:run", cron="0 * * * *")
        slot = put.preview[0]
        await sim.sleep((slot - sim.now) / 1000 - 2.6)
        await sim.close()
        await sim.sleep(down_s)
        await sim.open()
        await sim.sleep(5)
        assert slots_of(sim.deliveries) == [slot]

    run()


@on_simulated_host()
async def test_hours_late_is_run_once_and_says_how_late(sim: SimulatedHost) -> None:
    """The default; the next slot is the first one after now."""
    put = await sim.jobs.schedules.put("x", "work:run", cron="0 3 * * *")
    slot = put.preview[0]
    await sim.sleep((slot - sim.now) / 1000 - 300)
    await sim.close()
    await sim.sleep(300 + 16_800)
    await sim.open()
    await sim.sleep(1)
    [one] = await occurrences(sim, "x")
    record = await sim.jobs.schedules.get("x")

    assert (one.slot, one.state) == (slot, "fired") and 16_800_000 <= one.lateness_ms < 16_801_000
    assert record is not None and record.next_at == slot + DAY
    assert slots_of(sim.deliveries) == [slot]


@on_simulated_host()
async def test_editing_what_it_carries_does_not_move_the_next_slot(sim: SimulatedHost) -> None:
    put = await sim.jobs.schedules.put("x", "work:run", {"v": 1}, every=5400)
    await sim.sleep(600)
    args = await sim.jobs.schedules.put("x", "work:run", {"v": 2}, every=5400)
    zone = await sim.jobs.schedules.put("x", "work:run", {"v": 2}, cron="0 9 * * *", timezone="America/New_York")
    await sim.sleep(60)

    assert args.next_at == put.next_at and (zone.next_at or 0) > sim.now
    assert sim.deliveries == []
