"""One actor in memory, and the life of an event in it: wait for the turn, run, seal, answer once durable.

One task at a time, the *worker*, holds the turn and runs the events in line. A handler that leaves the turn (`outside`)
hands the line to a new worker. When the handler comes back it waits in line; the worker that reaches it ends, and the
handler's task goes on as the worker.

Events that wait next to each other share one turn, if their actor allows it: one layer, one batch. If anything raises,
that turn leaves no trace, and each of them gets a turn of its own.

Nothing leaves the actor, no answer, no error, no `after_commit` work, before the batches sealed before it are durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from tocsin.actors.runtime.actor import Actor, ActorContext, EventActor, World, call_method, handle
from tocsin.actors.runtime.alarms import AlarmHeap
from tocsin.actors.runtime.answering import as_tocsin, fail_all, tell
from tocsin.actors.runtime.done import NotBegun, once
from tocsin.actors.runtime.events import Call, Event, OfRuntime, Once, fail, name_of
from tocsin.actors.runtime.going import MayGo
from tocsin.actors.runtime.ids import ActorId, never_given_before
from tocsin.actors.runtime.line import Line, Reply, Sent
from tocsin.actors.runtime.overlay import CLOSED, ActorStorage, Layer
from tocsin.errors import ActorBrokenError, OverloadedError, StoreLocked, StoreTooLarge, TocsinError, TurnError
from tocsin.storage.api import UNSET, Batch, OrderedStore, StoreProvider, Unset, check_batch

log = logging.getLogger("tocsin.actors")

A = TypeVar("A")
TURNS_BEFORE_YIELD = 32


class Runtime(World, Protocol):
    """The parts of a host that an activation uses."""

    provider: StoreProvider
    alarms: AlarmHeap
    mailbox_limit: int
    tasks: set[asyncio.Task[Any]]

    @property
    def is_open(self) -> bool: ...

    @property
    def begin(self) -> Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]: ...
    def start_soon(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]: ...

    def forget(self, activation: Activation) -> None: ...

    def deliver(self, actor: ActorId, event: Event[Any], reply: Reply) -> None: ...

    def call(self, actor: ActorId, event: Event[A]) -> Awaitable[A]: ...


class Activation(MayGo):
    """One actor in memory: made by the host for the first event, dropped when idle or when a commit fails."""

    host: Runtime

    def __init__(self, host: Runtime, actor_id: ActorId, factory: Callable[[ActorContext], Actor]) -> None:
        self.id = actor_id
        self.host = host
        self.storage = ActorStorage()
        self.actor: Actor | None = None
        self.broken: TocsinError | None = None
        self.name = never_given_before(host.random.getrandbits(64), host.provider.owner, actor_id)
        self.wake_at: int | None = None
        """The alarm as it was sealed last."""
        self.ringing = False
        """True if the alarm runs and was not set again meanwhile."""
        self._rings_at: int | None = None  # when it rings here, if not at what is stored
        self._factory = factory
        self._ctx: ActorContext | None = None
        self._line = Line()
        self._shared = False  # whether several events share the turn that runs
        self._sealed = self._durable = 0  # how many batches
        self._store: OrderedStore | None = None
        self._worker: asyncio.Task[Any] | None = None
        self._outside = 0
        self._was_used = False
        self._last_used = host.clock.monotonic()

    @property
    def settled(self) -> bool:
        """Return whether nothing runs, and everything sealed is durable."""
        return self._worker is None and not self._outside and self._sealed == self._durable

    @property
    def idle(self) -> bool:
        return self.settled and not self._line and not (self.actor is not None and self.actor.pinned())

    def idle_since(self, now: float) -> float | None:
        """Return when it was first found idle, by calls of this method; None if it is not idle."""
        idle = self.idle
        if self._was_used or not idle:
            self._was_used, self._last_used = False, now
        return self._last_used if idle else None

    # ---- The waiting line ------------------------------------------------------------------------

    def post(self, event: Event[Any], reply: Reply, *, bounded: bool = True) -> None:
        """Put an event in line. OverloadedError if the line is full, StoreLocked if another host gets the actor."""
        if self._leaves is not None:
            raise self._leaves
        if bounded and len(self._line) >= self.host.mailbox_limit:
            raise OverloadedError(
                f"{len(self._line)} requests wait for this actor, the limit is {self.host.mailbox_limit}: "
                "try again later",
                retryAfterMs=1000,
            )
        self._line.append((event, reply))
        self._ensure_worker()

    def _ensure_worker(self) -> None:
        if self._worker is None:
            self._worker = self.host.begin(self._work())
            self.host.tasks.add(self._worker)
            self._worker.add_done_callback(self.host.tasks.discard)

    async def _work(self) -> None:
        me, handed_over = asyncio.current_task(), False
        try:
            handed_over = await self._work_line()
        except Exception:
            log.exception("%s: its worker failed", self.id)
        except GeneratorExit:
            handed_over = True  # the event loop is gone, and with it whoever waited
            raise
        finally:
            if not handed_over and self._worker is me:
                # Whatever ended this worker, events in line must not be left waiting.
                self._worker = None
                self._was_used = True
                if self._line and self.broken is None and self.host.is_open:
                    self._ensure_worker()

    async def _work_line(self) -> bool:
        """Run events until the line is empty. Return True if the turn is another task's by then."""
        turns, me = 0, self._worker
        while self._line and self.broken is None:
            place = self._line.pop(0)
            if isinstance(place, asyncio.Future):
                if not place.done():
                    place.set_result(None)
                    return True  # from here on that handler's task is the worker
                continue
            group = self._line.with_neighbours(place, self.actor)
            await self._turn(group)
            if self._worker is not me:
                return True  # its handler was outside, and has not come back
            turns += len(group)
            if turns >= TURNS_BEFORE_YIELD:
                turns = 0
                await asyncio.sleep(0)  # let other tasks of the event loop run
        return False

    async def _turn(self, group: list[Sent]) -> None:
        """Run one event, or several that share the turn, and seal what they left."""
        self._shared = shared = len(group) > 1
        me = self._worker
        try:
            answers = await self._run(group)
            if self._worker is not me:
                raise ActorBrokenError(f"{self.id}: {name_of(group[0][0])!r} did not come back from outside()")
            if len(answers) < len(group) and self.broken is None:
                self._line.put_back(group[len(answers) :], alone=False)
                group = group[: len(answers)]
            self._seal([(reply, answer) for (_, reply), answer in zip(group, answers, strict=False)])
        except NotBegun as refusal:
            self.storage.layer = CLOSED
            self._tell_in_order(Layer(answers=[(group[0][1], None)], error=refusal.why))
        except Exception as error:
            self._abandon(me)
            if self.broken is not None:
                fail_all((reply for _, reply in group), self.broken if shared else error)
            elif shared:
                self._line.put_back(group, alone=True)
            else:  # an error may tell of earlier turns, as an answer does, so it waits for them
                self._tell_in_order(Layer(answers=[(group[0][1], None)], error=error))
        except asyncio.CancelledError:
            self._abandon(me)
            self._cancelled(group)

    async def _run(self, group: list[Sent]) -> Sequence[object]:
        """Return the answers of the first of these events, or of all."""
        actor = self.actor or await self._make()
        self.storage.layer = Layer(self._worker)
        if self.actor is None:
            await actor.on_start()
            self.actor = actor
        event = group[0][0]
        if self._shared and isinstance(actor, EventActor):
            answers = await actor.handle_many([event for event, _ in group])
            if not 0 < len(answers) <= len(group):
                raise TurnError(f"{self.id}: handle_many gave {len(answers)} answers to {len(group)} events")
            return answers
        if isinstance(event, OfRuntime):
            return (await self._run_own(actor, event),)
        if isinstance(actor, EventActor) and not isinstance(event, Call):
            return (await actor.handle(event),)
        return (await call_method(actor, event),)

    async def _run_own(self, actor: Actor, event: OfRuntime[Any]) -> object:
        """Carry out what is not for the actor alone."""
        if isinstance(event, Once):
            return await once(self.storage, event, self.host.clock.now_ms(), partial(handle, actor, event.event))
        await self._ring(actor)
        return None

    def _cancelled(self, group: list[Sent]) -> None:
        """End a cancelled turn: the host stops without waiting, or a handler cancelled itself, so the turn failed."""
        if not self.host.is_open:
            stopped = ActorBrokenError(f"{self.id}: the host was stopped in the middle of this event")
            fail_all((reply for _, reply in group), stopped)
            self.break_(stopped, fail_line=True)
            return
        task = asyncio.current_task()
        assert task is not None
        while task.uncancel():
            pass
        if len(group) > 1 and self.broken is None:
            self._line.put_back(group, alone=True)
            return
        cancelled = ActorBrokenError(f"{self.id}: the handler of {name_of(group[0][0])!r} was cancelled from inside")
        fail_all((reply for _, reply in group), self.broken or cancelled)

    async def _make(self) -> Actor:
        if self._ctx is None:
            try:
                self._store = await self.host.provider.open(str(self.id))
                self.wake_at = self._store.wake_at
                # From the clock, so that what comes of a restored store is not older than what came after the copy.
                await self.storage.open(self._store, self.host.clock.now_ms() // 1000)
            except Exception as error:
                raise self.break_(error, fail_line=True) from error
            self._ctx = ActorContext(self, self.storage)
        return self._factory(self._ctx)

    # ---- The end of a turn -----------------------------------------------------------------------

    def _seal(self, answers: list[tuple[Reply, object]]) -> None:
        """End the turn: commit its layer as one batch, and let its answers wait for that batch."""
        if self.broken is not None:
            raise self.broken
        layer = self.storage.layer
        layer.answers = answers
        wake_at = UNSET if layer.wake_at == self.wake_at else layer.wake_at
        if layer.puts or layer.deletes or wake_at is not UNSET:
            self._commit(layer, wake_at)
        if layer.ring_at is not UNSET:
            alarms, self._rings_at = self.host.alarms, layer.ring_at
            if alarms.due.get(self.id) != layer.ring_at:
                alarms.set(self.id, layer.ring_at)
            if self.id in alarms.failing and (layer.ring_at is None or layer.ring_at > self.host.clock.now_ms()):
                # Nothing is due any more: this turn, whichever it was, has done what the failing alarm could not.
                layer.after_commit.append((alarms.worked, (self.id,)))
        layer.batch = self._sealed
        self.storage.layer = CLOSED
        self.storage.sealed.append(layer)
        if self._sealed == self._durable:
            self._tell_durable()

    def _commit(self, layer: Layer, wake_at: int | Unset | None) -> None:
        batch = Batch(layer.puts, layer.deletes, wake_at)
        # Refused here, a batch fails its own turn only; refused by the store it would fail the turns behind it.
        if (reason := check_batch(batch, self.host.provider.capabilities)) is not None:
            raise StoreTooLarge(f"{self.id}: this turn wrote too much: {reason}")
        self._sealed += 1
        if wake_at is not UNSET:
            self.wake_at = wake_at
        assert self._store is not None
        self._store.commit(batch).add_done_callback(partial(self._committed, self._sealed))

    def _committed(self, batch: int, done: asyncio.Future[None]) -> None:
        cancelled = done.cancelled()
        error = ActorBrokenError(f"{self.id}: a commit was cancelled") if cancelled else done.exception()
        if self._undecided:
            self._decided(batch, error)
        elif error is not None:
            self.break_(error)
        else:
            self._durable = batch
            self._tell_durable()

    def _tell_durable(self) -> None:
        """Answer the turns whose batches are durable, in order, and read their rows from the store from now on."""
        sealed = self.storage.sealed
        while sealed and sealed[0].batch <= self._durable and self.broken is None:
            tell(self.id, sealed.pop(0), self.host.start_soon)

    def _tell_in_order(self, layer: Layer) -> None:
        """Answer once everything sealed before is durable: now, if it is. For layers that hold no rows."""
        layer.batch = self._sealed
        self.storage.sealed.append(layer)
        self._tell_durable()

    def break_(self, error: BaseException, *, fail_line: bool = False) -> TocsinError:
        """Give the activation up. Calls that wait for a lost batch fail. Events in line go to the next activation, or
        (`fail_line`) fail as well."""
        if self.broken is None:
            self.broken = as_tocsin(self.id, error)
            self.actor = None
            left, self._line = self._line, Line()
            self.host.forget(self)
            for layer in tuple(self.storage.sealed):  # they stay: a turn that runs still reads them
                for func, args in layer.if_lost:
                    func(*args)
                fail_all((reply for reply, _ in layer.answers), self.broken)
            for place in left:
                if isinstance(place, asyncio.Future):
                    fail(place, self.broken)
                elif fail_line:
                    fail(place[1], self.broken)
                else:
                    self.host.deliver(self.id, *place)
            if not isinstance(error, StoreLocked):  # which no store raises but one whose actor is with another host
                self.host.alarms.set(self.id, self.host.clock.now_ms())  # what is stored decides when to ring
            if self._store is not None:
                self.host.start_soon(self._store.close())
        return self.broken

    async def close(self) -> None:
        """Close the store's handle. Only for an idle activation."""
        if self._store is not None:
            await self._store.close()

    # ---- Alarm -----------------------------------------------------------------------------------

    async def _ring(self, actor: Actor) -> None:
        """Run `alarm`. Meanwhile no alarm seems to be set; if it succeeds, the turn's batch removes it."""
        due = min((ms for ms in (self.wake_at, self._rings_at) if ms is not None), default=None)
        if due is None or due > self.host.clock.now_ms():
            self.host.alarms.set(self.id, due)  # moved since the host looked
            return
        self.ringing = True
        await actor.alarm()
        if self.ringing:
            self.ringing = False
            self.storage.layer.wake_at = self.storage.layer.ring_at = None

    # ---- Leaving the turn ------------------------------------------------------------------------

    async def leave_turn(self) -> None:
        if self.storage.layer.task is not asyncio.current_task():
            raise TurnError("outside() outside a turn")
        if self.actor is None:
            raise TurnError("outside() in on_start: the actor is not there yet for others to use")
        if self._shared:
            raise TurnError("outside() in a turn that several events share: if one raises, all of them are run again")
        self._seal([])
        self._outside += 1
        self._worker = None
        if self._line:
            self._ensure_worker()
        try:
            await self.wait_durable()
        except BaseException:
            self._outside -= 1
            raise

    async def retake_turn(self, actor: Actor | None) -> None:
        self._outside -= 1
        if self._undecided:
            raise ActorBrokenError(f"{self.id} went to another host while this was outside of its turn")
        if self.broken is not None:
            raise self.broken
        if self._worker is not None:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._worker = None  # the turn had just been handed to this task: pass it on
                    self._ensure_worker()
                raise
        self._worker, self._shared = asyncio.current_task(), False  # others have shared turns meanwhile
        self.storage.layer = Layer(self._worker)
        if self.actor is not actor:
            raise ActorBrokenError(f"{self.id} was restarted meanwhile: nothing after outside() was done")

    async def call_out(self, actor: ActorId, event: Event[A]) -> A:
        if self.storage.layer.task is asyncio.current_task():
            raise TurnError("a call inside a turn could wait for itself: use after_commit() or outside()")
        return await self.host.call(actor, event)
