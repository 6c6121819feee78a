"""Completions on their way to their scheduler: all that come while it is at work are settled in one turn.

A turn reads what it needs in one hop and writes one batch, so sixty workers that settle at the same time cost little
more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Protocol

from tocsin.actors.scheduler.transitions.events import Complete
from tocsin.actors.scheduler.transitions.job import Completion
from tocsin.dispatch.pulled import Settlement
from tocsin.errors import HostClosedError, NotFoundError, StaleLeaseError, StoreLocked, StoreUnavailable

MOST: Final = 256
MOST_BYTES: Final = 1024 * 1024
"""How many completions one turn settles, and how many bytes of results."""

Answer = Settlement | StaleLeaseError
Waiting = tuple[Completion, asyncio.Future[Answer]]


class Batch:
    """The completions that one turn settles. Others may join until it begins."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: list[Waiting] = []
        self._bytes = 0
        self._begun = False

    def has_room(self, completion: Completion) -> bool:
        """Return whether this one may still join."""
        size = self._bytes + len(completion.result or b"")
        return not self._begun and len(self.waiting) < MOST and (size <= MOST_BYTES or not self.waiting)

    def join(self, one: Waiting) -> None:
        """Add one."""
        self.waiting.append(one)
        self._bytes += len(one[0].result or b"")

    def begin(self) -> Sequence[Completion]:
        """Return all of them to their turn, and let no others join."""
        self._begun = True
        return [completion for completion, _ in self.waiting]


class Owner(Protocol):
    """The owner of completions. They hold a reference, so that it lives until all of them are answered."""

    def complete(self, event: Complete) -> Awaitable[Sequence[Answer]]:
        """Have a batch settled; NotFoundError if nobody has scheduled anything yet."""
        ...


class Completions:
    """The completions of one scheduler on this host. Its turn answers the first of a batch, or all."""

    def __init__(self, owner: Owner, start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._owner, self._start_soon = owner, start_soon
        self._last: Batch | None = None
        self._numbers = count(1)
        self._batches: dict[int, Batch] = {}

    def begin(self, number: int) -> Sequence[Completion]:
        """Return the batch of this number to its turn; nothing if nobody waits for its answer any more."""
        batch = self._batches.get(number)
        return () if batch is None else batch.begin()

    async def settle(self, completion: Completion) -> Answer:
        """Settle a job; the answer comes once that is on disk. A caller that is cancelled does not cancel the turn."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._join((completion, answer))
        return await answer

    def _join(self, one: Waiting) -> None:
        if self._last is not None and self._last.has_room(one[0]):
            self._last.join(one)
        else:
            self._last = Batch(next(self._numbers))
            self._last.join(one)
            self._send(self._last)

    def _send(self, batch: Batch) -> None:
        self._batches[batch.number] = batch
        self._start_soon(self._run(batch)).add_done_callback(partial(self._ended, batch))

    def _ended(self, batch: Batch, task: asyncio.Task[None]) -> None:
        """Answer all who wait, also when the host goes down without waiting for the turn."""
        del self._batches[batch.number]
        if task.cancelled():
            self._failed(batch, HostClosedError("the host was stopped before this was answered: send it again"))

    async def _run(self, batch: Batch) -> None:
        try:
            answers = await self._owner.complete(Complete(batch.number))
        except Exception as error:  # whatever it is, those who wait get it as their answer
            self._failed(batch, error)
            return
        for (_, future), answer in zip(batch.waiting, answers, strict=False):
            if not future.done():
                future.set_result(answer)
        for one in batch.waiting[len(answers) :]:
            self._join(one)

    def _failed(self, batch: Batch, error: Exception) -> None:
        begun = batch.begin()
        if len(begun) > 1 and not isinstance(error, (HostClosedError, NotFoundError, StoreLocked, StoreUnavailable)):
            for one in batch.waiting:  # each for itself: one that cannot be booked takes no others with it
                alone = Batch(next(self._numbers))
                alone.join(one)
                alone.begin()
                self._send(alone)
            return
        for _, future in batch.waiting:
            if not future.done():
                future.set_exception(error)
