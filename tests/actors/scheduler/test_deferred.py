"""`deferred()`: ids at once, all jobs at the end of the block, none if it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.runtime.events import Event
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.client.deferred import Deferred
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.transitions.events import Submit
from tocsin.errors import (
    DuplicateScheduleIdError,
    InvalidInputError,
    NotAllAcceptedError,
    PayloadTooLargeError,
    QuotaExceededError,
    StoreFull,
)


async def backlog(sim: SimulatedHost) -> int:
    return (await sim.jobs.status()).backlog


@on_simulated_host()
async def test_ids_are_there_at_once_and_jobs_at_the_end(sim: SimulatedHost) -> None:
    async with sim.jobs.deferred() as later:
        ids = [later.run_after("1h", "a:b", {"n": 1}), later.run_at(sim.now + 7_200_000, None, workflow="w", id="x")]
        assert await backlog(sim) == 0
    assert [record.id for record in (await sim.jobs.list()).records] == ids
    assert ids[1] == "x"


@on_simulated_host()
async def test_it_is_one_turn_and_so_one_commit(sim: SimulatedHost) -> None:
    turns: list[type] = []
    call = sim.host.runtime.call

    def noted(actor: ActorId, event: Event[Any], **options: Any) -> Any:
        turns.append(type(event))
        return call(actor, event, **options)

    sim.host.runtime.call = noted  # type: ignore[method-assign]
    async with sim.jobs.deferred() as later:
        for _ in range(1_000):
            later.run_after("1h", "a:b")
    async with sim.jobs.deferred():
        pass
    assert turns == [Submit]
    assert await backlog(sim) == 1_000


@on_simulated_host()
async def test_a_block_that_fails_leaves_nothing(sim: SimulatedHost) -> None:
    with pytest.raises(ZeroDivisionError):
        async with sim.jobs.deferred() as later:
            later.run_after("1h", "a:b")
            raise ZeroDivisionError

    async def cancelled() -> None:
        async with sim.jobs.deferred() as later:
            later.run_after("1h", "a:b")
            await asyncio.sleep(60)

    task = asyncio.create_task(cancelled())
    await sim.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert await backlog(sim) == 0


@on_simulated_host()
async def test_a_mistake_is_told_at_the_call_and_the_block_may_go_on(sim: SimulatedHost) -> None:
    async with sim.jobs.deferred() as later:
        with pytest.raises(InvalidInputError, match="priority"):
            later.run_after("1h", "a:b", priority=99)
        with pytest.raises(InvalidInputError, match="delay must not be negative"):
            later.run_after(-1, "a:b")
        later.run_after("1h", "a:b")
    assert await backlog(sim) == 1


@on_simulated_host()
async def test_what_does_not_fit_one_commit_is_refused_at_the_call(sim: SimulatedHost) -> None:
    async with sim.jobs.deferred() as later:
        for _ in range(1_000):
            later.run_after("1h", "a:b")
        with pytest.raises(InvalidInputError, match="at most 1000 jobs in one block"):
            later.run_after("1h", "a:b")
    async with sim.jobs.deferred() as later:
        for _ in range(29):
            later.run_after("1h", "a:b", "x" * 250_000)
        with pytest.raises(PayloadTooLargeError, match="at most 7340032 fit one commit"):
            later.run_after("1h", "a:b", "x" * 250_000)
    async with sim.jobs.deferred() as later:
        for n in range(99):
            later.run_after("1h", "a:b", then=[Job(path=f"p{n}.{k}") for k in range(20)])
        with pytest.raises(PayloadTooLargeError, match="2001 different function paths, at most 2000"):
            later.run_after("1h", "a:b", then=[Job(path=f"q.{k}") for k in range(20)])
    assert await backlog(sim) == 1_128


@on_simulated_host()
async def test_who_is_refused_at_the_end_is_named_and_so_is_who_stays(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "a:b", id="taken")
    with pytest.raises(NotAllAcceptedError) as caught:
        async with sim.jobs.deferred() as later:
            first = later.run_after("1h", "a:b")
            later.run_after("1h", "a:b", id="taken")
            last = later.run_after("1h", "a:b", id="taken", on_conflict="keep")
    error = caught.value
    assert error.accepted == (first, last)
    [(job_id, refusal)] = error.refused
    assert job_id == "taken" and isinstance(refusal, DuplicateScheduleIdError)
    assert str(error).startswith(
        "1 of 3 jobs were refused, the other 2 stay: 'taken': id 'taken' is taken by a pending"
    )
    assert await backlog(sim) == 2


@on_simulated_host(max_jobs=2)
async def test_a_long_list_of_refusals_is_cut_in_words_not_in_data(sim: SimulatedHost) -> None:
    with pytest.raises(NotAllAcceptedError, match=r"5 of 7 jobs were refused, the other 2 stay.*and 2 more$") as caught:
        async with sim.jobs.deferred() as later:
            for _ in range(7):
                later.run_after("1h", "a:b")
    assert len(caught.value.refused) == 5
    assert all(isinstance(error, QuotaExceededError) for _, error in caught.value.refused)


@on_simulated_host()
async def test_a_host_that_takes_nothing_says_so_at_the_end(sim: SimulatedHost) -> None:
    with pytest.raises(StoreFull):
        async with sim.jobs.deferred() as later:
            later.run_after("1h", "a:b")
            sim.disk_full(True)
    sim.disk_full(False)
    assert await backlog(sim) == 0


@on_simulated_host()
async def test_outside_its_block_it_takes_nothing(sim: SimulatedHost) -> None:
    later = sim.jobs.deferred()
    assert isinstance(later, Deferred)
    with pytest.raises(InvalidInputError, match="inside `async with` only"):
        later.run_after("1h", "a:b")
    async with later:
        with pytest.raises(InvalidInputError, match="begun already"):
            await later.__aenter__()
    with pytest.raises(InvalidInputError, match="has ended"):
        later.run_after("1h", "a:b")
    async with later:
        later.run_after("1h", "a:b")
    assert await backlog(sim) == 1
