"""How an actor in memory is let go of when another host gets it, or has it already.

What was sealed is answered as its commits end: an answer tells of what is in the store, whoever owns it by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from tocsin.actors.runtime.actor import Actor
from tocsin.actors.runtime.answering import as_tocsin, fail_all, tell
from tocsin.actors.runtime.events import fail
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.runtime.line import Line
from tocsin.actors.runtime.overlay import CLOSED, ActorStorage, Layer
from tocsin.errors import ActorBrokenError, StoreLocked, TocsinError
from tocsin.storage.api import OrderedStore

TURN_S: Final = 0.5
"""All actors that go with one wait for its turn: so long at most."""


class Letting(Protocol):
    """The parts of a host that letting go uses."""

    def start_soon(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    def forget(self, activation: Any) -> None: ...


class MayGo:
    """The part of an activation that lets go of its actor."""

    id: ActorId
    host: Letting
    storage: ActorStorage
    actor: Actor | None
    broken: TocsinError | None
    ringing: bool
    _line: Line
    _worker: asyncio.Task[Any] | None
    _sealed: int
    _durable: int
    _store: OrderedStore | None
    _leaves: StoreLocked | None = None  # another host is to have this actor
    _undecided = False  # given up, while answers wait for what becomes of their commits

    def _tell_in_order(self, layer: Layer) -> None:
        raise NotImplementedError

    def _abandon(self, me: asyncio.Task[Any] | None) -> None:
        """Drop the actor object, whose attributes may tell of what was not written, and the layer of a failed turn. A
        handler that has not come back from `outside` has none: the open one is another's."""
        self.actor = None
        if self._worker is not me:
            return
        lost, self.storage.layer = self.storage.layer, CLOSED
        self.ringing = False
        for func, args in lost.if_lost:
            func(*args)

    async def wait_durable(self) -> None:
        """Wait until everything sealed so far is durable."""
        if self._sealed != self._durable:
            reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._tell_in_order(Layer(answers=[(reply, None)]))
            await reply

    def leave(self, error: StoreLocked) -> None:
        """Begin nothing more: those in line are told so. Turns and commits that are under way go on."""
        self._leaves = self._leaves or error
        fail_all((reply for _, reply in self._line.take_events()), error)

    async def left(self) -> None:
        """Wait until what was under way has ended, and give the activation up. Handlers that are outside of their turn
        are not waited for, nor is a turn that takes long: nothing of it is written, and the other host does it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + TURN_S
        while self.broken is None:
            if self._sealed != self._durable:
                with suppress(TocsinError):  # whoever waits for those turns is told
                    await self.wait_durable()
            elif self._worker is None or loop.time() >= until:
                break
            else:
                await asyncio.wait([self._worker], timeout=until - loop.time())
        self.lose(self._leaves or StoreLocked(f"{self.id} has gone to another host"))

    def lose(self, error: StoreLocked) -> None:
        """Give the activation up without a word to the store: another host has this actor. Answers whose commits are
        under way come with them; work that was to follow those commits is the other host's."""
        if self.broken is not None:
            return
        self.leave(error)
        self.broken, self.actor, self._undecided = error, None, True
        self.host.forget(self)
        back = ActorBrokenError(f"{self.id} went to another host while this was outside of its turn")
        left, self._line = self._line, Line()
        for place in left:
            if isinstance(place, asyncio.Future):
                fail(place, back)
        for layer in self.storage.sealed:
            layer.after_commit.clear()
            for func, args in layer.if_lost:
                func(*args)
        if self._store is not None:
            self.host.start_soon(self._store.close())

    def _decided(self, batch: int, error: BaseException | None) -> None:
        """Answer those whose commit has ended, of an activation that was given up."""
        sealed = self.storage.sealed
        if error is not None:
            for layer in tuple(sealed):  # those behind it fail with it
                fail_all((reply for reply, _ in layer.answers), as_tocsin(self.id, error))
            return
        for layer in [layer for layer in sealed if layer.batch <= batch]:
            sealed.remove(layer)
            tell(self.id, layer, self.host.start_soon)
