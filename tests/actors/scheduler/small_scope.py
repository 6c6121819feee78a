"""Every interleaving of a small world: two jobs in one pool of one slot, two attempts each, an id used again, a
crash anywhere. States are explored breadth first on the real turns and rows; alike ones are visited once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.actors.scheduler.row_snapshot import Snapshot, snapshot
from tocsin.actors.runtime.overlay import ActorStorage, Layer
from tocsin.actors.scheduler.actor.expiry import end_leases, return_unsent
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.actors.scheduler.model.validation import new_job
from tocsin.actors.scheduler.state.rebuild import load
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.claim import claim
from tocsin.actors.scheduler.transitions.settle import AttemptResult, settle
from tocsin.actors.scheduler.transitions.submit import cancel, submit
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.retry import Retry
from tocsin.storage.api import Batch
from tocsin.storage.memory import MemoryDisk, MemoryProvider, SortedMap

NAME = "scheduler/small"
START = 1_800_000_000_000
VERDICTS = (Verdict.DONE, Verdict.FAILED, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Attempt:
    """A callback that was launched; `running` once the receiver has it."""

    token: str
    job: JobRow
    running: bool = False
    heard: bool = False
    """The host knows how it ended (or died): only the receiver may still be at it."""


@dataclass(frozen=True)
class State:
    """Rows on disk, and what the world around them remembers."""

    rows: tuple[tuple[bytes, bytes], ...] = ()
    now: int = START
    seq: int = 0
    life: int = 0
    attempts: tuple[Attempt, ...] = ()
    made: tuple[str, ...] = ()
    """Ids as they were scheduled, the same one again after a cancel or an end."""
    cancelled: frozenset[str] = frozenset()
    """Incarnations whose cancel was answered while they waited."""
    trail: tuple[str, ...] = field(default=(), compare=False)


@dataclass
class Bounds:
    """How far the world goes."""

    schedules: int = 3
    dispatches: int = 2
    crashes: int = 1
    ids: tuple[str, ...] = ("a", "b")


class _Context:
    """The part of ActorContext that turns use; the sequence goes on over states."""

    def __init__(self, storage: ActorStorage, state: State) -> None:
        self.storage, self.random, self.epoch, self.seq = storage, Random(0), 1 + state.life, state.seq
        self.activation = str(self.epoch)  # so that states are told apart, and ordered, by what came first

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq


class Explorer:
    """Breadth first; `states` counts what was visited, `turns` the real turns run."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.states = self.turns = self.ended = 0

    async def explore(self) -> None:
        first = State()
        seen = {self._shape(first, Snapshot())}
        todo = deque([first])
        while todo:
            state = todo.popleft()
            self.states += 1
            steps = await self._steps(state)
            if not steps:
                await self._assert_over(state)
            for after_it in steps:
                taken = await self._look(after_it)
                shape = self._shape(after_it, taken)
                if shape not in seen:
                    seen.add(shape)
                    todo.append(after_it)
            self.ended += not steps

    async def _assert_over(self, state: State) -> None:
        """Where nothing can happen any more, nothing is left to happen."""
        taken = await self._snapshot(state)
        assert not taken.waiting and not taken.leases, ("stuck", state.trail)
        assert taken.jobs.keys() == taken.dead.keys(), ("neither dead nor gone", state.trail)

    # ---- What may happen -------------------------------------------------------------------------

    async def _steps(self, state: State) -> list[State]:
        found: list[State] = []
        for step in (self._schedule, self._cancel, self._claim, self._receive, self._answer, self._end, self._crash):
            found.extend(await step(state))
        found.extend(await self._pass_time(state))
        return found

    async def _schedule(self, state: State) -> list[State]:
        if len(state.made) >= self.bounds.schedules:
            return []
        found = []
        for job_id in self.bounds.ids:
            new = new_job(
                function_path="f",
                workflow=None,
                args=b"%d" % len(state.made),
                scheduled_for=state.now,
                enqueued_at=state.now,
                minted="",
                options={"id": job_id, "pool": "p", "timeout_ms": 1_000, "retry": Retry(max_retries=1, base_ms=1_000)},
            )
            answers: list[Any] = []

            async def work(turn: Turn, new: Any = new, answers: list[Any] = answers) -> None:
                answers.extend(await submit(turn, [new]))

            after_it = await self._turn(state, f"schedule {job_id}", work)
            if not isinstance(answers[0], Exception):
                found.append(replace(after_it, made=(*state.made, job_id)))
        return found

    async def _cancel(self, state: State) -> list[State]:
        found = []
        for job_id in self.bounds.ids:
            gone: list[str] = []

            async def work(turn: Turn, job_id: str = job_id, gone: list[str] = gone) -> None:
                known = (await turn.jobs([job_id])).get(job_id)
                answer = await cancel(turn, job_id)
                if known is not None and answer.cancelled:
                    gone.append("" if answer.was_running else known.job.incarnation)

            after_it = await self._turn(state, f"cancel {job_id}", work)
            if gone:
                found.append(replace(after_it, cancelled=state.cancelled | {one for one in gone if one}))
        return found

    async def _claim(self, state: State) -> list[State]:
        claims: list[Any] = []

        async def work(turn: Turn) -> None:
            claims.extend(await claim(turn, 2))

        after_it = await self._turn(state, "claim", work)
        if not claims:
            return []
        launched = tuple(Attempt(one.token, one.job) for one in claims)
        return [replace(after_it, attempts=(*state.attempts, *launched))]

    async def _receive(self, state: State) -> list[State]:
        """A callback reaches the receiver."""
        found = []
        for one in state.attempts:
            if one.running or one.heard:
                continue
            self._may_start(state, one)
            found.append(_with(state, one, replace(one, running=True), f"receive {one.token}"))
        return found

    def _may_start(self, state: State, new: Attempt) -> None:
        assert new.job.incarnation not in state.cancelled, ("sent after its cancel was answered", state.trail)
        held = dict(state.rows)
        for other in state.attempts:
            same = other.job.incarnation == new.job.incarnation and other.token != new.token
            if same and other.running:
                key = b"lease/%b/%b" % (other.job.id.encode(), other.token.encode())
                assert key not in held, ("two attempts inside one lease", state.trail)

    async def _answer(self, state: State) -> list[State]:
        """The host hears how an attempt ended; the receiver may go on after a missed deadline."""
        found = []
        for one in state.attempts:
            if one.heard:
                continue
            for verdict in VERDICTS:
                if verdict is not Verdict.FAILED and not one.running:
                    continue
                end = AttemptResult(one.job, one.token, AttemptOutcome(verdict, verdict.value))

                async def work(turn: Turn, end: AttemptResult = end) -> None:
                    await settle(turn, [end])

                after_it = await self._turn(state, f"{verdict.value} {one.token}", work)
                still = verdict is Verdict.UNKNOWN
                found.append(_with(after_it, one, replace(one, heard=True, running=still), None))
        return found

    async def _end(self, state: State) -> list[State]:
        """The receiver ends what the host has given up."""
        return [_with(state, one, None, f"ended {one.token}") for one in state.attempts if one.heard]

    async def _crash(self, state: State) -> list[State]:
        """The host dies: what was on its way is not sent; what runs at the receiver runs on, unheard."""
        if state.life >= self.bounds.crashes:
            return []
        left = tuple(replace(one, heard=True) for one in state.attempts if one.running)
        crashed = replace(state, life=state.life + 1, attempts=left, trail=(*state.trail, "crash"))

        async def work(turn: Turn) -> None:
            await return_unsent(turn, lambda token: False)

        return [await self._turn(crashed, "activate", work)]

    async def _pass_time(self, state: State) -> list[State]:
        """To the next instant that matters: a due time or the end of a lease."""
        taken = await self._snapshot(state)
        instants = [due for *_, due in taken.waiting.values()] + [lease.until for _, _, lease in taken.leases]
        later = [ms for ms in instants if ms > state.now]
        if not later:
            return []
        live = {one.token for one in state.attempts if not one.heard}

        async def work(turn: Turn) -> None:
            await end_leases(turn, lambda token: token in live)

        moved = replace(state, now=min(later))
        return [await self._turn(moved, f"time {min(later) - START}", work)]

    # ---- Machinery -------------------------------------------------------------------------------

    async def _turn(self, state: State, what: str, work: Callable[[Turn], Awaitable[None]]) -> State:
        self.turns += 1
        disk = _disk(state)
        provider = MemoryProvider(disk)
        await provider.start()
        storage = ActorStorage()
        store = await provider.open(NAME)
        await storage.open(store)
        context: Any = _Context(storage, state)
        layer = storage.layer = Layer(asyncio.current_task())
        memory = SchedulerState(storage)
        await load(memory)
        await work(Turn(memory, state.now, state.now, context, f"life-{state.life}"))
        await memory.close()
        await store.commit(Batch(layer.puts, layer.deletes))
        await provider.stop()
        rows = tuple(row for row in disk.maps[NAME].range(b"\x01", b"\xff", 1_000, False) if not _aside(row[0]))
        return replace(state, rows=rows, seq=context.seq, trail=(*state.trail, what))

    async def _snapshot(self, state: State) -> Snapshot:
        provider = MemoryProvider(_disk(state))
        await provider.start()
        taken = await snapshot(provider.view(NAME))
        await provider.stop()
        return taken

    async def _look(self, state: State) -> Snapshot:
        """What must hold in every state."""
        provider = MemoryProvider(_disk(state))
        await provider.start()
        view = provider.view(NAME)
        faults = [one for one in await check(view, 0) if not one.endswith("has no timer")]  # `_aside`
        taken = await snapshot(view)
        await provider.stop()
        assert faults == [], (faults, state.trail)
        assert len(taken.leases) <= 1, ("more than one slot held", state.trail)
        return taken

    def _shape(self, state: State, taken: Snapshot) -> object:
        """States with the same shape have the same futures: names and instants count only by their order."""
        tokens = sorted({token for _, token, _ in taken.leases} | {one.token for one in state.attempts}, key=_rank)
        name = {token: n for n, token in enumerate(tokens)}
        incarnations = sorted(
            {job.incarnation for job in taken.jobs.values()}
            | {one.job.incarnation for one in state.attempts}
            | {lease.incarnation for _, _, lease in taken.leases},
            key=_rank,
        )
        born = {incarnation: n for n, incarnation in enumerate(incarnations)}
        instants = sorted({due for *_, due in taken.waiting.values()} | {le.until for _, _, le in taken.leases})
        when = {ms: (n, ms <= state.now) for n, ms in enumerate(instants)}
        jobs = tuple(
            (job_id, born[job.incarnation], job_id in taken.dead, when.get(_due(taken, job_id)))
            for job_id, job in sorted(taken.jobs.items())
        )
        places = tuple(
            (job_id, at.attempt, at.attempts, at.losses, name.get(at.last_token, -1))
            for job_id, at in sorted(taken.at.items())
        )
        leases = tuple(
            (job_id, name[token], born[le.incarnation], le.kind, le.orphan, le.at.attempts, le.at.losses)
            + when[le.until]
            for job_id, token, le in sorted(taken.leases, key=lambda one: _rank(one[1]))
        )
        attempts = tuple(
            sorted((name[one.token], born[one.job.incarnation], one.running, one.heard) for one in state.attempts)
        )
        cancelled = tuple(sorted(born[one] for one in state.cancelled if one in born))
        return (jobs, places, leases, attempts, cancelled, len(state.made), state.life)


def _with(state: State, old: Attempt, new: Attempt | None, what: str | None) -> State:
    attempts = tuple(one for each in state.attempts for one in ([new] if each == old else [each]) if one is not None)
    trail = state.trail if what is None else (*state.trail, what)
    return replace(state, attempts=attempts, trail=trail)


def _disk(state: State) -> MemoryDisk:
    disk = MemoryDisk()
    rows = disk.maps[NAME] = SortedMap()
    disk.wakes[NAME] = None
    rows.apply(dict(state.rows))
    return disk


def _due(taken: Snapshot, job_id: str) -> int:
    return taken.waiting[job_id][3] if job_id in taken.waiting else -1


def _aside(key: bytes) -> bool:
    """History has no say in what happens next."""
    return key.startswith((b"hist/", b"timer/"))


def _rank(token: str) -> tuple[int, ...]:
    return tuple(int(part) for part in token.replace("-", ".").split(".")[:2])
