"""Throttle: from when a job is due, no further job of its id is accepted for a while; calls are refused, or merged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tocsin import Job
from tocsin.dispatch.transport import Answer
from tocsin.errors import DuplicateScheduleIdError, InvalidInputError, ThrottledError

MERGE: dict[str, Any] = {"throttle": "10s", "on_throttle": "merge"}


async def call(sim: SimulatedHost, n: int, **options: Any) -> str:
    return await sim.jobs.run_after(0, "work:run", {"n": n}, id="x", **({"throttle": "10s"} | options))


def ran(sim: SimulatedHost) -> list[Any]:
    return [one.body["args"]["n"] for one in sim.deliveries]


@on_simulated_host()
async def test_further_calls_in_the_period_are_refused_until_it_ends(sim: SimulatedHost) -> None:
    await call(sim, 0)
    await sim.sleep(4)
    with pytest.raises(ThrottledError, match="accepted in 6s") as refused:
        await call(sim, 1)
    assert refused.value.details == {"id": "x", "retryAfterMs": 6000}
    await sim.sleep(6)
    await call(sim, 2)
    await sim.sleep(1)

    assert (ran(sim), sim.times("x")) == ([0, 2], [0, 10_000])
    await sim.jobs.run_after(0, "work:run", {"n": 3}, id="x")  # not asked to heed it
    await sim.jobs.run_after(0, "work:run", {"n": 4}, id="y", throttle="10s")
    await sim.sleep(1)
    assert ran(sim)[2:] == [3, 4]


@on_simulated_host()
async def test_of_256_callers_at_once_one_is_accepted_and_the_others_are_refused(sim: SimulatedHost) -> None:
    async def one(n: int) -> bool:
        (answer,) = await sim.jobs.submit_many([job(n)])
        return not isinstance(answer, ThrottledError)

    async def two(n: int) -> bool:
        first, second = await sim.jobs.submit_many([job(n), job(n)])
        assert isinstance(second, ThrottledError)
        return not isinstance(first, ThrottledError)

    for _ in range(3):
        accepted = await asyncio.gather(*(one(n) if n % 8 else two(n) for n in range(256)))
        assert accepted.count(True) == 1
        await sim.sleep(10)

    assert sim.times("x") == [0, 10_000, 20_000]


def job(n: int) -> Job:
    return Job(path="work:run", args={"n": n}, after=0, options={"id": "x", "throttle": "10s"})


@on_simulated_host()
async def test_merged_calls_are_one_job_at_the_end_of_the_period_with_the_newest_args(sim: SimulatedHost) -> None:
    for n in range(25):
        await call(sim, n, **MERGE)
        await sim.sleep(1)
    await sim.sleep(20)

    assert (ran(sim), sim.times("x")) == ([0, 9, 19, 24], [0, 10_000, 20_000, 30_000])


@on_simulated_host()
async def test_a_call_that_comes_before_the_job_started_is_merged_into_it_and_it_keeps_its_instant(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.run_after("5s", "work:run", {"n": 0}, id="x", **MERGE)
    await sim.sleep(3)
    await sim.jobs.run_after("5s", "work:run", {"n": 1}, id="x", **MERGE)
    await sim.sleep(3)
    await call(sim, 2, **MERGE)
    await sim.sleep(30)

    assert (ran(sim), sim.times("x")) == ([1, 2], [5_000, 15_000])


@on_simulated_host()
async def test_calls_while_it_runs_are_merged_into_one_that_comes_after_it_and_after_the_period(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: after(15 if one.body["args"]["n"] == 0 else 2)
    await call(sim, 0, **MERGE)
    for n in (1, 2):
        await sim.sleep(1)
        await call(sim, n, **MERGE)
    await sim.sleep(14)
    await call(sim, 3, **MERGE)
    await sim.sleep(30)

    assert (ran(sim), sim.times("x")) == ([0, 2, 3], [0, 15_000, 25_000])


@on_simulated_host()
async def test_the_period_outlives_a_crash_and_its_row_goes_when_it_is_over(sim: SimulatedHost) -> None:
    await call(sim, 0)
    await sim.sleep(1)
    await sim.crash()
    await sim.open()
    with pytest.raises(ThrottledError):
        await call(sim, 1)
    assert len(await periods(sim)) == 2
    await sim.sleep(60)

    assert await periods(sim) == []


async def periods(sim: SimulatedHost) -> list[bytes]:
    """The rows of periods, and their timers."""
    rows = await sim.host.runtime.provider.view("scheduler/t").scan(b"t", b"u", limit=1_000)
    return [key for key, _ in rows if b"throttle/" in key]


@on_simulated_host()
async def test_after_a_step_back_of_the_clock_nobody_waits_longer_than_a_period(sim: SimulatedHost) -> None:
    await call(sim, 0)
    await sim.sleep(1)
    sim.clock.step(-3_600_000)
    with pytest.raises(ThrottledError) as refused:
        await call(sim, 1)
    assert refused.value.details["retryAfterMs"] <= 10_000
    await call(sim, 2, **MERGE)
    await sim.sleep(12)

    assert ran(sim) == [0, 2]


@on_simulated_host()
async def test_a_dead_job_keeps_its_id_from_merged_calls_too(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"")
    await call(sim, 0, **MERGE)
    await sim.sleep(1)
    with pytest.raises(DuplicateScheduleIdError, match="dead"):
        await call(sim, 1, **MERGE)


@on_simulated_host()
async def test_options_that_do_not_go_together_are_refused_by_name(sim: SimulatedHost) -> None:
    with pytest.raises(InvalidInputError, match="give throttle"):
        await sim.jobs.run_after(0, "work:run", id="x", on_throttle="merge")
    with pytest.raises(InvalidInputError, match="one of refuse, merge, not 'drop'"):
        await call(sim, 0, on_throttle="drop")
    with pytest.raises(InvalidInputError, match="on_throttle merge replaces the job"):
        await call(sim, 0, **MERGE, on_conflict="keep")
    with pytest.raises(InvalidInputError, match="give id"):
        await sim.jobs.run_after(0, "work:run", throttle="10s")
