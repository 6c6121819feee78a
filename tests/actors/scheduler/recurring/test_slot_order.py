"""The slots of a schedule start in their order, however many were missed and however late each is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.recurring.slots import HOUR, MINUTE, START, cursor_of, occurrences, slots_of
from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.inflight.lanes import Lanes
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.dispatch.transport import Answer

Started = list[tuple[str, int]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """Name and slot of each first attempt, as it was sent on its way. Those of one turn may arrive in any order."""
    found: Started = []
    launch = Lanes.launch

    def noted(self: Lanes, claims: Sequence[Claim], claimed: float) -> None:
        for one in claims:
            if one.job.schedule is not None and one.lease.at.attempt == 1:
                found.append((one.job.schedule.name, one.job.schedule.slot))
        launch(self, claims, claimed)

    monkeypatch.setattr(Lanes, "launch", noted)
    return found


def of(started: Started, name: str) -> list[int]:
    return [slot for found, slot in started if found == name]


async def down(sim: SimulatedHost, seconds: float, *, crash: bool = False) -> None:
    await (sim.crash() if crash else sim.close())
    await sim.sleep(seconds)
    await sim.open()


@pytest.mark.parametrize("pool", [None, "one"])
@pytest.mark.parametrize("grace", [0, 60, 150, 3_600])
def test_slots_within_the_grace_do_not_overtake_those_that_are_late(
    grace: int, pool: str | None, started: Started
) -> None:
    """Four minutes down: with the default grace the newest is on time, and three are spread."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put(
            "x", "work:run", cron="* * * * *", misfire="all", overlap="allow", grace=grace, pool=pool
        )
        await sim.sleep(70 - sim.now % MINUTE / 1000)
        started.clear()
        await down(sim, 240)
        await sim.sleep(5)
        caught_up = of(started, "x")
        assert len(caught_up) == 4 and caught_up == sorted(caught_up)

    run()


@pytest.mark.parametrize("crash", [False, True])
def test_slots_that_come_while_a_catch_up_is_spread_wait_for_it(crash: bool, started: Started) -> None:
    """Of every five seconds, ten minutes down: 100 late ones are spread over ten seconds, in which two more come. Also
    when the host dies in the middle: what was spread is known to who comes after it."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.schedules.put("x", "work:run", every=5, misfire="all", overlap="allow")
        await sim.sleep(1)
        await down(sim, 600)
        await sim.sleep(4)
        if crash:
            await sim.crash()
            await sim.open()
        await sim.sleep(30)
        fired = of(started, "x")
        assert len(fired) > 100 and fired == sorted(fired)
        missing = [one.state for one in await occurrences(sim, "x") if not one.live and one.state != "fired"]
        assert set(missing) <= {"skipped"}, "those before the newest hundred"

    run()


@pytest.mark.parametrize("misfire", ["skip", "one"])
def test_nor_does_a_slot_on_time_overtake_one_late_job_behind_those_of_others(misfire: str, started: Started) -> None:
    """300 schedules were missed, so a late run may start only half a minute later; the next slots come before that."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        many: list[tuple[str, dict[str, Any]]] = [(f"s{n}", {"path": "w", "every": "6h"}) for n in range(300)]
        await sim.jobs.schedules.register("app", many)
        await sim.jobs.schedules.put("x", "work:run", every=5, misfire=misfire, overlap="allow", grace=2)
        await down(sim, 6 * 3_600 + 4)
        await sim.sleep(60)
        mine = of(started, "x")
        assert len(mine) > 8 and mine == sorted(mine)

    run()


@pytest.mark.parametrize("seed", range(25))
def test_whatever_the_outage_rule_grace_pool_or_queue_the_oldest_start_first(seed: int, started: Started) -> None:
    dice = Random(seed)
    pools: list[tuple[str | None, int | None]] = [(None, None), ("one", None), ("three", 3), ("shared", 2)]
    queue = dice.choice((None, None, "q"))
    rules: list[dict[str, Any]] = [
        {"every": dice.choice((1, 5, 7.5, 61))},
        {"cron": "*/10 * * * * *"},
        {"cron": "* * * * *", "timezone": "Asia/Kolkata"},
    ]
    names = [f"s{n}" for n in range(dice.choice((1, 3, 30)))]

    async def worker(sim: SimulatedHost) -> None:
        while True:
            claimed = await sim.jobs.claim("q", max=dice.choice((1, 7)), wait=100)
            started.extend(
                (one.schedule.name, one.schedule.slot) for one in claimed if one.schedule and one.attempt == 1
            )
            for one in claimed:
                await asyncio.sleep(dice.choice((0, 0.2)))
                await sim.jobs.complete(one.id, one.lease)

    @on_simulated_host(lanes=dice.choice((1, 2, 64)))
    async def run(sim: SimulatedHost) -> None:
        slow = dice.choice((0, 0.05, 0.7))
        sim.reply = lambda one: after(slow) if slow else OK
        for name in names:
            pool, cap = dice.choice(pools)
            await sim.jobs.schedules.put(
                name, "work:run", **dice.choice(rules), misfire="all", overlap="allow", pool=pool, max_concurrency=cap,
                grace=dice.choice((0, 3, 60, 600)), catch_up_limit=dice.choice((3, 20, 40)), queue=queue,
                jitter=dice.choice((0, 0, 4)), timeout_ms=1_000,
            )  # fmt: skip
        for _ in range(3):
            working = asyncio.create_task(worker(sim)) if queue else None
            await sim.sleep(dice.random() * 30)
            if working is not None:
                working.cancel()
                with suppress(asyncio.CancelledError):
                    await working
            await down(sim, dice.choice((4, 20, 70, 300, 4_000)) * dice.random(), crash=dice.random() < 0.5)
        working = asyncio.create_task(worker(sim)) if queue else None
        await sim.sleep(120)
        if working is not None:
            working.cancel()
        for name in names:
            mine = of(started, name)
            assert mine and mine == sorted(mine), name

    run()


@on_simulated_host()
async def test_an_older_slot_that_is_tried_again_holds_up_nobody(sim: SimulatedHost) -> None:
    """In order is how they start first: a retry stands in line by its next attempt."""
    first = START + MINUTE
    sim.reply = lambda one: Answer(500, {}, b"") if one.body["schedule"]["slot"] == first else OK
    await sim.jobs.schedules.put("x", "work:run", every=60, misfire="all", overlap="allow", grace=0)
    await down(sim, 200)
    await sim.sleep(10)

    assert slots_of(sim.deliveries) == [START + n * MINUTE for n in (1, 2, 3)]


@on_simulated_host()
async def test_a_clock_that_steps_back_does_not_hold_up_what_comes_after_it(sim: SimulatedHost) -> None:
    """What was spread starts within five minutes; an instant beyond that was told by a clock that was ahead."""
    await sim.jobs.schedules.put("x", "work:run", every="30m", misfire="all", overlap="allow", grace=0)
    await sim.sleep(1)
    sim.clock.step(24 * HOUR)
    await sim.sleep(61)
    sim.clock.step(-24 * HOUR + 61 * MINUTE)
    before = len(sim.deliveries)
    await sim.jobs.schedules.put("y", "work:run", every=60)
    await sim.jobs.schedules.trigger("x", "k")
    await sim.sleep(2)

    assert [one.body["schedule"]["name"] for one in sim.deliveries[before:]] == ["x"], "by hand: at once"


@pytest.mark.parametrize("back", [10 * MINUTE, HOUR, 24 * HOUR])
def test_a_catch_up_that_a_step_back_interrupts_goes_on_in_order(back: int, started: Started) -> None:
    """Some of it is spread over instants that are far ahead from there on; the rest has no place yet."""

    @on_simulated_host(lanes=64)
    async def run(sim: SimulatedHost) -> None:
        for name in ("x", "y"):
            await sim.jobs.schedules.put(
                name, "work:run", every=5, misfire="all", overlap="allow", catch_up_limit=None, pool=name,
                max_concurrency=8,
            )  # fmt: skip
        await down(sim, 2 * 3_600)
        for _ in range(200):
            await asyncio.sleep(0)
            if cursor_of(sim, "x").last > START:
                break
        assert START < cursor_of(sim, "x").last < sim.now - HOUR, "the story is not told"
        sim.clock.step(-back)
        await sim.jobs.schedules.put("z", "work:other", every=5, misfire="all", overlap="allow")
        await sim.sleep(60)
        assert len(of(started, "z")) >= 10, "others do not wait"
        await sim.jobs.schedules.pause("z")  # it has shown that, and would fire 17,000 times in a day
        await sim.sleep(back / 1000 + 600)
        for name in ("x", "y"):
            mine = of(started, name)
            assert len(mine) > 1_440 and mine == sorted(mine)

    run()


@on_simulated_host()
async def test_after_more_than_a_day_back_a_schedule_does_not_wait_for_the_clock_of_before(sim: SimulatedHost) -> None:
    """When its next slot comes, the place of the last one that was spread is less than a day ahead."""
    await sim.jobs.schedules.put("x", "work:run", every="9h", misfire="all", overlap="allow", grace=0, catch_up_limit=1)
    await sim.sleep(1)
    sim.clock.step(28 * HOUR)
    await sim.sleep(61)
    sim.clock.step(-28 * HOUR)
    before = len(sim.deliveries)
    await sim.sleep(19 * 3_600)

    assert before == 1 and slots_of(sim.deliveries[before:]) == [START + 9 * HOUR, START + 18 * HOUR]


@on_simulated_host(lanes=64)
async def test_twenty_schedules_catch_up_at_once_each_with_its_first(sim: SimulatedHost) -> None:
    """The others begin one after another."""
    names = [f"s{n:02}" for n in range(25)]
    for name in names:
        await sim.jobs.schedules.put(
            name, "work:run", cron="* * * * *", misfire="all", overlap="allow", catch_up_limit=10
        )
    await down(sim, 3_600)
    opened = sim.now - START
    await sim.sleep(60)
    first: dict[str, int] = {}
    for (at, _), one in zip(sim.arrivals, sim.deliveries, strict=True):
        first.setdefault(one.body["schedule"]["name"], at - opened)
    begun = sorted(first.values())

    assert len(begun) == 25 and begun[19] < 200
    assert all(begun[19 + n] >= n * 95 for n in range(1, 6)), "the others one after another"
