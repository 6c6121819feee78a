"""The scheduler's rows against a plain model: random turns, every invariant checked after each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from tests.actors.scheduler.turn_runner import TurnRunner
from tocsin.actors.scheduler.actor.expiry import end_leases, run_timers
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.model.rows import PoolRow
from tocsin.actors.scheduler.model.suspects import LEVELS
from tocsin.actors.scheduler.transitions.claim import Claim, claim, claim_suspects
from tocsin.actors.scheduler.transitions.settle import AttemptResult, settle
from tocsin.actors.scheduler.transitions.submit import cancel, cancel_dead, retry_dead, submit
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.storage.memory import MemoryProvider

SEEDS = range(40)
TURNS = 150
LANES = 6
POOLS = {"": None, "p1": 1, "p2": 2, "p3": 3}
PRIORITY_MS = 30_000


@dataclass
class Plain:
    """What a job is, said as simply as possible."""

    pool: str
    priority: int
    due: int
    expires: int | None
    state: str = "waiting"
    attempts: int = 0
    losses: int = 0


class Model:
    """The plain model and the real rows, driven together."""

    def __init__(self, runner: TurnRunner, random: Random) -> None:
        self.runner, self.random = runner, random
        self.jobs: dict[str, Plain] = {}
        self.running: dict[str, Claim] = {}  # by token, orphans too
        self.caps = {name: cap for name, cap in POOLS.items() if cap is not None}
        self.paused: set[str] = set()

    async def set_pool(self, name: str) -> None:
        row = PoolRow(self.caps[name], name in self.paused, "put")

        async def work(turn: object) -> None:
            self.runner.state.put_pool(name, row)

        await self.runner.turn(work)

    def held(self) -> Counter[str]:
        return Counter(one.job.pool for one in self.running.values())

    def startable(self) -> list[str]:
        """Ids in the order they may start, one claim's worth."""
        now, held = self.runner.now, self.held()
        waiting = sorted(
            (job.due - job.priority * PRIORITY_MS, job_id)
            for job_id, job in self.jobs.items()
            if job.state == "waiting" and job.due <= now and job.losses < 2
        )
        start: list[str] = []
        for _, job_id in waiting:
            job = self.jobs[job_id]
            if job.pool and (job.pool in self.paused or held[job.pool] >= self.caps[job.pool]):
                continue
            held[job.pool] += 1
            start.append(job_id)
        return start

    # ---- Operations ------------------------------------------------------------------------------

    async def schedule(self) -> None:
        job_id, pool = f"j{self.random.randrange(25)}", self.random.choice(list(POOLS))
        delay = self.random.randrange(-40_000, 90_000)
        priority = self.random.choice([0, 0, 0, 9, -3])
        expires = self.random.choice([None, None, self.runner.now + max(delay, 0) + self.random.randrange(1, 90_000)])
        conflict = self.random.choice(["error", "error", "keep", "replace"])
        options = {"pool": pool or None, "priority": priority, "expires_at": expires}
        new = self.runner.job(job_id, delay=delay, conflict=conflict, **options)
        answer = (await self.runner.turn(lambda turn: submit(turn, [new])))[0]
        there = self.jobs.get(job_id)
        free = there is None or (conflict == "replace" and there.state == "waiting")
        kept = there is not None and conflict == "keep" and there.state != "dead"
        assert isinstance(answer, Scheduled) == (free or kept), (answer, there, conflict)
        if free:
            self.jobs[job_id] = Plain(pool, priority, self.runner.now + delay, expires)

    async def claim(self) -> None:
        expected = self.startable()
        room = LANES - len(self.running)
        claims = await self.runner.turn(lambda turn: claim(turn, room)) if room > 0 else []
        looked = expected[:room] if room > 0 else []
        gone = {i for i in looked if (at := self.jobs[i].expires) is not None and at <= self.runner.now}
        assert [one.job.id for one in claims] == [job_id for job_id in looked if job_id not in gone]
        for job_id in gone:
            del self.jobs[job_id]
        if not self.running and not claims:
            claims = [one for level in LEVELS for one in await self.claim_suspect(level)]
        for one in claims:
            self.jobs[one.job.id].state = "running"
            self.running[one.token] = one
        assert all(count <= self.caps[pool] for pool, count in self.held().items() if pool) or self.lowered

    async def claim_suspect(self, level: int) -> list[Claim]:
        """The first of those that hosts were lost with, by how often that was."""
        now, held = self.runner.now, self.held()
        alone = sorted(
            (job.due - job.priority * PRIORITY_MS, job_id)
            for job_id, job in self.jobs.items()
            if job.state == "waiting" and job.due <= now and job.losses == level + 1
            if not job.pool or (job.pool not in self.paused and held[job.pool] < self.caps[job.pool])
        )
        claims = await self.runner.turn(lambda turn: claim_suspects(turn, level, 1))
        if not alone:
            assert claims == []
            return []
        orders = {order for order, _ in alone}
        taken = {job_id for order, job_id in alone if order == min(orders)}
        expired = {i for i in taken if (at := self.jobs[i].expires) is not None and at <= now}
        assert {one.job.id for one in claims} <= taken - expired
        if not claims:
            there = await self.there()
            (gone,) = (job_id for job_id in expired if job_id not in there)
            del self.jobs[gone]
        return claims

    async def there(self) -> set[str]:
        rows = await self.runner.view.scan(b"job/", b"job0", limit=1000)
        return {key[4:].decode() for key, _ in rows}

    lowered = False

    async def settle(self) -> None:
        if not self.running:
            return
        token = self.random.choice(sorted(self.running))
        verdict = self.random.choice([Verdict.DONE, Verdict.DONE, Verdict.FAILED, Verdict.DECLINED, Verdict.DEAD])
        one = self.running.pop(token)
        await self.runner.turn(
            lambda turn: settle(turn, [AttemptResult(one.job, token, AttemptOutcome(verdict, "why"))])
        )
        job = self.jobs.get(one.job.id)
        if job is None or job.state != "running" or await self._other_incarnation(one):
            return
        if verdict is Verdict.DONE:
            del self.jobs[one.job.id]
        elif verdict is Verdict.DEAD or (verdict is Verdict.FAILED and job.attempts == 5):
            job.state = "dead"
        elif job.expires is not None and job.expires <= self.runner.now:
            del self.jobs[one.job.id]
        else:
            job.attempts += verdict is Verdict.FAILED
            step = job.attempts if verdict is Verdict.FAILED else job.attempts + 1
            job.state, job.due = "waiting", self.runner.now + 30_000 * 2 ** (step - 1)

    async def _other_incarnation(self, one: Claim) -> bool:
        return any(token != one.token and other.job.id == one.job.id for token, other in self.running.items()) or (
            one.token in self.orphans
        )

    orphans: frozenset[str] = frozenset()

    async def cancel(self) -> None:
        job_id = f"j{self.random.randrange(25)}"
        answer = await self.runner.turn(lambda turn: cancel(turn, job_id))
        job = self.jobs.get(job_id)
        live = job is not None and job.state != "dead"
        assert answer.cancelled == live
        if job is not None and live:
            assert answer.was_running == (job.state == "running")
            if job.state == "running":
                mine = {t for t, one in self.running.items() if one.job.id == job_id}
                self.orphans = self.orphans | mine
            del self.jobs[job_id]

    async def dead(self) -> None:
        job_id = f"j{self.random.randrange(25)}"
        job = self.jobs.get(job_id)
        is_dead = job is not None and job.state == "dead"
        if self.random.random() < 0.5:
            assert await self.runner.turn(lambda turn: cancel_dead(turn, job_id)) == is_dead
            if is_dead:
                del self.jobs[job_id]
            return
        retried = await self.runner.turn(lambda turn: retry_dead(turn, job_id))
        assert (retried is not None) == is_dead
        if job is not None and is_dead:
            job.state, job.due, job.attempts, job.losses, job.expires = "waiting", self.runner.now, 0, 0, None

    async def time(self) -> None:
        self.runner.now += self.random.randrange(0, 60_000)
        now = self.runner.now
        over = [t for t, one in self.running.items() if self.runner.state.leases[t][1].until <= now]

        async def work(turn: object) -> None:
            await end_leases(turn, lambda token: False)  # type: ignore[arg-type]
            await run_timers(turn)  # type: ignore[arg-type]

        await self.runner.turn(work)
        for token in over:
            one = self.running.pop(token)
            if token not in self.orphans:
                self._lost(one.job.id)
        for job_id, job in list(self.jobs.items()):
            if job.state == "waiting" and job.expires is not None and job.expires <= now:
                del self.jobs[job_id]

    def _lost(self, job_id: str) -> None:
        job = self.jobs[job_id]
        job.losses += 1
        if job.losses == 5:
            job.state = "dead"
        elif job.expires is not None and job.expires <= self.runner.now:
            del self.jobs[job_id]
        else:
            job.state = "waiting"

    async def pool(self) -> None:
        name = self.random.choice(list(self.caps))
        if self.random.random() < 0.5:
            self.paused ^= {name}
        else:
            self.caps[name] = self.random.randrange(0, 4)
            self.lowered = True
        await self.set_pool(name)

    async def reopen(self) -> None:
        """The actor leaves memory and comes back: everything is in the rows."""
        before = self.runner.state
        await self.runner.reload()
        after = self.runner.state
        assert after.counters == before.counters
        assert {t: lease for t, (_, lease) in after.leases.items()} == {t: x for t, (_, x) in before.leases.items()}
        assert after.lines.holders == before.lines.holders

    # ---- Comparison ------------------------------------------------------------------------------

    async def compare(self) -> None:
        assert await self.runner.faults() == []
        counters = self.runner.state.counters
        states = Counter(job.state for job in self.jobs.values())
        assert (counters.waiting, counters.leased, counters.dead) == (
            states["waiting"],
            states["running"],
            states["dead"],
        )


@pytest.mark.anyio
@pytest.mark.parametrize("seed", SEEDS)
async def test_rows_agree_with_a_plain_model(seed: int) -> None:
    random = Random(seed)
    provider = MemoryProvider()
    await provider.start()
    model = Model(await TurnRunner.open(provider, seed), random)
    for name in model.caps:
        await model.set_pool(name)
    operations = [model.schedule, model.claim, model.settle, model.cancel, model.dead, model.time, model.pool]
    weights = [30, 18, 18, 12, 6, 10, 5]
    for _ in range(TURNS):
        (operation,) = random.choices([*operations, model.reopen], [*weights, 2])
        await operation()
        await model.compare()
    await provider.stop()
