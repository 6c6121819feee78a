"""Completions that come together: one turn books them, and each has an answer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import Job
from tocsin.actors.scheduler.inflight.completions import MOST_BYTES, Answer, Completions
from tocsin.actors.scheduler.transitions.events import Complete
from tocsin.actors.scheduler.transitions.job import Completion
from tocsin.dispatch.pulled import Settlement
from tocsin.errors import ActorBrokenError, HostClosedError, StaleLeaseError, StoreUnavailable

DONE = Settlement(settled=True, state="done")


# ---- In a scheduler ------------------------------------------------------------------------------


@on_simulated_host()
async def test_jobs_that_end_together_are_booked_together(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many([Job(path="a:b", after=0, options={"id": f"j{n}", "queue": "q"}) for n in range(60)])
    claimed = await sim.jobs.claim("q", max=100)
    before = sim.host.runtime.provider.stats()
    answers = await asyncio.gather(*(sim.jobs.settle(one.id, one.lease, result=one.id) for one in claimed))
    after = sim.host.runtime.provider.stats()

    assert len(claimed) == 60 and answers == [DONE] * 60
    assert after.batches - before.batches <= 2
    assert (await sim.jobs.pending()).count == 0


@on_simulated_host()
async def test_each_of_those_that_end_together_gets_its_own_answer(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many([Job(path="a:b", after=0, options={"id": id, "queue": "q"}) for id in "abcd"])
    leases = {one.id: one.lease for one in await sim.jobs.claim("q", max=10)}
    await sim.jobs.cancel("c")
    a, twice, b, c, d, wrong, others = await asyncio.gather(
        sim.jobs.settle("a", leases["a"]),
        sim.jobs.settle("a", leases["a"]),
        sim.jobs.settle("b", leases["b"], ok=False, delay="1m"),
        sim.jobs.settle("c", leases["c"]),
        sim.jobs.settle("d", leases["d"], ok=False, retryable=False),
        sim.jobs.settle("d", "1.1.wrong"),
        sim.jobs.settle("d", leases["a"]),
        return_exceptions=True,
    )

    assert a == twice == DONE
    assert b == Settlement(settled=True, state="retrying", next_attempt_at=sim.now + 60_000)
    assert c == Settlement(settled=True, state="cancelled")
    assert d == Settlement(settled=True, state="dead", reason="refused")
    assert isinstance(wrong, StaleLeaseError) and isinstance(others, StaleLeaseError)


@on_simulated_host()
async def test_what_follows_many_large_jobs_is_started_in_several_turns(sim: SimulatedHost) -> None:
    big = Job(path="c:d", args="x" * 200_000, options={"queue": "after"})
    for n in range(40):
        await sim.jobs.run_after(0, "a:b", id=f"j{n}", queue="q", then=[big])
    claimed = await sim.jobs.claim("q", max=100)
    before = sim.host.runtime.provider.stats()
    answers = await asyncio.gather(*(sim.jobs.settle(one.id, one.lease) for one in claimed))
    after = sim.host.runtime.provider.stats()

    assert answers == [DONE] * 40
    assert 3 <= after.batches - before.batches <= 8
    assert [(queue.name, queue.waiting) for queue in await sim.jobs.queues()] == [("after", 40)]


# ---- By themselves -------------------------------------------------------------------------------


def said(id: str, result: bytes | None = None) -> Completion:
    return Completion(id, "1.1.x", result=result)


class Turns:
    """Notes what each turn is told. It answers `at_most`, and fails with `error` if `bad` is among them."""

    def __init__(self, at_most: int = 1_000, bad: str = "", error: Exception | None = None) -> None:
        self.told: list[list[str]] = []
        self.at_most, self.bad, self.error = at_most, bad, error
        self.free, self.begun = asyncio.Event(), asyncio.Event()
        self.completions = Completions(self, lambda work: asyncio.get_running_loop().create_task(work))

    async def complete(self, event: Complete) -> Sequence[Answer]:
        await self.free.wait()
        ids = [one.id for one in self.completions.begin(event.batch)]
        self.told.append(ids)
        self.begun.set()
        await asyncio.sleep(0.01)
        if self.error is not None and self.bad in ids:
            raise self.error
        return [Settlement(settled=True, state=id) for id in ids[: self.at_most]]

    async def all(self, *completions: Completion) -> list[str]:
        """What each is answered."""
        waiting = asyncio.gather(*map(self.completions.settle, completions), return_exceptions=True)
        await asyncio.sleep(0)
        self.free.set()
        return [one.state if isinstance(one, Settlement) else type(one).__name__ for one in await waiting]


def test_those_that_a_turn_had_no_room_for_are_told_to_the_next_one() -> None:
    async def run() -> None:
        turns = Turns(at_most=2)
        assert await turns.all(*map(said, "abcde")) == list("abcde")
        assert turns.told == [list("abcde"), list("cde"), ["e"]]

    asyncio.run(run())


def test_one_that_comes_while_a_turn_is_at_work_waits_for_the_next_one() -> None:
    async def run() -> None:
        turns = Turns()
        turns.free.set()
        first = asyncio.ensure_future(turns.completions.settle(said("a")))
        await turns.begun.wait()
        assert await turns.all(*map(said, "bc")) == ["b", "c"]
        assert first.done() and turns.told == [["a"], ["b", "c"]]

    asyncio.run(run())


def test_results_of_a_turn_are_bounded() -> None:
    async def run() -> None:
        turns = Turns()
        half = b"x" * (MOST_BYTES // 2)
        assert await turns.all(*(said(id, half) for id in "abcde")) == list("abcde")
        assert turns.told == [["a", "b"], ["c", "d"], ["e"]]

    asyncio.run(run())


def test_one_that_cannot_be_booked_takes_no_others_with_it() -> None:
    async def run() -> None:
        turns = Turns(bad="b", error=ActorBrokenError("a fault of ours"))
        assert await turns.all(*map(said, "abc")) == ["a", "ActorBrokenError", "c"]
        assert sorted(map(tuple, turns.told)) == [("a",), ("a", "b", "c"), ("b",), ("c",)]

    asyncio.run(run())


def test_a_store_that_is_away_is_asked_once() -> None:
    async def run() -> None:
        turns = Turns(bad="a", error=StoreUnavailable("the disk is away"))
        assert await turns.all(*map(said, "abc")) == ["StoreUnavailable"] * 3
        assert turns.told == [list("abc")]

    asyncio.run(run())


@pytest.mark.parametrize("at_once", [True, False])
def test_a_caller_that_goes_away_disturbs_nobody(at_once: bool) -> None:
    async def run() -> None:
        turns = Turns()
        gone = asyncio.ensure_future(turns.completions.settle(said("gone")))
        await asyncio.sleep(0)
        if at_once:
            gone.cancel()
        else:
            asyncio.get_running_loop().call_later(0.005, gone.cancel)
        assert await turns.all(said("stays")) == ["stays"]
        assert gone.cancelled() and turns.told == [["gone", "stays"]]

    asyncio.run(run())


@pytest.mark.parametrize("begun", [True, False])
def test_a_host_that_goes_down_in_the_middle_answers_all_who_wait(begun: bool) -> None:
    """Its tasks are cancelled: one in its turn, one that waits for it, and one that had not begun."""

    async def run() -> None:
        turns = Turns()
        if begun:
            turns.free.set()
        first = asyncio.ensure_future(turns.completions.settle(said("a")))
        await (turns.begun.wait() if begun else asyncio.sleep(0))
        second = asyncio.ensure_future(turns.completions.settle(said("b")))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task(), first, second}:
            task.cancel()
        async with asyncio.timeout(5):
            answers = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in answers] == [HostClosedError] * 2
        turns.free.set()
        assert await turns.all(said("later")) == ["later"]

    asyncio.run(run())
