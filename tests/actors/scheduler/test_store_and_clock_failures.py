"""When things around a scheduler go wrong: stores that hiccup, clocks that step, stops at bad moments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.errors import InvalidInputError, StoreUnavailable
from tocsin.storage.api import Event
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryProvider


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("Europe/Berlin", datetime(2027, 7, 1, 12), datetime(2027, 7, 1, 10)),
        ("Europe/Berlin", datetime(2027, 1, 1, 12), datetime(2027, 1, 1, 11)),
        ("America/New_York", datetime(2027, 7, 1, 12), datetime(2027, 7, 1, 16)),
        ("America/New_York", datetime(2027, 11, 7, 1, 30, fold=0), datetime(2027, 11, 7, 5, 30)),
        ("America/New_York", datetime(2027, 11, 7, 1, 30, fold=1), datetime(2027, 11, 7, 6, 30)),
    ],
)
def test_an_aware_datetime_is_its_instant_in_summer_winter_and_twice_told_hours(
    zone: str, local: datetime, utc: datetime
) -> None:
    expected = int((utc - datetime(1970, 1, 1)).total_seconds() * 1000)

    assert arguments.instant_ms(local.replace(tzinfo=ZoneInfo(zone)), "at") == expected


@pytest.mark.parametrize("delay", ["9" * 400 + "d", 10**400, 1e308, float("inf"), float("nan"), -(10**400)])
def test_delays_beyond_all_bounds_are_refused_by_name(delay: object) -> None:
    with pytest.raises(InvalidInputError, match="delay"):
        arguments.delayed(1_800_000_000_000, arguments.duration_ms(delay, "delay"), "delay")


@on_simulated_host()
async def test_half_a_character_is_refused_before_the_turn(sim: SimulatedHost) -> None:
    for path, args in (("a\ud800", None), ("a", "\ud800"), ("a", {"k": "\ud800"})):
        with pytest.raises(InvalidInputError):
            await sim.jobs.run_after(1, path, args)


@on_simulated_host()
async def test_a_store_that_hiccups_while_alarms_are_listed_is_asked_again(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("5s", "work:run", id="x")
    await sim.close()
    listing = MemoryProvider.events
    failures = iter([StoreUnavailable("one hiccup")])

    async def events(self: MemoryProvider) -> AsyncIterator[Event]:
        for failure in failures:
            raise failure
        async for event in listing(self):
            yield event

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryProvider, "events", events)
        await sim.open()
        await sim.sleep(0.5)
        ready = [sim.host.runtime.ready]
        await sim.sleep(10)
        ready.append(sim.host.runtime.ready)

    assert ready == [False, True]
    assert sim.times("x") == [5_000]


@on_simulated_host(max_in_flight=1)
async def test_who_stood_in_line_when_the_disk_was_full_goes_on_when_it_is_not(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(2)
    await sim.host.scheduler("a").run_after(0, "work:run", id="one")
    await sim.sleep(0.5)
    await sim.host.scheduler("b").run_after(0, "work:run", id="two")
    sim.disk_full(True)
    await sim.sleep(30)
    sim.disk_full(False)
    await sim.sleep(5)

    assert {job_id for _, job_id in sim.arrivals} == {"one", "two"}


@on_simulated_host()
async def test_the_slot_of_a_cancelled_attempt_that_may_still_run_is_held_until_its_lease_ends(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: after(100 if one.id == "a" else 1)
    await sim.jobs.run_after(0, "work:run", id="a", pool="p", timeout_ms=2_000)
    await sim.sleep(1)
    await sim.jobs.cancel("a")
    await sim.jobs.run_after(0, "work:run", id="b", pool="p")
    await sim.sleep(60)

    assert sim.times("b") == [17_000]


@on_simulated_host()
async def test_a_backward_step_does_not_mute_an_alarm_that_failed(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("5s", "work:run", id="x")
    combiner = sim.host.runtime.provider.combiner  # type: ignore[attr-defined]
    write, failing = combiner._write, True

    async def broken(writes: Sequence[ActorWrites]) -> None:
        if failing:
            raise StoreUnavailable("writes fail")
        await write(writes)

    combiner._write = broken
    await sim.sleep(6)
    failing = False
    sim.clock.step(-5_000)
    assert sim.host.runtime.alarms.failures(ActorId("scheduler", "t")) == 1
    await sim.sleep(20)

    assert len(sim.times("x")) == 1


@on_simulated_host()
async def test_a_stop_waits_for_ends_that_could_not_be_stored_at_once(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x")
    provider = sim.host.runtime.provider
    write = provider.write  # type: ignore[attr-defined]
    left = 3

    async def hiccup(writes: Sequence[ActorWrites]) -> None:
        nonlocal left
        if left and sim.deliveries:
            left -= 1
            raise StoreUnavailable("a hiccup")
        await write(writes)

    provider.combiner._write = hiccup  # type: ignore[attr-defined]
    await sim.sleep(0.01)
    await sim.close()
    await sim.open()
    await sim.sleep(200)

    assert left == 0
    assert len(sim.deliveries) == 1


@on_simulated_host(drain_s=5.0)
async def test_an_instance_that_wakes_while_the_host_drains_starts_nothing(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(100 if one.id == "slow" else 0)
    await sim.jobs.run_after(0, "work:run", id="slow")
    await sim.host.scheduler("other").run_after("3s", "work:run", id="late")
    await sim.host.runtime.evict()
    await sim.sleep(1)
    began = sim.now
    await sim.close()

    assert sim.now - began <= 7_000
    assert sim.times("late") == []
    await sim.open()
    await sim.sleep(1)
    assert len(sim.times("late")) == 1


@on_simulated_host(look_again_s=1.0)
async def test_a_live_lease_is_renewed_before_it_ends(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(10)
    await sim.jobs.run_after(0, "work:run", id="x", timeout_ms=60_000)
    await sim.sleep(1)
    sim.clock.step(71_000)  # the lease has three seconds left by the clock, the attempt many
    await sim.sleep(2)
    record = await sim.jobs.get("x")

    assert record is not None and record.lease is not None
    assert record.lease.until > sim.now + 60_000
    await sim.sleep(20)
    assert len(sim.times("x")) == 1


@on_simulated_host()
async def test_moved_and_removed_alarms_leave_no_crowd_in_the_heap(sim: SimulatedHost) -> None:
    for n in range(3_000):
        await sim.jobs.run_at(sim.now + 10**9 - n, "work:run", id="x")
        await sim.jobs.cancel("x")

    assert len(sim.host.runtime.alarms._heap) <= 1_100


@on_simulated_host(lanes=1)
async def test_a_list_by_due_misses_no_job_that_starts_meanwhile(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(0.02)
    await sim.jobs.submit_many([Job(path="work:run", after=0.0, options={"id": f"j{n:03d}"}) for n in range(300)])
    seen: set[str] = set()
    before = {one.id async for one in sim.jobs.list_all(order="id")}
    cursor = None
    while True:
        page = await sim.jobs.list(limit=20, cursor=cursor)
        seen.update(one.id for one in page.records)
        await sim.sleep(0.05)
        if not page.truncated:
            break
        cursor = page.cursor
    ended = before - {one.id async for one in sim.jobs.list_all(order="id")}

    assert before <= seen | ended


@on_simulated_host()
async def test_a_list_by_due_over_many_pools_is_whole_and_in_order(sim: SimulatedHost) -> None:
    await sim.jobs.pause()
    made = [
        Job(path="work:run", after=1 + (n * 7919 % 5_000) / 10, options={"pool": f"p{n % 200}", "id": f"j{n:04d}"})
        for n in range(2_000)
    ]
    for start in range(0, 2_000, 1_000):
        await sim.jobs.submit_many(made[start : start + 1_000])
    listed = [one async for one in sim.jobs.list_all(order="due")]
    keys = [(one.next_attempt_at, one.id) for one in listed]

    assert len(keys) == 2_000
    assert keys == sorted(keys)


@on_simulated_host()
async def test_a_scheduler_whose_neighbours_opened_the_circuit_is_probed_for_too(sim: SimulatedHost) -> None:
    """Nothing else rings for it: the failed jobs were another scheduler's, and are gone."""
    sim.down = True
    other = sim.host.scheduler("other")
    for n in range(6):
        await other.run_after(0, "work:run", id=f"j{n}")
    await sim.sleep(1)
    await sim.jobs.run_after(0, "work:run", id="mine")
    await other.cancel_all(all=True)
    sim.down = False
    await sim.sleep(6)

    assert [one.id for one in sim.deliveries] == ["mine"]
