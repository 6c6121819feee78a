"""The two gates between an actor and the world.

Input gate: the waiting line (mailbox) for the turn. Output gate: nothing leaves the actor, no answer, no
error, no `after_commit` work, before the batches sealed before it are durable.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tocsin.actors.runtime.events import Event
from tocsin.errors import OverloadedError

Failure = Callable[[BaseException], None]


class Delivery:
    """One event on its way to an actor, and the future that will hear of it."""

    __slots__ = ("event", "reply")

    def __init__(self, event: Event[Any], reply: asyncio.Future[Any]) -> None:
        self.event = event
        self.reply = reply

    def answer(self, result: object) -> None:
        if not self.reply.done():
            self.reply.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # a caller that went away leaves nobody to hear it


Place = Delivery | asyncio.Future[None]
"""What stands in line: an event, or a handler that comes back from `outside()`."""


class InputGate:
    """First come, first served. Events are bounded; handlers coming back are not, they were let in before."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: deque[Place] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def join(self, place: Place, *, bounded: bool = True) -> None:
        if bounded and len(self._line) >= self._limit:
            raise OverloadedError(
                f"{len(self._line)} requests wait for this actor, the limit is {self._limit}: try again later",
                retryAfterMs=1000,
            )
        self._line.append(place)

    def next(self) -> Place | None:
        return self._line.popleft() if self._line else None

    def clear(self) -> list[Place]:
        left = list(self._line)
        self._line.clear()
        return left


class OutputGate:
    """Numbers batches: *sealed* ones may still be on their way, *durable* ones are on disk."""

    def __init__(self) -> None:
        self.sealed = 0
        self.durable = 0
        self._waiting: deque[tuple[int, Callable[[], None], Failure]] = deque()

    @property
    def quiet(self) -> bool:
        return self.sealed == self.durable

    def seal(self) -> int:
        self.sealed += 1
        return self.sealed

    def when_durable(self, number: int, done: Callable[[], None], failed: Failure) -> None:
        """Call `done` once batch `number` is durable (now, if it is), `failed` if it is lost."""
        if number <= self.durable and not self._waiting:
            done()
        else:
            self._waiting.append((number, done, failed))

    def confirm(self, number: int) -> None:
        self.durable = number
        waiting = self._waiting
        while waiting and waiting[0][0] <= number:
            waiting.popleft()[1]()

    def break_(self, error: BaseException) -> None:
        lost = list(self._waiting)
        self._waiting.clear()
        for _, _, failed in lost:
            failed(error)

    async def wait(self) -> None:
        """Until everything sealed so far is durable."""
        if self.quiet:
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_durable(self.sealed, lambda: _open(place), lambda error: _fail(place, error))
        await place


def _open(place: asyncio.Future[None]) -> None:
    if not place.done():
        place.set_result(None)


def _fail(place: asyncio.Future[None], error: BaseException) -> None:
    if not place.done():
        place.set_exception(error)
        place.exception()
