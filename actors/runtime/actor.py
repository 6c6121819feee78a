"""The interface for authors of actors: `Actor` to subclass, `ActorContext` as its only way to the world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import current_task
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.events import Call, Event
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.runtime.overlay import CLOSED, ActorStorage, Layer
from tocsin.errors import InvalidInputError, TurnError
from tocsin.storage.api import UNSET, Unset

A = TypeVar("A")
E = TypeVar("E", bound=Event[Any])


class Actor:
    """Base class of actors. Public coroutine methods are events, run one at a time, each as one *turn*.

    What a turn writes to `self.ctx.storage` becomes durable as a whole. If the handler raises, nothing of it is
    written, and this object is replaced by a new one. Attributes are therefore only a cache of what is stored.
    """

    kind: ClassVar[str] = ""
    """The name of this class in the store; the class name if empty. Under another name its data is not found."""
    alarm_backoff_max_ms: ClassVar[int] = 600_000
    """The longest delay of a failing alarm. It is rung again after 2 s, and the delay doubles up to this."""

    def __init__(self, ctx: ActorContext) -> None:
        self.ctx = ctx

    @classmethod
    def kind_name(cls) -> str:
        return cls.kind or cls.__name__

    async def on_start(self) -> None:
        """Prepare for the first event of this object. May read and write storage."""

    async def alarm(self) -> None:
        """Do what is due. Called at or after the instant given to `ctx.set_alarm`, repeatedly until it returns."""

    def pinned(self) -> bool:
        """Return True while this actor must stay in memory although no event waits for it."""
        return False


class EventActor(Actor, ABC, Generic[E]):
    """An actor whose events are the types of `E`, not its methods."""

    @abstractmethod
    async def handle(self, event: E) -> object:
        """Run one event as a turn and return its answer. The match must be exhaustive."""

    def may_share(self, event: Event[Any]) -> bool:
        """Return whether this event may share one turn with others that wait next to it. It is asked often."""
        return False

    async def handle_many(self, events: Sequence[E]) -> Sequence[object]:
        """Run events that may share a turn, in their order; return the answers of the first of them, or of all.

        Those without an answer wait for the next turn. Refusals are answers: if anything raises, nothing of this turn
        is written, and each event is run again in a turn of its own. `ctx.outside()` is not possible here.
        """
        raise NotImplementedError(f"{type(self).__name__} lets events share a turn, and has no handle_many")


def call_method(actor: Actor, event: Event[Any]) -> Awaitable[object]:
    """Call the method that the event names. Raises InvalidInputError for an event of the wrong kind."""
    if not isinstance(event, Call):
        raise InvalidInputError(f"{actor.ctx.id} has methods only: {type(event).__name__} is no event of it")
    if isinstance(actor, EventActor):
        raise InvalidInputError(f"{actor.ctx.id} has no methods to call: it is told events of its own types")
    return getattr(actor, event.method)(*event.args)  # type: ignore[no-any-return]


def handle(actor: Actor, event: Event[Any]) -> Awaitable[object]:
    """Have an actor carry out an event of its own."""
    if isinstance(actor, EventActor) and not isinstance(event, Call):
        return actor.handle(event)
    return call_method(actor, event)


class World(Protocol):
    """The clock and the randomness of a host."""

    clock: Clock
    random: Random


class Turns(Protocol):
    """The parts of an activation that a context uses."""

    id: ActorId
    name: str
    actor: Actor | None
    wake_at: int | None
    ringing: bool

    @property
    def host(self) -> World: ...

    async def leave_turn(self) -> None: ...

    async def retake_turn(self, actor: Actor | None) -> None: ...

    async def call_out(self, actor: ActorId, event: Event[A]) -> A: ...


class ActorContext:
    """An actor's only way to the world."""

    def __init__(self, activation: Turns, storage: ActorStorage) -> None:
        self.id = activation.id
        self.storage = storage
        self.random = activation.host.random
        """The host's source of randomness; seeded in a simulation."""
        self.now_ms = activation.host.clock.now_ms
        """Wall time, ms since the epoch."""
        self.epoch = storage.epoch
        """A number that grows with every activation of this actor, and is on disk before the first event runs. It is at
        least the seconds since 1970, so it also grows over a restored or newly made store if the clock is right."""
        self.activation = activation.name
        """16 letters and digits that no other activation has: none of another actor, host or store, and none of this
        store before it was restored from a copy. With a number of `next_seq` it makes a name that is unique."""
        self._activation = activation
        self._seq = 0

    def next_seq(self) -> int:
        """Return 1, 2, 3 … within this epoch. A turn that fails does not give its numbers back: (epoch, seq) is unique
        in a store, and (activation, seq) everywhere."""
        self._seq += 1
        return self._seq

    def rise_above(self, epoch: int) -> None:
        """Go on in a later epoch than this one, which another store has given. Durable with the rest of the turn."""
        self.storage.rise_above(epoch)
        self.epoch = self.storage.epoch

    def get_alarm(self) -> int | None:
        """Return when the alarm will ring, epoch ms; None if it is not set, or rings just now."""
        wake_at = self.storage.layer.wake_at
        if wake_at is not UNSET:
            return wake_at
        return None if self._activation.ringing else self._activation.wake_at

    def set_alarm(self, due_ms: int | None, *, ring_at_ms: int | Unset | None = UNSET) -> None:
        """Replace the actor's one alarm; None removes it. Durable with the rest of the turn.

        `ring_at_ms` lets this process ring later than what is stored (or not at all): the stored instant then
        only says when another process, or this one after a restart, must look.
        """
        ring_at = due_ms if ring_at_ms is UNSET else ring_at_ms
        for name, value in (("due_ms", due_ms), ("ring_at_ms", ring_at)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InvalidInputError(f"{name} must be an integer (epoch ms) or None, not {value!r}")
        layer = self.storage.layer
        if layer.task is not current_task():
            raise TurnError("set_alarm outside a turn")
        layer.wake_at, layer.ring_at = due_ms, ring_at
        self._activation.ringing = False  # the alarm that rings has been replaced

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Leave the turn to wait for something that is not storage.

        What was written so far becomes durable first. Other events run meanwhile, so read again afterwards what
        you had read before. Raises ActorBrokenError at the end of the block if the actor was dropped meanwhile.
        """
        actor = self._activation.actor
        await self._activation.leave_turn()
        try:
            yield
        finally:
            await self._activation.retake_turn(actor)

    def after_commit(self, func: Callable[..., Awaitable[None] | None], *args: Any) -> None:
        """Call `func(*args)` outside any turn once this turn's writes are durable; never if they are lost."""
        self._layer("after_commit").after_commit.append((func, args))

    def if_lost(self, func: Callable[..., None], *args: Any) -> None:
        """Call `func(*args)` if this turn fails or its writes are lost."""
        self._layer("if_lost").if_lost.append((func, args))

    def _layer(self, name: str) -> Layer:
        if self.storage.layer is CLOSED:
            raise TurnError(f"{name}() outside a turn")
        return self.storage.layer

    async def call(self, kind: type[Actor] | str, name: str, method: str, *args: Any) -> Any:
        """Send an event to an actor, from outside a turn (`after_commit`, `outside`). TurnError inside one."""
        actor = ActorId(kind if isinstance(kind, str) else kind.kind_name(), name)
        return await self._activation.call_out(actor, Call(method, args))
