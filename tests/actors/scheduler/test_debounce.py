"""Debounce: each call of an id puts its job off and gives it its args, up to an end; a call for a job that runs is kept
until the run has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after, on_simulated_host
from tocsin import Job, Retry
from tocsin.dispatch.scheduled import Scheduled
from tocsin.dispatch.transport import Answer
from tocsin.errors import DuplicateScheduleIdError, InvalidInputError


async def call(sim: SimulatedHost, n: int, debounce: str = "2s", **options: Any) -> str:
    return await sim.jobs.run_debounced(debounce, "work:run", {"n": n}, id="x", **options)


def ran(sim: SimulatedHost) -> list[Any]:
    return [one.body["args"]["n"] for one in sim.deliveries]


@on_simulated_host()
async def test_each_call_puts_the_job_off_and_the_newest_args_run_once(sim: SimulatedHost) -> None:
    for n in range(5):
        await call(sim, n)
        await sim.sleep(1.5)
    assert sim.deliveries == []
    await sim.sleep(10)

    assert (ran(sim), sim.times("x")) == ([4], [8000])


@on_simulated_host()
async def test_it_is_put_off_no_further_than_max_wait_from_the_first_call(sim: SimulatedHost) -> None:
    for n in range(8):
        await call(sim, n, max_wait="5s")
        await sim.sleep(1)
    await sim.sleep(10)

    assert (ran(sim), sim.times("x")) == ([4, 7], [5000, 9000])


@on_simulated_host()
async def test_no_later_call_takes_back_the_end_that_an_earlier_one_was_promised(sim: SimulatedHost) -> None:
    await call(sim, 0, max_wait="3s")
    for n in range(1, 6):
        await sim.sleep(1)
        await call(sim, n, max_wait="1h" if n % 2 else None)
    await sim.sleep(20)

    assert ran(sim)[0] == 2 and sim.times("x")[0] == 3000


@on_simulated_host()
async def test_an_end_that_only_a_later_call_names_counts_from_the_first_call(sim: SimulatedHost) -> None:
    await call(sim, 0)
    await sim.sleep(1)
    await call(sim, 1, max_wait="4s")
    for n in range(2, 6):
        await sim.sleep(1)
        await call(sim, n)
    await sim.sleep(20)

    assert ran(sim)[0] == 3 and sim.times("x")[0] == 4000


@on_simulated_host()
async def test_256_callers_at_once_make_one_job_and_their_last_args_run(sim: SimulatedHost) -> None:
    async def one(n: int) -> bool:
        return (await sim.port.jobs.submit(sim.port.checks.job(job(n), sim.now))).created

    async def two(n: int) -> bool:
        first, second = await sim.jobs.submit_many([job(n), job(n)])
        assert isinstance(first, Scheduled) and isinstance(second, Scheduled) and not second.created
        return first.created

    created = await asyncio.gather(*(one(n) if n % 8 else two(n) for n in range(256)))
    await call(sim, 256)
    backlog = (await sim.jobs.status()).backlog
    await sim.sleep(3)

    assert (backlog, created.count(True), ran(sim)) == (1, 1, [256])


def job(n: int) -> Job:
    return Job(path="work:run", args={"n": n}, debounce="2s", options={"id": "x"})


@on_simulated_host()
async def test_calls_while_it_runs_become_one_job_when_the_run_has_ended(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(10)
    await call(sim, 0, "1s")
    await sim.sleep(2)
    answers = [await sim.port.jobs.submit(sim.port.checks.job(job(n), sim.now)) for n in (1, 2)]
    assert [(one.created, one.state) for one in answers] == [(False, "running")] * 2
    assert (await sim.jobs.status()).backlog == 0
    await sim.sleep(30)

    assert (ran(sim), sim.times("x")) == ([0, 2], [1000, 11000])
    assert len({one.webhook_id for one in sim.deliveries}) == 2


@on_simulated_host()
async def test_a_kept_call_takes_the_place_of_the_retry_of_a_run_that_failed(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(5, Answer(200 if one.body["args"]["n"] else 500, {}, b""))
    await call(sim, 0, "1s")
    await sim.sleep(2)
    await call(sim, 1)
    await sim.sleep(5)

    assert (ran(sim), sim.times("x")) == ([0, 1], [1000, 6000])
    await sim.sleep(200)
    assert ran(sim) == [0, 1]


@on_simulated_host()
async def test_a_call_that_finds_a_retry_begins_anew(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(200 if one.body["args"]["n"] else 500, {}, b"")
    await call(sim, 0, "1s", max_wait="5s")
    await sim.sleep(20)  # it waits for its first retry, at 31 s
    await call(sim, 1, "4s", max_wait="5s")
    record = await sim.jobs.get("x")
    assert record is not None and (record.attempt, record.attempts) == (0, 0)
    await sim.sleep(100)

    assert (ran(sim), sim.times("x")) == ([0, 1], [1_000, 24_000])


@on_simulated_host()
async def test_a_call_kept_for_a_run_that_dies_runs_under_another_id_and_the_letter_keeps_its_own(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: after(5, Answer(200 if one.body["args"]["n"] else 500, {}, b""))
    await call(sim, 0, "1s", retry=Retry(max_retries=0))
    await sim.sleep(2)
    await call(sim, 1)
    await sim.sleep(10)

    assert ran(sim) == [0, 1]
    assert [one.id for one in (await sim.jobs.dead()).records] == ["x"]
    assert sim.deliveries[1].body["id"] != "x"
    with pytest.raises(DuplicateScheduleIdError, match="dead"):
        await call(sim, 2)


@on_simulated_host()
async def test_who_cancels_the_id_cancels_the_run_and_the_kept_call(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(5)
    await call(sim, 0, "1s", pool="p")
    await sim.sleep(2)
    await call(sim, 1, pool="p")
    assert (await sim.jobs.cancel("x")).was_running
    assert await sim.jobs.get("x") is None
    await call(sim, 2, pool="p")
    await sim.sleep(30)

    assert ran(sim) == [0, 2]


@on_simulated_host()
async def test_kept_calls_outlive_a_crash_with_args_of_many_pieces(sim: SimulatedHost) -> None:
    long = "x" * 200_000
    await call(sim, 0, "1s", timeout_ms=20_000)
    sim.reply = lambda one: after(15)
    await sim.sleep(2)
    await sim.jobs.run_debounced("1s", "work:run", {"n": 1, "long": long}, id="x")
    await sim.crash()
    sim.reply = lambda one: after(0)
    await sim.open()
    assert await sim.faults() == []
    await sim.sleep(120)

    # The lost attempt goes back to its line: what was kept takes its place.
    assert ran(sim) == [0, 1] and sim.deliveries[1].body["args"]["long"] == long
    assert await sim.faults() == []
    assert await sim.jobs.get("x") is None


@on_simulated_host()
async def test_after_a_step_back_of_the_clock_it_is_put_off_no_longer_than_max_wait(sim: SimulatedHost) -> None:
    await call(sim, 0, max_wait="5s")
    sim.clock.step(-3_600_000)
    began = sim.now
    for n in range(1, 9):
        await call(sim, n, max_wait="5s")
        await sim.sleep(1)
    await sim.sleep(5)

    assert sim.deliveries[0].body["scheduledFor"] - began == 5000


@on_simulated_host()
async def test_options_that_do_not_go_together_are_refused_by_name(sim: SimulatedHost) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("give id", {}),
        ("on_conflict must be replace", {"id": "x", "on_conflict": "keep"}),
        (r"max_wait \(in ms\) must be 1..2592000000, not 0", {"id": "x", "max_wait": 0}),
        ("say the contrary", {"id": "x", "throttle": "5s"}),
    ]
    for words, options in wrong:
        with pytest.raises(InvalidInputError, match=words):
            await sim.jobs.run_debounced("2s", "work:run", **options)
    with pytest.raises(InvalidInputError, match="bounds a debounce"):
        await sim.jobs.run_after("2s", "work:run", id="x", max_wait="5s")
    with pytest.raises(InvalidInputError, match="it has no id of yours"):
        then = [Job(path="a:b", options={"throttle": "1s"})]
        await sim.jobs.run_after("2s", "work:run", id="x", then=then)
    with pytest.raises(InvalidInputError, match=r"then\[0\].debounce"):
        await sim.jobs.run_after("2s", "work:run", then=[Job(path="a:b", debounce="1s")])
    assert (await sim.jobs.status()).backlog == 0
