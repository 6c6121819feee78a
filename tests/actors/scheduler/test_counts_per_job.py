"""What jobs cost when many callers come at once, as counts, which no busy machine changes: turns, commits, hops.

32 producers each wait for their answer before they send the next job, so 32 events wait at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.runtime.activation import Activation
from tocsin.actors.scheduler.actor.end_of_turn import EndOfTurn
from tocsin.actors.scheduler.client.job_checks import Job
from tocsin.actors.scheduler.transitions.kept_answers import OneAnswer
from tocsin.dispatch.worker.worker import Worker
from tocsin.storage.memory import MemoryProvider, MemoryStore

PRODUCERS, ROUNDS = 32, 10
JOBS = PRODUCERS * ROUNDS


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts of everything that is to be rare, over all actors."""
    counted: Counter[str] = Counter()

    def count(owner: type, method: str, what: str) -> None:
        plain = getattr(owner, method)

        def counting(self: object, *args: Any, **named: Any) -> Any:
            counted[what] += 1
            return plain(self, *args, **named)

        monkeypatch.setattr(owner, method, counting)

    count(EndOfTurn, "run", "ends of turns")
    count(Activation, "_turn", "turns")
    count(Activation, "_commit", "batches")
    count(MemoryProvider, "write", "transactions")
    count(MemoryStore, "get", "hops")
    count(MemoryStore, "scan_many", "hops")
    return counted


async def produce(sim: SimulatedHost, one: Callable[[int], Awaitable[object]]) -> None:
    """Each producer does its share, one after the other."""

    async def producer(first: int) -> None:
        for n in range(first, JOBS, PRODUCERS):
            await one(n)

    await asyncio.gather(*map(producer, range(PRODUCERS)))


@dataclass(frozen=True)
class Most:
    """How much a round may cost, in which each of the producers sends one event."""

    turns: float
    hops: float


async def per_round(
    sim: SimulatedHost, counts: Counter[str], one: Callable[[int], Awaitable[object]], most: Most
) -> None:
    counts.clear()
    await produce(sim, one)
    assert counts["ends of turns"] == counts["turns"] <= most.turns * ROUNDS
    assert counts["transactions"] <= counts["batches"] <= counts["turns"]
    assert counts["hops"] <= most.hops * ROUNDS


@pytest.fixture(params=["minted", "own"])
def own(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "own")


def test_32_producers_share_a_turn_a_batch_and_with_ids_of_their_own_one_hop(counts: Counter[str], own: bool) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "w:r")
        await per_round(
            sim,
            counts,
            lambda n: sim.jobs.run_after("1h", "w:r", id=f"j{n}" if own else None),
            Most(turns=1, hops=1 if own else 0),
        )

    run()


def test_32_producers_whose_ids_are_taken_share_two_hops_a_turn(counts: Counter[str]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await produce(sim, lambda n: sim.jobs.run_after("1h", "w:r", id=f"j{n}"))
        again = partial(sim.jobs.run_after, "1h", "w:r", on_conflict="keep")
        # Nothing is written, so there is no commit during which all of them would come together.
        await per_round(sim, counts, lambda n: again(id=f"j{n}"), Most(turns=2, hops=4))

    run()


def test_32_callers_that_cancel_or_move_share_two_hops(counts: Counter[str]) -> None:
    """One for the rows of the jobs, one for the job that is the first in line now."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await produce(sim, lambda n: sim.jobs.run_after("1h", "w:r", id=f"j{n}"))
        await per_round(sim, counts, lambda n: sim.jobs.reschedule(f"j{n}", after=9), Most(turns=1, hops=2))
        await per_round(sim, counts, lambda n: sim.jobs.cancel(f"j{n}"), Most(turns=1, hops=2))

    run()


async def ask_with_key(sim: SimulatedHost, key: str, n: int) -> None:
    made = sim.port.checks.wire_job(
        function_path="w:r", workflow=None, raw_args=b"{}", scheduled_for=None, delay_ms=3_600_000,
        options={"id": f"j{n}"},
    )  # fmt: skip
    await sim.port.jobs.submit_once([made], key=b"%s%d" % (key.encode(), n), body=b"body", form=OneAnswer())


def test_32_requests_with_a_key_share_one_hop_and_where_ids_are_taken_two(counts: Counter[str]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "w:r")
        await per_round(sim, counts, lambda n: ask_with_key(sim, "first", n), Most(turns=1, hops=1))
        await per_round(sim, counts, lambda n: ask_with_key(sim, "second", n), Most(turns=1, hops=2))

    run()


def test_32_callers_that_all_choose_one_id_share_one_hop(counts: Counter[str]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "w:r")
        conflict = partial(sim.jobs.run_after, "1h", "w:r", on_conflict="replace")
        await per_round(sim, counts, lambda n: conflict(id=f"j{n // PRODUCERS}"), Most(turns=1, hops=2))

    run()


def test_one_caller_alone_has_its_rows_in_one_hop(counts: Counter[str]) -> None:
    """And in a second one, where the first job of a line was taken, the one that is first now."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        jobs = sim.port.jobs
        for name in ("a", "b", "c"):
            await sim.jobs.run_after("1h", "w:r", id=name)
        new = sim.port.checks.wire_job(
            function_path="w:r", workflow=None, raw_args=b"{}", scheduled_for=None, delay_ms=3_600_000,
            options={"id": "d"},
        )  # fmt: skip
        asks: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (0, lambda: sim.jobs.run_after("1h", "w:r")),
            (1, lambda: sim.jobs.run_after("1h", "w:r", id="e")),
            (1, lambda: jobs.submit_once([new], key=b"key", body=b"body", form=OneAnswer())),
            (1, lambda: sim.jobs.cancel("b")),
            (2, lambda: sim.jobs.cancel("a")),
            (2, lambda: sim.jobs.reschedule("c", after=9)),
        ]
        for most, ask in asks:
            counts.clear()
            await ask()
            assert counts["hops"] <= most and counts["turns"] == counts["batches"] == 1

    run()


def test_the_turn_that_settles_64_callbacks_claims_the_next_64(counts: Counter[str]) -> None:
    @on_simulated_host(lanes=64)
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.submit_many([Job(path="w:r", at=sim.now + 1_000) for _ in range(64 * ROUNDS)])
        counts.clear()
        await sim.sleep(2)
        assert len(sim.deliveries) == 64 * ROUNDS
        assert counts["ends of turns"] == counts["turns"] <= ROUNDS + 3
        assert counts["transactions"] <= counts["batches"] <= ROUNDS + 3
        assert counts["hops"] <= ROUNDS

    run()


def test_32_workers_claim_in_one_turn_and_complete_in_another(counts: Counter[str]) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.submit_many([Job(path="w:r", after=0, options={"queue": "q"}) for _ in range(JOBS)])
        done: list[str] = []

        async def work() -> None:
            while claimed := await sim.jobs.claim("q"):
                done.append(claimed[0].id)
                await sim.jobs.complete(claimed[0].id, claimed[0].lease)

        counts.clear()
        await asyncio.gather(*[work() for _ in range(PRODUCERS)])
        assert len(set(done)) == len(done) == JOBS
        assert counts["ends of turns"] == counts["turns"] <= 2 * ROUNDS + 4
        assert counts["transactions"] <= counts["batches"] <= 2 * ROUNDS + 4
        assert counts["hops"] <= ROUNDS, "a completion reads nothing"

    run()


def test_a_job_that_a_worker_works_off_takes_two_tasks(counts: Counter[str]) -> None:
    """One for its attempt and one for its handler, which may be cancelled. The others are shared by many jobs."""

    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.submit_many([Job(path="w:r", after=0, options={"queue": "q"}) for _ in range(JOBS)])
        left, done, tasks = JOBS, asyncio.Event(), 0

        async def handle(args: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        def counted(loop: asyncio.AbstractEventLoop, work: Any, **named: Any) -> asyncio.Task[Any]:
            nonlocal tasks
            tasks += 1
            return asyncio.Task(work, loop=loop, **named)

        asyncio.get_running_loop().set_task_factory(counted)
        counts.clear()
        async with Worker(sim.jobs, {"w:r": handle}, "q", concurrency=PRODUCERS, clock=sim.clock):
            await done.wait()
        assert tasks <= 2.3 * JOBS
        assert counts["hops"] <= JOBS // PRODUCERS

    run()
