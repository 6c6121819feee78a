"""Pull turns against a plain model: random claims, ends and cancels; all invariants of the rows hold after each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.turn_runner import TurnRunner
from tocsin.actors.scheduler.actor.expiry import end_leases, run_timers
from tocsin.actors.scheduler.actor.pull import Given, give_back, pull
from tocsin.actors.scheduler.inflight.activity import Activities
from tocsin.actors.scheduler.inflight.waiting_claims import PullClaim, WaitingClaims
from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.rows import JobRow, PoolRow, decode, job_key
from tocsin.actors.scheduler.model.suspects import ALONE, WORKER_SHARE, share_of_level
from tocsin.actors.scheduler.model.validation import follower
from tocsin.actors.scheduler.state import held_jobs
from tocsin.actors.scheduler.state.fronts import ROW_BYTES
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.complete import complete
from tocsin.actors.scheduler.transitions.job import Completion
from tocsin.actors.scheduler.transitions.submit import cancel, submit
from tocsin.dispatch.failure import Failure
from tocsin.dispatch.pulled import Settlement
from tocsin.errors import StaleLeaseError
from tocsin.storage.memory import MemoryProvider

SEEDS = (*range(9), *range(10, 16))
"""Of 9 no job with followers ends well, so it says nothing of chains."""
TURNS = 120
QUEUES = ("q1", "q2", "q3")
POOLS = {"": None, "p1": 1, "p2": 2}
PRIORITY_MS = 30_000
LEASE_MS = 50_000


@dataclass
class Plain:
    """What a job is, said as simply as possible."""

    queue: str
    pool: str
    priority: int
    due: int
    then: tuple[Follower, ...] = ()
    parent: bytes | None = None
    state: str = "waiting"
    losses: int = 0

    @property
    def level(self) -> int:
        """How far it is kept apart, as its losses say."""
        return max(self.losses - 1, 0)

    def order(self, job_id: str) -> tuple[int, str]:
        return self.due - self.priority * PRIORITY_MS, job_id


def shares(jobs: Sequence[Plain]) -> int:
    """Of a worker's share of suspects."""
    return sum(share_of_level(job.level) for job in jobs)


@dataclass
class Holding:
    claim: Claim
    worker: str
    orphan: bool = False


@dataclass
class Model:
    """The plain model and the real rows, driven together."""

    runner: TurnRunner
    random: Random
    jobs: dict[str, Plain] = field(default_factory=dict)
    held: dict[str, Holding] = field(default_factory=dict)
    made: int = 0
    links: int = 0
    look_again_s: float = 60.0

    def __post_init__(self) -> None:
        activities = Activities(self.now_ms, self.monotonic, ())
        self.pulls = WaitingClaims("runner", self._post, asyncio.ensure_future, None, self, activities, self._back)

    async def _back(self, leases: Sequence[str]) -> None:
        raise AssertionError(f"no other host is there: {leases}")

    def _post(self, event: object) -> asyncio.Future[Any]:
        raise AssertionError(f"nobody goes away here: {event}")

    def now_ms(self) -> int:
        return self.runner.now

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")

    def rooms(self) -> dict[str, int | None]:
        held = Counter(one.claim.job.pool for one in self.held.values())
        return {name: None if cap is None else cap - held[name] for name, cap in POOLS.items()}

    def startable(self) -> list[str]:
        rooms = self.rooms()
        return [
            job_id
            for job_id, job in self.jobs.items()
            if job.state == "waiting" and job.due <= self.runner.now and rooms[job.pool] != 0
        ]

    # ---- Operations ------------------------------------------------------------------------------

    async def submit(self) -> None:
        self.made += 1
        job_id = f"j{self.made}"
        job = Plain(
            self.random.choice(QUEUES),
            self.random.choice(list(POOLS)),
            self.random.choice((0, 0, 9, -3)),
            self.runner.now + self.random.randrange(-40_000, 40_000),
            tuple(self.following(2)),
        )
        options: dict[str, Any] = {
            "queue": job.queue,
            "pool": job.pool or None,
            "priority": job.priority,
            "then": job.then,
        }
        new = self.runner.job(job_id, delay=job.due - self.runner.now, **options)
        await self.runner.turn(lambda turn: submit(turn, [new]))
        self.jobs[job_id] = job

    def following(self, levels: int) -> list[Follower]:
        found = []
        for _ in range(self.random.choice((0, 0, 1, 2)) if levels else 0):
            self.made += 1
            minted = f"t{self.made}"
            options: dict[str, Any] = {"queue": self.random.choice(QUEUES), "then": self.following(levels - 1)}
            delay = self.random.choice((0, 20_000))
            found.append(
                follower(
                    function_path="w:then", workflow=None, args=b"{}", delay_ms=delay, minted=minted,
                    options=options,
                )
            )  # fmt: skip
        return found

    async def pull(self) -> None:
        claims = []
        for _ in range(self.random.randint(1, 4)):
            named = self.random.choice((None, None, ("q1",), ("q2", "q3")))
            exclude = frozenset({"q2"}) if named is None and self.random.random() < 0.3 else frozenset()
            worker = self.random.choice(("", "w1", "w2", "w3"))
            claims.append(PullClaim(named, exclude, self.random.randint(1, 4), LEASE_MS, worker))
            self.pulls.enter(claims[-1])
        given: Given = []
        while await self.runner.turn(lambda turn: pull(turn, self.pulls, given)):
            pass
        self.pulls.deliver(given, 0.0)
        for claim, jobs in given:
            assert 1 <= len(jobs) <= claim.most
            for one in jobs:
                self.take(claim, one)
        self.nothing_is_left(claims)
        for claim in claims:
            self.pulls.leave(claim)

    def take(self, claim: PullClaim, one: Claim) -> None:
        job = self.jobs[one.job.id]
        assert job.state == "waiting" and job.due <= self.runner.now and claim.takes(job.queue)
        assert (one.parent_result or None) == job.parent
        job.state = "running"
        self.held[one.token] = Holding(one, claim.worker)
        assert all(room is None or room >= 0 for room in self.rooms().values())
        for other_id, other in self.jobs.items():
            if other.state != "waiting" or other.due > self.runner.now:
                continue
            if (other.queue, other.pool, other.level) == (job.queue, job.pool, job.level):
                assert self.given_too(other_id) or job.order(one.job.id) < other.order(other_id)

    def given_too(self, job_id: str) -> bool:
        """In this turn, and not looked at yet."""
        return self.runner.state.lease_of(job_id) is not None

    def nothing_is_left(self, claims: list[PullClaim]) -> None:
        mine: dict[str, list[Plain]] = {}
        for one in self.held.values():
            mine.setdefault(one.worker, []).append(self.jobs.get(one.claim.job.id) or Plain("", "", 0, 0))
        for worker, jobs in mine.items():
            assert not worker or len(jobs) == 1 or all(job.level < ALONE for job in jobs), f"{worker} has one alone"
            assert not worker or shares(jobs) <= WORKER_SHARE, f"{worker} has too many suspects"
        for claim in claims:
            if claim.answer.done():
                continue
            if self.pulls.kept_free is not None and self.pulls.kept_free[1] == claim.worker:
                continue  # until it can have the job that must run alone
            busy = mine.get(claim.worker, []) if claim.worker else []
            if any(job.level == ALONE for job in busy):
                continue
            for job_id in self.startable():
                job = self.jobs[job_id]
                alone, too_many = job.level == ALONE, job.level and shares([*busy, job]) > WORKER_SHARE
                assert not claim.takes(job.queue) or (busy and (alone or too_many)), (
                    f"{job_id} may start, and one waits"
                )

    async def end(self) -> None:
        if not self.held:
            return
        token = self.random.choice(sorted(self.held))
        one = self.held.pop(token)
        job_id = one.claim.job.id
        ok = self.random.random() < 0.7
        result = msgspec.json.encode({"of": job_id}) if self.random.random() < 0.5 else None
        said = Completion(
            job_id, token, ok, Failure("why"), charge=self.random.random() < 0.5, delay_ms=1_000, result=result
        )
        [settled] = await self.runner.turn(lambda turn: complete(turn, [said]))
        assert isinstance(settled, Settlement)
        if one.orphan:
            assert settled.state == "cancelled"
            return
        job = self.jobs[job_id]
        assert settled.state == ("done" if ok else "retrying") or job_id in await self.dead()
        if ok:
            self.start(job_id, self.jobs.pop(job_id), result)
        else:
            job.state, job.due = "waiting", self.runner.now + 1_000
            await self.drop_dead()
        await self.refused(job_id, token)

    def start(self, parent: str, job: Plain, result: bytes | None) -> None:
        for one in job.then:
            self.links += 1
            due = self.runner.now + one.delay_ms
            self.jobs[one.job.id] = Plain(one.job.queue, "", 0, due, one.then, result)

    async def refused(self, job_id: str, token: str) -> None:
        """A wrong lease changes nothing."""
        before = await self.runner.view.scan(b"", b"\xff", limit=10_000)
        [answer] = await self.runner.turn(lambda turn: complete(turn, [Completion(job_id, token[:-1] + "x")]))
        assert isinstance(answer, StaleLeaseError)
        assert await self.runner.view.scan(b"", b"\xff", limit=10_000) == before

    async def dead(self) -> set[str]:
        return {key[5:].decode() for key, _ in await self.runner.view.scan(b"dead/", b"dead0", limit=1_000)}

    async def drop_dead(self) -> None:
        for job_id in await self.dead():
            self.jobs.pop(job_id, None)

    async def give_back(self) -> None:
        tokens = [token for token in sorted(self.held) if self.random.random() < 0.3]
        await self.runner.turn(lambda turn: give_back(turn, tokens))
        for token in tokens:
            one = self.held.pop(token)
            if not one.orphan:
                self.jobs[one.claim.job.id].state = "waiting"

    async def cancel(self) -> None:
        if not self.jobs:
            return
        job_id = self.random.choice(sorted(self.jobs))
        answer = await self.runner.turn(lambda turn: cancel(turn, job_id))
        assert answer.cancelled and answer.was_running == (self.jobs.pop(job_id).state == "running")
        for one in self.held.values():
            one.orphan = one.orphan or one.claim.job.id == job_id

    async def time(self) -> None:
        self.runner.now += self.random.randrange(0, 60_000)
        over = [token for token, (_, lease) in self.runner.state.leases.items() if lease.until <= self.runner.now]

        async def work(turn: Any) -> None:
            await end_leases(turn, lambda token: False)
            await run_timers(turn)

        await self.runner.turn(work)
        for token in over:
            one = self.held.pop(token)
            if not one.orphan:
                job = self.jobs[one.claim.job.id]
                job.state, job.losses = "waiting", job.losses + 1
        await self.drop_dead()

    async def reopen(self) -> None:
        before = self.runner.state
        await self.runner.reload()
        after = self.runner.state
        assert (after.pulled_by, after.alone) == (before.pulled_by, before.alone)
        assert after.suspects_of == before.suspects_of
        assert after.lines.in_queue == before.lines.in_queue and after.lines.holders == before.lines.holders

    async def compare(self) -> None:
        assert await self.runner.faults() == []
        counters = self.runner.state.counters
        states = Counter(job.state for job in self.jobs.values())
        orphans = sum(one.orphan for one in self.held.values())
        assert (counters.waiting, counters.leased, counters.orphaned) == (states["waiting"], states["running"], orphans)
        await self.compare_kept()

    async def compare_kept(self) -> None:
        """Jobs that are kept in memory are what their rows say, and run under leases that are alive."""
        state, kept = self.runner.state, self.runner.state.held._jobs
        assert {token for token in kept if state.leases[token][1].orphan} == set()
        keys = [job_key(known.job.id) for known in kept.values()]
        stored = await self.runner.view.get(keys)
        assert [decode(JobRow, key, stored[key]) for key in keys] == [known.job for known in kept.values()]
        size = sum(ROW_BYTES + len(known.job.args) for known in kept.values())
        assert state.held._size == size <= held_jobs.BYTES


@pytest.mark.anyio
@pytest.mark.parametrize("seed", SEEDS)
async def test_pull_turns_agree_with_a_plain_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(held_jobs, "BYTES", 512 * 1024 if seed % 2 else 3 * ROW_BYTES)
    provider = MemoryProvider()
    await provider.start()
    model = Model(await TurnRunner.open(provider, seed), random)
    for name, cap in POOLS.items():
        if cap is not None:
            await model.runner.turn(_set_pool(model.runner, name, cap))
    operations = [model.submit, model.pull, model.end, model.give_back, model.cancel, model.time, model.reopen]
    for _ in range(TURNS):
        (operation,) = random.choices(operations, [30, 25, 20, 5, 5, 12, 3])
        await operation()
        await model.compare()
    assert model.links > 0
    await provider.stop()


def _set_pool(runner: TurnRunner, name: str, cap: int) -> Callable[[Any], Any]:
    async def work(turn: object) -> None:
        runner.state.put_pool(name, PoolRow(cap, False, "put"))

    return work
