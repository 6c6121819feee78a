"""What the author of an actor writes against: `Actor` to subclass, `ActorContext` as its only way to the world."""

from __future__ import annotations

from asyncio import current_task
from collections.abc import AsyncIterator, Awaitable, Callable
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

    What a turn writes to `self.ctx.storage` becomes durable as a whole, or, if the handler raises, does not
    exist at all; then this object is thrown away as well and made anew. Attributes are a cache, no more.
    """

    kind: ClassVar[str] = ""
    """The name of this class in the store; the class name if empty. Changing it loses sight of the data."""
    alarm_backoff_max_ms: ClassVar[int] = 600_000
    """A failing alarm is rung again after 2 s, doubling up to this."""

    def __init__(self, ctx: ActorContext) -> None:
        self.ctx = ctx

    @classmethod
    def kind_name(cls) -> str:
        return cls.kind or cls.__name__

    async def on_start(self) -> None:
        """Called before the first event after the actor came to memory. May read and write storage."""

    async def alarm(self) -> None:
        """Called at or after the instant given to `ctx.set_alarm`, at least once, until it returns."""

    def pinned(self) -> bool:
        """True while this actor must not leave memory, though no event waits for it."""
        return False


class EventActor(Actor, Generic[E]):
    """An actor whose events are the types of `E`, not its methods."""

    async def handle(self, event: E) -> object:
        """Run one event as a turn and return its answer. The match must be exhaustive."""
        raise NotImplementedError


def call_method(actor: Actor, event: Event[Any]) -> Awaitable[object]:
    """Begin the method that the event names; refuse events that this actor is not told."""
    if not isinstance(event, Call):
        raise InvalidInputError(f"{actor.ctx.id} has methods only: {type(event).__name__} is no event of it")
    if isinstance(actor, EventActor):
        raise InvalidInputError(f"{actor.ctx.id} has no methods to call: it is told events of its own types")
    return getattr(actor, event.method)(*event.args)  # type: ignore[no-any-return]


class World(Protocol):
    """Time and chance, as the host has them."""

    clock: Clock
    random: Random


class Turns(Protocol):
    """What a context needs of the activation that runs its turns."""

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
        """The host's source of chance; seeded in a simulation."""
        self.now_ms = activation.host.clock.now_ms
        """Wall time, ms since the epoch."""
        self.epoch = storage.epoch
        """Grows with every activation of this actor, and is on disk before the first event runs. At least the seconds
        since 1970: it also grows when the store is restored from a copy, or made anew, if the clock is right."""
        self.activation = activation.name
        """16 letters and digits that name this activation and no other: not one of another actor, host or store, and
        none of this store in a life that a restored copy of it knows nothing of. With `next_seq` a name of anything."""
        self._activation = activation
        self._seq = 0

    def next_seq(self) -> int:
        """Return 1, 2, 3 … within this epoch, whatever becomes of the turn: (epoch, seq) is never given twice in a
        store, and (activation, seq) never at all."""
        self._seq += 1
        return self._seq

    def get_alarm(self) -> int | None:
        """Return when the alarm will ring, ms; None if it is not set. While it rings it looks gone."""
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
        self._activation.ringing = False  # what rings is replaced

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Leave the turn to wait for something that is not storage.

        What was written so far becomes durable first; other events run meanwhile. Afterwards read again what
        you knew. Raises ActorBrokenError on the way back if the actor was dropped meanwhile.
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
