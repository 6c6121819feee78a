"""Claims and waiters when something goes wrong: turns that give only so much, stores that fail, hosts that stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, ids, on_simulated_host
from tocsin.actors.scheduler.actor import pull
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.inflight.waiting_claims import PullClaim
from tocsin.actors.scheduler.state.ready_heap import ReadyHeap
from tocsin.errors import NotFoundError, StoreUnavailable
from tocsin.storage.combiner import ActorWrites


class Commits:
    """The commits of the simulated host, from now on: they may fail, or wait."""

    def __init__(self, sim: SimulatedHost) -> None:
        provider: Any = sim.host.runtime.provider
        self._write = provider.combiner._write
        self.failing = False
        self.slow_s = 0.0
        provider.combiner._write = self.write

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        await asyncio.sleep(self.slow_s)
        if self.failing:
            raise StoreUnavailable("as the test wanted")
        await self._write(writes)


def test_a_turn_that_gave_all_it_may_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "JOBS_PER_TURN", 5)

    @on_simulated_host()
    async def many_wait(sim: SimulatedHost) -> None:
        waiting = [asyncio.create_task(sim.jobs.claim("q", wait=100)) for _ in range(17)]
        await sim.sleep(1)
        await sim.jobs.submit_many([Job(path="w:r", after=0, options={"queue": "q"}) for _ in range(17)])
        began = sim.now
        got = [await one for one in waiting]

        assert all(len(jobs) == 1 for jobs in got) and sim.now - began < 100

    many_wait()


@on_simulated_host()
async def test_queues_have_turns_in_a_pool_that_is_full(sim: SimulatedHost) -> None:
    """The one with the older backlog does not get each slot that frees."""
    for n in range(30):
        await sim.jobs.run_after(0, "w:r", id=f"big{n}", queue="big", pool="p", max_concurrency=1)
    await sim.sleep(5)
    for name in ("a", "b"):
        await sim.jobs.run_after(0, "w:r", id=name, queue=name, pool="p", max_concurrency=1)
    took = []
    [held] = await sim.jobs.claim(wait=10)
    for _ in range(6):
        waiting = asyncio.create_task(sim.jobs.claim(wait=10))
        await sim.sleep(0.1)
        await sim.jobs.complete(held.id, held.lease)
        [held] = await waiting
        took.append(held.id)

    assert {"a", "b"} <= set(took)


@on_simulated_host()
async def test_what_nobody_waits_for_goes_back_also_when_the_store_fails_meanwhile(sim: SimulatedHost) -> None:
    """No worker had the job: it is not gone until its lease ends."""
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=100, lease_ms=3_600_000))
    await sim.sleep(1)
    commits = Commits(sim)
    await sim.jobs.run_after(0, "w:r", id="x", queue="q")
    commits.failing = True
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await sim.sleep(3)
    commits.failing = False

    assert ids(await sim.jobs.claim("q", wait=10)) == ["x"]


@on_simulated_host()
async def test_a_lease_that_is_over_before_it_is_on_disk_is_given_to_nobody(sim: SimulatedHost) -> None:
    """The store takes longer than the lease: nobody had the job, so nobody has lost it."""
    commits = Commits(sim)
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=100, lease_ms=1_000))
    await sim.jobs.run_after(1, "w:r", id="x", queue="q")
    await sim.sleep(0.5)
    commits.slow_s = 1.5
    await sim.sleep(4)
    commits.slow_s = 0.0
    [one] = await waiting
    record = await sim.jobs.get("x")

    assert one.lease_until > sim.now and one.attempt > 1
    assert record is not None and record.losses == 0
    assert {row.outcome for row in await sim.jobs.history("x")} == {"unsent"}


@on_simulated_host()
async def test_a_lease_that_is_over_before_its_caller_is_answered_is_given_to_nobody(sim: SimulatedHost) -> None:
    """The answer was there, and its caller could not go on: the process stood still, or the store was slow."""
    pulls = sim.host._service.inflight("t").waiting_claims
    late = PullClaim(["q"], frozenset(), 1, 1_000, "")
    pulls.enter(late)
    await sim.jobs.run_after(0, "w:r", id="x", queue="q")
    await sim.sleep(1.5)
    [job] = late.answer.result()
    assert job.lease.until < sim.now

    assert await pulls.wait(late, 0) == []
    [one] = await sim.jobs.claim("q", wait=10)
    assert one.id == "x" and one.lease_until > sim.now


@on_simulated_host()
async def test_a_claim_whose_batch_is_lost_ends_with_its_host(sim: SimulatedHost) -> None:
    commits = Commits(sim)
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=300))
    await sim.jobs.run_after(1, "w:r", id="x", queue="q")
    await sim.sleep(0.5)
    commits.slow_s, commits.failing = 1.0, True
    await sim.sleep(1)
    began = sim.now
    await sim.close()
    got = await waiting

    assert got == [] and sim.now - began < 5_000
    await sim.open()


@on_simulated_host()
async def test_a_job_that_follows_takes_nobodys_id(sim: SimulatedHost) -> None:
    """Its id is known beforehand, so somebody may have taken it meanwhile."""
    await sim.jobs.run_after(0, "w:r", id="a", queue="q", then=[Job(path="w:then", options={"queue": "q"})])
    record = await sim.jobs.get("a")
    assert record is not None
    taken = record.then[0].id
    await sim.jobs.run_after(60, "w:other", id=taken, queue="q")
    [one] = await sim.jobs.claim("q")
    await sim.jobs.complete("a", one.lease, result=1)
    [next_one] = await sim.jobs.claim("q")

    assert next_one.function_path == "w:then" and next_one.id != taken
    assert next_one.parent is not None and (next_one.parent.id, next_one.parent.result) == ("a", 1)
    other = await sim.jobs.get(taken)
    assert other is not None and other.function_path == "w:other"
    assert await sim.faults() == []


@on_simulated_host()
async def test_who_waits_for_a_job_hears_that_it_is_gone(sim: SimulatedHost) -> None:
    """Replaced by one that keeps no result, or removed with its instance."""
    for name in ("replaced", "removed"):
        await sim.jobs.run_after(60, "w:r", id=name, queue="q", keep_result=60)
    waiting = [asyncio.create_task(sim.jobs.result(name)) for name in ("replaced", "removed")]
    await sim.sleep(1)
    await sim.jobs.run_after(60, "w:r", id="replaced", queue="q", on_conflict="replace")
    await sim.sleep(1)
    assert waiting[0].done() and not waiting[1].done()
    await sim.jobs.remove()
    await sim.sleep(1)

    assert [type(one.exception()) for one in waiting] == [NotFoundError, NotFoundError]


@on_simulated_host()
async def test_a_turn_looks_at_the_queues_it_needs_of_thousands(sim: SimulatedHost) -> None:
    """All have a due job. Neither a worker of some of them nor one of all makes turns look at each."""
    for start in range(0, 3_000, 1_000):
        jobs = [Job(path="w:r", after=0, options={"queue": f"q{start + n}"}) for n in range(1_000)]
        await sim.jobs.submit_many(jobs)
    named = asyncio.create_task(sim.jobs.claim(["a", "b"], wait=100))
    await sim.sleep(1)
    looked = 0
    is_ready = ReadyHeap._is_ready

    def counted(self: ReadyHeap, queue: str) -> bool:
        nonlocal looked
        looked += 1
        return is_ready(self, queue)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ReadyHeap, "_is_ready", counted)
        got = [one for _ in range(10) for one in await sim.jobs.claim(wait=0)]
        await sim.jobs.run_after(0, "w:r", id="one", queue="b")

    assert len({one.queue for one in got}) == 10 and ids(await named) == ["one"]
    assert looked < 600


@on_simulated_host()
async def test_a_host_that_is_opened_again_calls_back_and_gives_jobs(sim: SimulatedHost) -> None:
    """Whatever is left in memory of its earlier run."""
    await sim.jobs.run_after(0, "w:r", queue="q")
    [one] = await sim.jobs.claim("q")
    await sim.jobs.complete(one.id, one.lease)
    await sim.jobs.run_after(0, "w:called", keep_result="1h", id="a")
    await sim.jobs.result("a", 5)
    service = sim.host._service
    garbage = service.inflight("t")
    await sim.host.stop()
    await sim.host.__aenter__()
    await sim.jobs.run_after(0, "w:r", queue="q", id="pulled")
    await sim.jobs.run_after(0, "w:called", keep_result="1h", id="b")

    assert ids(await sim.jobs.claim("q")) == ["pulled"]
    assert await sim.jobs.result("b", 5) is None and len(sim.deliveries) == 2
    del garbage


@on_simulated_host()
async def test_a_claim_that_got_nothing_after_all_stands_behind_those_that_came_before_it(sim: SimulatedHost) -> None:
    pulls = sim.host._service.inflight("t").waiting_claims
    first, second, third = (PullClaim(["q"], frozenset(), 1, 1_000, "") for _ in range(3))
    for claim in (first, second, third):
        pulls.enter(claim)
    pulls.reserve(second)
    pulls.requeue([second])

    order: list[PullClaim] = []
    while (found := pulls.select("q", None)) is not None:
        order.append(found)
        pulls.leave(found)
    assert order == [first, second, third]


@on_simulated_host()
async def test_what_is_given_back_is_no_loss_though_its_lease_ends_before(sim: SimulatedHost) -> None:
    """The store takes nothing for longer than the lease. No worker had the job."""
    for n in range(8):
        await sim.jobs.run_after(0, "w:r", id=f"{n}", queue=f"q{n}")
    commits = Commits(sim)
    for n in range(8):
        got = await sim.jobs.claim(f"q{n}", lease_ms=1_000)
        commits.failing = True
        await sim.port.queues.give_back([(one.id, one.lease) for one in got])
        await sim.sleep(1 + n / 10)
        commits.failing = False
        await sim.sleep(10)

    outcomes = [one.outcome for n in range(8) for one in await sim.jobs.history(f"{n}")]
    assert outcomes == ["unsent"] * 8
