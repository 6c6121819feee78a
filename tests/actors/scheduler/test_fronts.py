"""The first jobs of a bucket, kept in memory: they are what the rows say, bounded, and save a claim its reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.turn_runner import NOW, TurnRunner
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import JobRow, bad_key, decode, job_key, line_key, lines_key, split_line_tail
from tocsin.actors.scheduler.state import fronts as limits
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.claim import Ask, Claim, claim, claim_asked
from tocsin.actors.scheduler.transitions.pools import reschedule
from tocsin.actors.scheduler.transitions.settle import AttemptResult, settle
from tocsin.actors.scheduler.transitions.submit import cancel, submit
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.storage.api import Batch, after
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio


class CountingProvider(MemoryProvider):
    """Counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.hops = 0

    async def hop(self) -> None:
        self.hops += 1
        await super().hop()

    async def write(self, writes: Any) -> None:
        await super().write(writes)
        self.hops -= 1


@asynccontextmanager
async def runner(seed: int = 0) -> AsyncIterator[tuple[TurnRunner, CountingProvider]]:
    provider = CountingProvider()
    await provider.start()
    yield await TurnRunner.open(provider, seed), provider
    await provider.stop()


def submitting(jobs: Sequence[NewJob]) -> Callable[[Turn], Awaitable[object]]:
    return lambda turn: submit(turn, jobs)


def cancelling(job_id: str) -> Callable[[Turn], Awaitable[object]]:
    return lambda turn: cancel(turn, job_id)


def reading(ids: Sequence[str]) -> Callable[[Turn], Awaitable[object]]:
    return lambda turn: turn.jobs(ids)


async def agree(here: TurnRunner) -> None:
    """Assert that each front is what the rows of its bucket begin with, and that memory is bounded."""
    state, size = here.state, 0
    for line in state.lines:
        for bucket in line.buckets.values():
            front = state.fronts._fronts.get(bucket.prefix)
            rows = await here.view.scan(bucket.prefix, after(bucket.prefix), limit=10_000)
            assert bucket.count == len(rows)
            if front is None:
                continue
            stands = [split_line_tail(key) for key, _ in rows]
            assert 0 < len(front.places) <= front.most <= limits.ROWS
            assert front.places == stands[: len(front.places)]
            assert set(front.jobs) == {job_id for _, job_id in front.places}
            keys = [job_key(job_id) for job_id in front.jobs]
            stored = await here.view.get(keys)
            known = await here.turn(reading(list(front.jobs)))
            assert known == front.jobs
            assert [decode(JobRow, key, stored[key]) for key in keys] == [one.job for one in front.jobs.values()]
            size += sum(limits.ROW_BYTES + len(one.job.args) for one in front.jobs.values())
    assert state.fronts._size == size <= limits.BYTES
    assert all(prefix in {b.prefix for line in state.lines for b in line.buckets.values() if b.count}
               for prefix in state.fronts._fronts)  # fmt: skip


class Life:
    """What may happen to jobs, at random."""

    def __init__(self, here: TurnRunner, random: Random) -> None:
        self.here, self.random = here, random
        self.ids: list[str] = []
        self.running: list[Claim] = []

    async def step(self) -> None:
        does: Callable[[], Awaitable[None]] = self.random.choice(
            [
                self.submit,
                self.submit,
                self.cancel,
                self.move,
                self.claim,
                self.claim,
                self.pull,
                self.settle,
                self.later,
            ]
        )
        await does()

    async def submit(self) -> None:
        options: dict[str, Any] = self.random.choice([{}, {}, {"pool": "p", "max_concurrency": 3}, {"queue": "q"}])
        jobs = [
            self.here.job(
                delay=self.random.choice([0, 0, 1, self.random.randrange(-5_000, 20_000)]),
                priority=self.random.choice([0, 0, 5]),
                **(options | self.random.choice([{}, {"labels": ["a"]}, {"keep_result_ms": 3_600_000}])),
            )
            for _ in range(self.random.choice([1, 1, 5, 40]))
        ]
        self.ids += [new.job.id for new in jobs]
        await self.here.turn(submitting(jobs))

    async def cancel(self) -> None:
        for _ in range(3):
            if self.ids:
                one = self.ids.pop(self.random.randrange(len(self.ids)))
                await self.here.turn(cancelling(one))

    async def move(self) -> None:
        if self.ids:
            one, due = self.random.choice(self.ids), self.here.now + self.random.randrange(-5_000, 20_000)
            await self.here.turn(lambda turn: reschedule(turn, one, due))

    async def claim(self) -> None:
        most = self.random.choice([1, 3, 20])
        self.running += await self.here.turn(lambda turn: claim(turn, most))

    async def pull(self) -> None:
        async def pulled(turn: Turn) -> list[list[Claim]]:
            buckets = turn.state.lines.pulled.pick(turn.now, "q", 4, Counter())
            return await claim_asked(turn, [Ask(buckets, 4, [("w", 60_000)] * 4)]) if buckets else [[]]

        self.running += (await self.here.turn(pulled))[0]

    async def settle(self) -> None:
        ends = [AttemptResult(one.job, one.token, AttemptOutcome(self.verdict(), status=200)) for one in self.running]
        self.running = []
        await self.here.turn(lambda turn: settle(turn, ends))

    def verdict(self) -> Verdict:
        return self.random.choice([Verdict.DONE, Verdict.FAILED, Verdict.UNREACHABLE, Verdict.DEAD])

    async def later(self) -> None:
        self.here.now += self.random.choice([1, 500, 10_000])
        if self.random.random() < 0.1:
            await self.here.reload()


@pytest.mark.parametrize("seed", range(12))
async def test_a_front_is_what_the_rows_say_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(limits, "ENTERED", random.choice([2, 32]))
    monkeypatch.setattr(limits, "ROWS", random.choice([3, 20, 256]))
    monkeypatch.setattr(limits, "BYTES", random.choice([3_000, 20_000, 256 * 1024]))
    async with runner(seed) as (here, _):
        life = Life(here, random)
        for _ in range(120):
            await life.step()
            await agree(here)
        assert await here.faults() == []


async def test_a_job_that_is_due_at_once_is_claimed_without_a_read() -> None:
    async with runner() as (here, provider):
        await here.turn(lambda turn: submit(turn, [here.job()]))
        before = provider.hops
        for _ in range(20):
            await here.turn(lambda turn: submit(turn, [here.job()]))
            await here.run_due(1)

        assert provider.hops == before


async def test_a_long_backlog_is_read_once_for_several_claims() -> None:
    async with runner() as (here, provider):
        for _ in range(10):
            await here.turn(lambda turn: submit(turn, [here.job() for _ in range(100)]))
        await here.reload()
        before = provider.hops
        for _ in range(50):
            await here.run_due(20)

        assert here.state.counters.done == 1_000
        assert provider.hops - before <= 2 * 12  # two hops for each 160 jobs, and those of the first look


async def test_a_slot_that_is_handed_over_costs_a_read_now_and_then() -> None:
    async with runner() as (here, provider):
        jobs = [here.job(pool="p", max_concurrency=1) for _ in range(400)]
        await here.turn(submitting(jobs))
        await here.reload()
        before = provider.hops
        for _ in range(400):
            await here.run_due(1)

        assert here.state.counters.done == 400
        assert provider.hops - before <= 2 * 70


@pytest.mark.parametrize("missing", [0, 5, 19])
async def test_a_job_that_is_missing_behind_the_first_ones_is_set_aside_in_its_turn(missing: int) -> None:
    async with runner() as (here, _):
        jobs = [here.job(f"j{n:02d}") for n in range(20)]
        await here.turn(submitting(jobs))
        await here.store.commit(Batch({}, {job_key(f"j{missing:02d}")}))
        await here.reload()
        for _ in range(22):
            await here.run_due(1)

        assert here.state.counters.done == 19 and here.state.counters.waiting == 0
        assert [key for key, _ in await here.view.scan(b"bad/line/", b"bad/line0", limit=9)] == [
            bad_key(line_key("", "", 0, NOW, f"j{missing:02d}"))
        ]


async def test_long_jobs_are_not_read_far_ahead() -> None:
    async with runner() as (here, _):
        args = b'"' + b"x" * 60_000 + b'"'
        short = [here.job() for _ in range(200)]
        jobs = [msgspec.structs.replace(new, job=msgspec.structs.replace(new.job, args=args)) for new in short]
        for start in range(0, 200, 20):
            await here.turn(submitting(jobs[start : start + 20]))
        await here.reload()
        await here.run_due(1)
        assert here.state.fronts.ahead(1, 1) <= 5
        await agree(here)


async def test_a_scheduler_that_only_accepts_holds_few_jobs_in_memory() -> None:
    async with runner() as (here, _):
        for n in range(50):
            await here.turn(submitting([here.job(delay=60_000 - n - k * 7) for k in range(10)]))
        [front] = here.state.fronts._fronts.values()

        assert len(front.places) == limits.ENTERED
        await agree(here)


async def test_many_fronts_share_one_bound_and_the_last_one_read_stays() -> None:
    async with runner() as (here, _):
        for _ in range(10):
            jobs = [here.job(pool=f"p{n}", max_concurrency=1) for n in range(300)]
            await here.turn(submitting(jobs))
        await here.reload()
        for _ in range(10):
            await here.run_due(300)
        await agree(here)
        assert here.state.counters.done == 3_000


async def test_a_rebuild_leaves_no_front_of_jobs_without_their_args() -> None:
    async with runner() as (here, _):
        await here.turn(lambda turn: submit(turn, [here.job("a")]))
        lost = line_key("", "", 0, NOW, "a")
        await here.store.commit(Batch({lines_key("", ""): b"?"}, {lost}))
        await here.reload()
        claims = await here.turn(lambda turn: claim(turn, 1))

        assert [one.args for one in claims] == [b"{}"]
