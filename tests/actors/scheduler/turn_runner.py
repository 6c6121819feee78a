"""Run a scheduler's turns without the runtime, on a real memory store with controlled time and randomness."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

import msgspec

from tocsin.actors.runtime.overlay import CLOSED, ActorStorage, Layer
from tocsin.actors.scheduler.integrity.invariants import check
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.validation import new_job
from tocsin.actors.scheduler.state.rebuild import load
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.claim import claim
from tocsin.actors.scheduler.transitions.settle import AttemptResult, settle
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.storage.api import Batch, OrderedStore, StoreView
from tocsin.storage.memory import MemoryProvider

T = TypeVar("T")
NOW = 1_800_000_000_000


class Context:
    """The part of ActorContext that the scheduler's turns use."""

    def __init__(self, storage: ActorStorage, random: Random) -> None:
        self.storage, self.random, self.epoch, self._seq = storage, random, 1, 0
        self.activation = "runner"

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq


class TurnRunner:
    """Runs turns one after another, each committed before the next, and counts the rows they write."""

    def __init__(self, store: OrderedStore, view: StoreView, storage: ActorStorage, random: Random) -> None:
        self.now = NOW
        self.rows = 0
        self.state = SchedulerState(storage)
        self.view = view
        self.store = store
        self.random = random
        self._storage = storage
        self._context: Any = Context(storage, random)

    @classmethod
    async def open(cls, provider: MemoryProvider, seed: int = 0) -> TurnRunner:
        storage = ActorStorage()
        store = await provider.open("scheduler/runner")
        await storage.open(store)
        runner = cls(store, provider.view("scheduler/runner"), storage, Random(seed))
        await runner.turn(lambda turn: load(turn.state))
        return runner

    async def reload(self) -> None:
        """Forget memory; read it from the rows."""
        self.state = SchedulerState(self._storage)
        await self.turn(lambda turn: load(turn.state))

    async def turn(self, work: Callable[[Turn], Awaitable[T]]) -> T:
        layer = self._storage.layer = Layer(asyncio.current_task())
        result = await work(Turn(self.state, self.now, self.now, self._context, "this-process"))
        await self.state.close()
        self._storage.layer = CLOSED
        self.rows += len(layer.puts) + len(layer.deletes)
        await self.store.commit(Batch(layer.puts, layer.deletes))
        return result

    async def run_due(self, most: int) -> None:
        """Claim in one turn, settle as done in another."""
        claims = await self.turn(lambda turn: claim(turn, most))
        ends = [AttemptResult(one.job, one.token, AttemptOutcome(Verdict.DONE, status=200)) for one in claims]
        await self.turn(lambda turn: settle(turn, ends))

    async def sound(self) -> bool:
        """No invariant is broken, but for rows that were set aside."""
        return [fault for fault in await self.faults() if "bad/" not in fault] == []

    async def faults(self) -> list[str]:
        """Broken invariants, but for the stored wake time, which the actor sets."""
        return [fault for fault in await check(self.view, 0) if "wake_at" not in fault]

    def job(self, job_id: str | None = None, *, delay: int = 0, conflict: str = "error", **options: Any) -> NewJob:
        made = new_job(
            function_path="work:run",
            workflow=None,
            args=b"{}",
            scheduled_for=self.now + delay,
            enqueued_at=self.now,
            minted=f"m{self.random.getrandbits(64):016x}",
            options={"id": job_id, **options},
        )
        return msgspec.structs.replace(made, on_conflict=conflict)
