"""One actor in memory, and the life of one event in it: wait for the turn, run, seal, answer once durable.

One task at a time, the *worker*, holds the turn and works through the waiting line. A handler that leaves the
turn (`outside`) hands the line to a new worker; when it comes back, the worker that meets it ends and the
handler's task carries on as the worker.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from tocsin.actors.runtime.actor import Actor, ActorContext, Deferred, RollbackHook, World, handle
from tocsin.actors.runtime.alarms import AlarmHeap
from tocsin.actors.runtime.events import Event, Ring, name_of
from tocsin.actors.runtime.gates import Delivery, InputGate, OutputGate, Place
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.runtime.overlay import ActorStorage
from tocsin.errors import ActorBrokenError, HostClosedError, StoreError, StoreTooLarge, TocsinError, TurnError
from tocsin.storage.api import UNSET, Batch, OrderedStore, StoreProvider, Unset, check_batch

log = logging.getLogger("tocsin.actors")

A = TypeVar("A")
TURNS_BEFORE_YIELD = 32


class Runtime(World, Protocol):
    """What an activation needs of its host."""

    provider: StoreProvider
    alarms: AlarmHeap
    mailbox_limit: int

    @property
    def is_open(self) -> bool: ...

    def start_soon(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    def forget(self, activation: Activation) -> None: ...

    def deliver(self, actor: ActorId, delivery: Delivery, *, bounded: bool) -> None: ...

    async def call(self, actor: ActorId, event: Event[A]) -> A: ...


class Activation:
    """Made by the host for the first event, dropped when idle or when a commit fails."""

    def __init__(self, host: Runtime, actor_id: ActorId, factory: Callable[[ActorContext], Actor]) -> None:
        self.id = actor_id
        self.host = host
        self.storage = ActorStorage()
        self.actor: Actor | None = None
        self.broken: TocsinError | None = None
        self.name = _never_given_before(host, actor_id)
        self.seq = 0
        self.last_used = host.clock.monotonic()
        self.deferred: list[Deferred] = []
        self.rollback_hooks: list[RollbackHook] = []
        self._factory = factory
        self._ctx = ActorContext(self, self.storage)
        self._input = InputGate(host.mailbox_limit)
        self._output = OutputGate()
        self._store: OrderedStore | None = None
        self._worker: asyncio.Task[None] | None = None
        self._outside = 0
        self._wake: int | None = None  # as sealed last
        self._wake_change: int | Unset | None = UNSET
        self._ring_at: int | Unset | None = UNSET
        self._rings_at: int | None = None  # when it rings here, if not at what is stored
        self._alarm_changes = 0
        self._ringing: int | None = None  # while it rings: how often it had been set before

    @property
    def idle(self) -> bool:
        return (
            self._worker is None
            and not self._outside
            and self._output.quiet
            and not len(self._input)
            and not (self.actor is not None and self.actor.pinned())
        )

    @property
    def settled(self) -> bool:
        """Nothing runs, and nothing sealed is still on its way."""
        return self._worker is None and not self._outside and self._output.quiet

    async def wait_durable(self) -> None:
        await self._output.wait()

    # ---- The waiting line ------------------------------------------------------------------------

    def post(self, delivery: Delivery, *, bounded: bool = True) -> None:
        """Put an event in line. Raises OverloadedError when the line is full."""
        self._input.join(delivery, bounded=bounded)
        self._ensure_worker()

    def _ensure_worker(self) -> None:
        if self._worker is None:
            self._worker = self.host.start_soon(self._work())

    async def _work(self) -> None:
        handed_over = False
        try:
            handed_over = await self._work_line()
        finally:
            if not handed_over and self._worker is asyncio.current_task():
                # Its end must leave nobody waiting, whatever ended it.
                self._worker = None
                self.last_used = self.host.clock.monotonic()
                if len(self._input) and self.broken is None and self.host.is_open:
                    self._ensure_worker()

    async def _work_line(self) -> bool:
        """Turn after turn until the line is empty; True if the turn went to a handler that came back."""
        turns = 0
        while self.broken is None and (place := self._input.next()) is not None:
            if isinstance(place, asyncio.Future):
                if not place.done():
                    place.set_result(None)
                    return True  # the turn, and with it the line, are that handler's task's now
                continue
            await self._turn(place)
            turns += 1
            if turns % TURNS_BEFORE_YIELD == 0:
                await asyncio.sleep(0)  # others on this loop want to live, too
        return False

    async def _turn(self, delivery: Delivery) -> None:
        try:
            actor = self.actor or await self._start()
            self.storage.begin()
            event = delivery.event
            result = await (self._ring(actor) if isinstance(event, Ring) else handle(actor, event))
            number = self._seal()
        except Exception as error:
            self._abandon()
            if self.broken is not None:
                delivery.fail(error)
            else:  # an error tells of earlier turns as much as an answer does
                self._output.when_durable(self._output.sealed, partial(delivery.fail, error), delivery.fail)
        except asyncio.CancelledError:
            self._cancelled(delivery)
        else:
            self._output.when_durable(number, partial(delivery.answer, result), delivery.fail)

    def _cancelled(self, delivery: Delivery) -> None:
        """The host goes down without waiting; or the handler cancelled itself, and that is a failed turn."""
        self._abandon()
        if not self.host.is_open:
            stopped = ActorBrokenError(f"{self.id}: the host was stopped in the middle of this event")
            delivery.fail(stopped)
            self.break_(stopped, fail_line=True)
            return
        task = asyncio.current_task()
        assert task is not None
        while task.uncancel():
            pass
        name = name_of(delivery.event)
        delivery.fail(ActorBrokenError(f"{self.id}: the handler of {name!r} was cancelled from inside"))

    async def _start(self) -> Actor:
        if not self.storage.epoch:
            try:
                self._store = await self.host.provider.open(str(self.id))
                self._wake = self._store.wake_at
                # From the clock, so that what comes of a restored store is not older than what came after the copy.
                await self.storage.open(self._store, self.host.clock.now_ms() // 1000)
            except Exception as error:
                raise self.break_(error, fail_line=True) from error
        actor = self._factory(self._ctx)
        self.storage.begin()
        await actor.on_start()
        self.actor = actor
        return actor

    # ---- The end of a turn -----------------------------------------------------------------------

    def _seal(self) -> int:
        """What the turn wrote is now one batch on its way; what it wants to say waits for that batch."""
        if self.broken is not None:
            raise self.broken
        wake = self._wake_change
        if wake == self._wake:
            wake = UNSET
        if self.storage.dirty or wake is not UNSET:
            self._commit(wake)
        number = self._output.sealed
        if self._ring_at is not UNSET:
            self._rings_at = self._ring_at
            self.host.alarms.set(self.id, self._ring_at)
            self._nothing_due(number, self._ring_at)
        self.storage.end()
        self._wake_change = self._ring_at = UNSET
        self._release_deferred(number)
        return number

    def _nothing_due(self, number: int, ring_at: int | Unset | None) -> None:
        """A turn that leaves nothing to be done now has done what a failing alarm could not, whichever turn it was."""
        if self.host.alarms.failure(self.id) is None or (
            isinstance(ring_at, int) and ring_at <= self.host.clock.now_ms()
        ):
            return
        self._output.when_durable(number, partial(self.host.alarms.worked, self.id), lambda error: None)

    def _commit(self, wake: int | Unset | None) -> None:
        puts, deletes = self.storage.changes()
        batch = Batch(puts, deletes, wake)
        # Here it fails this turn alone; refused by the store it would take along who comes behind it.
        if (reason := check_batch(batch, self.host.provider.capabilities)) is not None:
            raise StoreTooLarge(f"{self.id}: this turn wrote too much: {reason}")
        number = self._output.seal()
        self.storage.seal(number)
        if wake is not UNSET:
            self._wake = wake
        assert self._store is not None
        self._store.commit(batch).add_done_callback(partial(self._committed, number))

    def _release_deferred(self, number: int) -> None:
        if not self.deferred and not self.rollback_hooks:
            return
        deferred, self.deferred = self.deferred, []
        rollback_hooks, self.rollback_hooks = self.rollback_hooks, []

        def done() -> None:
            for func, args in deferred:
                self._run_outside(func, args)

        def lost(_: BaseException) -> None:
            for func, args in rollback_hooks:
                func(*args)

        self._output.when_durable(number, done, lost)

    def _run_outside(self, func: Callable[..., Awaitable[None] | None], args: tuple[Any, ...]) -> None:
        try:
            waiting = func(*args)
        except Exception:
            # Outside work belongs to nobody's answer: report it, and let the actor live.
            log.exception("%s: work after a commit failed", self.id)
            return
        if inspect.isawaitable(waiting):
            self.host.start_soon(_awaited(waiting))

    def _committed(self, number: int, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            self.break_(ActorBrokenError(f"{self.id}: a commit was cancelled"))
            return
        error = done.exception()
        if error is not None:
            self.break_(error)
            return
        self.storage.confirm(number)
        self._output.confirm(number)

    def _abandon(self) -> None:
        """A failed turn leaves no trace: its writes go, and with them the object, whatever it has seen or done."""
        self.deferred = []
        rollback_hooks, self.rollback_hooks = self.rollback_hooks, []
        self.storage.discard()
        self.actor = None
        self._wake_change = self._ring_at = UNSET
        self.storage.end()
        self._ringing = None
        for func, args in rollback_hooks:
            func(*args)

    def break_(self, error: BaseException, *, fail_line: bool = False) -> TocsinError:
        """Give the activation up. Whoever waits for a lost batch hears of it; events still in line go to the
        next activation, or (`fail_line`) hear of it as well."""
        if self.broken is None:
            self.broken = _as_tocsin(self.id, error)
            self.actor = None
            left = self._input.clear()
            self.host.forget(self)
            self._output.break_(self.broken)
            for place in left:
                self._turn_away(place, fail_line)
            self.host.alarms.set(self.id, self.host.clock.now_ms())  # what is stored decides when to ring
            if self._store is not None:
                self.host.start_soon(self._store.close())
        return self.broken

    def _turn_away(self, place: Place, fail: bool) -> None:
        assert self.broken is not None
        if isinstance(place, asyncio.Future):
            if not place.done():
                place.set_exception(self.broken)
        elif fail:
            place.fail(self.broken)
        else:
            self.host.deliver(self.id, place, bounded=False)

    async def close(self) -> None:
        """Let go of the store; only of an idle activation."""
        if self._store is not None:
            await self._store.close()

    # ---- Alarm -----------------------------------------------------------------------------------

    def alarm_now(self) -> int | None:
        if self._wake_change is not UNSET:
            return self._wake_change
        return None if self._ringing == self._alarm_changes else self._wake

    def change_alarm(self, due_ms: int | None, ring_at_ms: int | None) -> None:
        if not self.storage.my_turn:
            raise TurnError("set_alarm outside a turn")
        self._wake_change, self._ring_at = due_ms, ring_at_ms
        self._alarm_changes += 1

    async def _ring(self, actor: Actor) -> None:
        """Run `alarm`. It looks gone meanwhile, and is gone with the turn's batch if it succeeds."""
        due = min((ms for ms in (self._wake, self._rings_at) if ms is not None), default=None)
        if due is None or due > self.host.clock.now_ms():
            self.host.alarms.set(self.id, due)  # moved since the host looked
            return
        self._ringing = self._alarm_changes
        await actor.alarm()
        rang, self._ringing = self._ringing, None
        if self._alarm_changes == rang:
            self._wake_change = self._ring_at = None

    # ---- Leaving the turn ------------------------------------------------------------------------

    async def leave_turn(self) -> None:
        if not self.storage.my_turn:
            raise TurnError("outside() outside a turn")
        if self.actor is None:
            raise TurnError("outside() in on_start: the actor is not there yet for others to use")
        self._seal()
        self._outside += 1
        self._worker = None
        if len(self._input):
            self._ensure_worker()
        await self._output.wait()

    async def retake_turn(self, actor: Actor | None) -> None:
        self._outside -= 1
        if self.broken is not None:
            raise self.broken
        if self._worker is not None:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._input.join(place, bounded=False)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._worker = None  # the turn had just been handed over: pass it on
                    self._ensure_worker()
                raise
        self._worker = asyncio.current_task()
        self.storage.begin()
        if self.actor is not actor:
            raise ActorBrokenError(f"{self.id} was restarted meanwhile: nothing after outside() was done")

    async def call_out(self, actor: ActorId, event: Event[A]) -> A:
        if self.storage.my_turn:
            raise TurnError("a call inside a turn could wait for itself: use after_commit() or outside()")
        return await self.host.call(actor, event)


def _never_given_before(host: Runtime, actor_id: ActorId) -> str:
    """By chance, not by counting: a store made anew, or restored from a copy, counts from where another has been.
    Mixed with the store's owner and the actor, so that hosts that were given equal seeds differ, too."""
    drawn = f"{host.random.getrandbits(64):016x} {host.provider.owner} {actor_id}"
    return blake2b(drawn.encode(), digest_size=8).hexdigest()


async def _awaited(waiting: Awaitable[None]) -> None:
    await waiting


def _as_tocsin(actor_id: ActorId, error: BaseException) -> TocsinError:
    if isinstance(error, (StoreError, ActorBrokenError, HostClosedError)):
        return error
    broken = ActorBrokenError(f"{actor_id}: {error!r}")
    broken.__cause__ = error
    return broken
