"""The runtime of one process: a directory of activations, the alarm heap, eviction of the idle, shutdown.

It knows actors and a store, and nothing of what the actors are for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from random import Random, SystemRandom
from typing import Any, TypeVar

from tocsin.actors.runtime.activation import Activation
from tocsin.actors.runtime.actor import Actor, ActorContext
from tocsin.actors.runtime.alarms import AlarmHeap
from tocsin.actors.runtime.clock import Clock, SystemClock
from tocsin.actors.runtime.doubts import Doubts
from tocsin.actors.runtime.elsewhere import Elsewhere
from tocsin.actors.runtime.events import Event, Ring, fail
from tocsin.actors.runtime.ids import ActorId
from tocsin.errors import (
    HostClosedError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    StoreLocked,
    StoreUnavailable,
    TocsinError,
)
from tocsin.storage.api import Lost, Owned, StoreProvider
from tocsin.storage.shared import shared_of
from tocsin.storage.tasks import begin_soon, task_maker, until_forked

NOT_OPEN = "the host is not open: enter it with `async with host:`, or give your app `lifespan=host.lifespan`"
log = logging.getLogger("tocsin.actors")

LISTEN_RETRY_S = (1.0, 30.0)
A = TypeVar("A")
Factory = Callable[[ActorContext], Actor]


class Kind:
    """How to make actors of one kind, and how long their failing alarms back off at most.

    `doubt_alarm(actor)` is called at start for every actor that is to be rung later, and when the clock was stepped
    back: the clock, or something else that the alarm was set by, may have been wrong. It wakes the actor if the actor
    should look now, and should be cheap if not.
    """

    def __init__(
        self,
        factory: Factory,
        backoff_max_ms: int = Actor.alarm_backoff_max_ms,
        doubt_alarm: Callable[[ActorId], Awaitable[None]] | None = None,
    ) -> None:
        self.factory = factory
        self.backoff_max_ms = backoff_max_ms
        self.doubt_alarm = doubt_alarm


class Host:
    """Runs actors on a store. Use it as an async context manager, or call `start` and `stop`."""

    def __init__(
        self,
        provider: StoreProvider,
        kinds: Mapping[str, Kind],
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        mailbox_limit: int = 1000,
        idle_after_s: float = 60.0,
        rings: bool = True,
    ) -> None:
        self.provider = provider
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.mailbox_limit = mailbox_limit
        self.idle_after_s = idle_after_s
        self._kinds = dict(kinds)
        self._activations: dict[ActorId, Activation] = {}
        self._elsewhere = Elsewhere(shared_of(provider), self._activations, self.start_soon, self._gone)
        held = self._elsewhere.unsure if self._elsewhere.shared is not None else None
        self.alarms = AlarmHeap(
            self.clock, self.random, self._ring, self._backoff_max_ms, self._clock_stepped_back, held
        )
        self.tasks: set[asyncio.Task[Any]] = set()
        """Tasks that run on this host; they are ended before the store is closed."""
        self._loops: list[asyncio.Task[None]] = []
        self._open = False
        self._closing = False
        self._told_to_stop = False
        self._rings = rings
        self.begin: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]] = begin_soon
        """Make a task with the context variables of whoever started the host: work serves many callers, and those of
        the one who happened to cause it (a request's user, its trace) are none of its own."""
        self.on_owned: Callable[[Owned], None] | None = None
        """Told of actors that are this host's from now on, before any of them is rung."""
        self.on_gone: Callable[[Callable[[str], bool], StoreError], None] | None = None
        """Told of actors that go to another host, or have gone: by their names, and with the error for who waits."""
        self._heard = asyncio.Event()
        self._events_lost = False
        self._doubts = Doubts(self._doubt_of, self.clock, self.start_soon)

    # ---- Life ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Host:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the store. From now on every actor with a stored alarm is rung in time, but not if `rings` is False:
        then `alarms` is started and stopped from outside."""
        await self.provider.start()
        run: Any = copy_context().run  # its type asks for the function's arguments now
        self.begin = until_forked(self, partial(run, task_maker(asyncio.get_running_loop())))
        self._open, self._closing = True, False
        self._heard = asyncio.Event()
        self._loops = [
            self.start_soon(self._listen()),
            self.start_soon(self._evict_idle()),
        ]
        if self._rings:
            self.alarms.start()

    async def stop(self, drain_s: float = 10.0) -> None:
        """Refuse new events, serve those in line for at most `drain_s` seconds, then close the store."""
        if not self._open:
            return
        self._closing = True
        self.alarms.stop()
        try:
            async with asyncio.timeout(drain_s):
                await self._until_quiet()
        except TimeoutError:
            log.warning("the host stops with events still running after %.1f s", drain_s)
        self._open, self.begin = False, begin_soon
        current = asyncio.current_task()
        tasks = [task for task in self.tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for activation in list(self._activations.values()):
            await activation.close()
        self._activations.clear()
        await self.provider.stop()

    async def abandon(self) -> None:
        """End like a process that is killed: nothing is drained or stored. Callers that wait get an error."""
        self._open, self.begin = False, begin_soon
        self.alarms.stop()
        for activation in list(self._activations.values()):
            activation.break_(HostClosedError("the host was killed"), fail_line=True)
        self._activations.clear()
        current = asyncio.current_task()
        while tasks := [task for task in self.tasks if task is not current]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _until_quiet(self) -> None:
        """Wait until no task but the host's own loops is left."""
        while True:
            current = asyncio.current_task()
            apart = {*self._loops, self._doubts.task, current}
            busy = [task for task in self.tasks if task not in apart]
            waiting = [each for each in self._activations.values() if not each.settled]
            if not busy and not waiting:
                return
            await asyncio.gather(*busy, *(each.wait_durable() for each in waiting), return_exceptions=True)
            await asyncio.sleep(0)  # whoever else waited for these goes on first

    async def until_idle(self, only_waiting: Callable[[], Collection[asyncio.Task[Any]]]) -> None:
        """Ring what is due, and wait until nothing is due and nothing runs, but for the tasks of `only_waiting`. An
        alarm that backs off, and what only a timer goes on with, are not waited for."""
        while True:
            rings = self.alarms.look()
            apart = {*self._loops, *only_waiting(), asyncio.current_task()}
            if self._doubts.waits:
                apart.add(self._doubts.task)
            busy = [task for task in self.tasks if task not in apart]
            committing = [each for each in self._activations.values() if not each.settled]
            if busy:
                await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
            elif committing:
                with suppress(TocsinError):  # whoever waits for those turns is told
                    await committing[0].wait_durable()
            elif not rings:
                return
            await asyncio.sleep(0)  # whoever else waited for these goes on first

    async def know_alarms(self) -> None:
        """Wait until the store has said which alarms there are. StoreUnavailable if it could not."""
        await self._heard.wait()
        if self._events_lost:
            raise StoreUnavailable("the store could not say which alarms there are: look at its file, and try again")

    def start_soon(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task of its own. A failure is logged and affects nothing else."""
        task = self.begin(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a background task of the host failed", exc_info=error)

    @property
    def ready(self) -> bool:
        """Open, not stopping, and aware of every alarm in the store."""
        return self._open and not self._closing and not self._events_lost

    def told_to_stop(self) -> None:
        """Note that this process ends without having opened the store, which another one holds."""
        self._told_to_stop = True

    @property
    def is_open(self) -> bool:
        """Open, though it may be stopping."""
        return self._open

    # ---- Events ----------------------------------------------------------------------------------

    def call(self, actor: ActorId, event: Event[A], *, create: bool = True) -> asyncio.Future[A]:
        """Deliver one event and return the future of its answer. Every error is set on the future, none is raised here.
        Cancelling the future does not cancel the turn.

        `create=False` answers NotFoundError instead of creating an actor that was never written.
        """
        reply: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        if create or actor in self._activations:
            self._request(actor, event, reply)
        else:
            self.start_soon(self._request_existing(actor, event, reply))
        return reply

    def _request(self, actor: ActorId, event: Event[Any], reply: asyncio.Future[Any]) -> None:
        try:
            if not self._open and self._told_to_stop:
                raise HostClosedError("this process was told to stop while another one had the store", toldToStop=True)
            if not self._open or self._closing:
                raise HostClosedError("the host is stopping" if self._open else NOT_OPEN)
            if self._elsewhere.shared is not None:
                self._elsewhere.check(actor)
            self._activation(actor).post(event, reply)
        except TocsinError as refusal:
            fail(reply, refusal)

    async def _request_existing(self, actor: ActorId, event: Event[Any], reply: asyncio.Future[Any]) -> None:
        try:
            exists = not self._open or await self.provider.exists(str(actor))
        except Exception as error:
            fail(reply, error)
        except asyncio.CancelledError:
            fail(reply, HostClosedError("the host was stopped before this event"))
            raise
        else:
            if not exists:
                fail(reply, NotFoundError(f"there is no {actor.kind} named {actor.name!r}"))
            elif not reply.done():
                self._request(actor, event, reply)

    def post(self, actor: ActorId, event: Event[A]) -> asyncio.Future[A]:
        """Deliver an event of the host's own, also over the mailbox limit and while the host drains."""
        reply: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.deliver(actor, event, reply)
        return reply

    def deliver(self, actor: ActorId, event: Event[Any], reply: asyncio.Future[Any]) -> None:
        """Put an event in line, also over the mailbox limit."""
        if not self._open:
            fail(reply, HostClosedError("the host is stopped"))
            return
        try:
            self._activation(actor).post(event, reply, bounded=False)
        except StoreLocked as refusal:
            fail(reply, refusal)

    def _activation(self, actor: ActorId) -> Activation:
        activation = self._activations.get(actor)
        if activation is None:
            kind = self._kinds.get(actor.kind)
            if kind is None:
                raise InvalidInputError(
                    f"this host has no actors of kind {actor.kind!r}: name the class in actors=[...]"
                )
            activation = self._activations[actor] = Activation(self, actor, kind.factory)
        return activation

    def active(self, actor: ActorId) -> Activation | None:
        """Return the activation of an actor that is in memory."""
        return self._activations.get(actor)

    def forget(self, activation: Activation) -> None:
        if self._activations.get(activation.id) is activation:
            del self._activations[activation.id]

    # ---- Alarms ----------------------------------------------------------------------------------

    def _ring(self, actor: ActorId) -> asyncio.Future[None]:
        return self.post(actor, Ring())

    def _backoff_max_ms(self, actor: ActorId) -> int:
        kind = self._kinds.get(actor.kind)
        return kind.backoff_max_ms if kind else Actor.alarm_backoff_max_ms

    async def _listen(self) -> None:
        """Follow which actors this host owns: first all that it has already, then changes.

        A failure may have hidden alarms, so the store is asked again from the start; until then this host is not ready.
        """
        wait = LISTEN_RETRY_S[0]
        while True:
            try:
                async for event in self.provider.events():
                    self._events_lost = False
                    if isinstance(event, Owned):
                        self._owned(event)
                        if not event.more:
                            self._heard.set()
                    elif isinstance(event, Lost):
                        self._elsewhere.lost(event, self.alarms)
                    else:
                        self._elsewhere.leave(event, self.alarms)
                return
            except StoreError as error:
                self._events_lost = True
                self._heard.set()
                log.error("the store could not say which alarms there are, again in %.0f s: %r", wait, error)
                await self.clock.sleep(wait)
                wait = min(wait * 2, LISTEN_RETRY_S[1])

    def _owned(self, event: Owned) -> None:
        now, doubted = self.clock.now_ms(), list[ActorId]()
        if self.on_owned is not None:
            self.on_owned(event)
        for name, wake_at in event.actors:
            actor = ActorId.parse(name)
            if actor.kind in self._kinds:
                known = self.alarms.due.get(actor)
                # What was read may be older than what a turn has set since; one ring too early does no harm.
                self.alarms.set(actor, wake_at if known is None or wake_at is None else min(known, wake_at))
                if wake_at is not None and wake_at > now:
                    doubted.append(actor)
            elif wake_at is not None:
                log.warning("%s has an alarm, but this host has no actors of that kind", actor)
        self._doubts.add(doubted)

    def _gone(self, covers: Callable[[str], bool], error: StoreError) -> None:
        if self.on_gone is not None:
            self.on_gone(covers, error)

    def _clock_stepped_back(self) -> None:
        self._doubts.add(self.alarms.later_than(self.clock.now_ms()))

    def _doubt_of(self, actor: ActorId) -> Callable[[ActorId], Awaitable[None]] | None:
        kind = self._kinds.get(actor.kind)
        return kind.doubt_alarm if kind else None

    # ---- Eviction --------------------------------------------------------------------------------

    async def _evict_idle(self) -> None:
        while True:
            await self.clock.sleep(self.idle_after_s / 2)
            await self.evict(self.idle_after_s)

    async def evict(self, idle_s: float = 0.0) -> int:
        """Drop actors from memory that were not used for `idle_s` seconds, and return how many."""
        now = self.clock.monotonic()
        since = [(each, each.idle_since(now)) for each in self._activations.values()]
        idle = [each for each, instant in since if instant is not None and instant <= now - idle_s]
        for activation in idle:
            self.forget(activation)
        for activation in idle:
            await activation.close()
        return len(idle)
