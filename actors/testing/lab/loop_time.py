"""Virtual time on an event loop that runs already: its timers ring when somebody passes the time, and not before.

Everything on the loop is under it, `asyncio.sleep` and `asyncio.timeout` included. When nothing is ready, and no thread
is at work, the loop asks its selector to wait: there time moves, straight to the next timer. Nothing polls.
This leans on private names of asyncio's loops (`_selector`, `_scheduled`, `_ready`, `_clock_resolution`,
and of timers `_when` and `_scheduled`); its tests run on every Python.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import threading
from asyncio import base_events
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from anyio import CapacityLimiter
from anyio.to_thread import current_default_thread_limiter

from tocsin.actors.testing.lab.housekeeping import is_housekeeping
from tocsin.actors.testing.loop import Stuck
from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.testing")

T = TypeVar("T")
WATCHDOG_S: Final = 5.0
"""Real seconds in which a test waits, nothing happens and time stands still: then it moves by itself, with a log, so
that a test that forgot to pass or close it ends."""
NO_SOCKET_S: Final = 0.005
"""Real seconds to listen where no socket is open: for a thread that nobody has counted."""
RESOLUTION_S: Final = 1e-6
UNATTENDED_S: Final = 3_600.0
"""How far it moves then."""
THREADS_S: Final = 10.0
"""Real seconds after which threads that are still at work are not waited for any more."""
THREADS: Final = f"threads have been at work for {THREADS_S:g} s, and time goes on without them"
IDLE: Final = "a test waits, nothing happens, and time stands still: pass it, `await t.advance(...)`, or close the lab"
_SLEPT: Final = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]
"""The function that the timer of `asyncio.sleep` calls."""
_times: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopTime] = WeakKeyDictionary()


class _Driver:
    """Somebody who passes the time until `target`; or until something else, and `target` is only the limit."""

    def __init__(self, target: float, loop: asyncio.AbstractEventLoop, *, is_limit: bool) -> None:
        self.target, self.is_limit = target, is_limit
        self.reached: asyncio.Future[None] = loop.create_future()


class LoopTime:
    """The virtual time of one loop. All labs on the loop share it; the last one that leaves takes it away."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int, limiter: CapacityLimiter) -> None:
        self.start_ms, self.users = start_ms, 0
        self._now = 0.0
        self.threads = 0
        """How many threads are at work for somebody on this loop. Time stands still until they are done."""
        self.jumps = 0
        """How many times time has moved."""
        self.testers: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Tasks of tests: when one of them sleeps, the time passes until it wakes."""
        self.followers: list[Callable[[int], object]] = []
        """Called with the present, epoch ms, as soon as it is another one."""
        self.may_hear: Callable[[], float] = lambda: 0.0
        """Return how many real seconds to wait, before time moves, for what a socket may bring."""
        self.loop: Any = loop
        self.thread = threading.get_ident()
        self._limiter = limiter
        self._drivers: list[_Driver] = []
        self._sleeping: list[asyncio.TimerHandle] = []
        self._lazy: list[asyncio.TimerHandle] = []
        self._outer: list[asyncio.TimerHandle] = []  # of before, and of tasks of before; they go on in real time
        self._outsiders: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._given_up = 0
        self._unattended = -math.inf
        """Until when time moves though nobody passes it."""

    # ---- Coming and going ------------------------------------------------------------------------

    def install(self) -> None:
        """Take over the loop's time. It begins where the real one is."""
        loop = self.loop
        self._real_time: Callable[[], float] = loop.time
        self._call_at: Callable[..., asyncio.TimerHandle] = loop.call_at
        self._select: Callable[[float | None], list[Any]] = loop._selector.select
        self._begin: float = self._real_time()
        self._now = self._begin
        self._outer = [timer for timer in loop._scheduled if not timer.cancelled()]
        for timer in self._outer:
            timer._scheduled = False  # type: ignore[attr-defined]
        loop._scheduled.clear()
        loop._timer_cancelled_count = 0
        self._outsiders.update(asyncio.all_tasks(loop) - {asyncio.current_task(loop)})
        # The loop rings what is due before now and this; its own nanosecond is lost in the float of half a year.
        self._resolution, loop._clock_resolution = loop._clock_resolution, RESOLUTION_S
        loop.time, loop.call_at, loop._selector.select = self.time, self.call_at, self.select
        _times[loop] = self

    def remove(self) -> None:
        """Give the loop its own time back. What still waits goes on to wait for as long as it would have."""
        loop = self.loop
        del loop.time, loop.call_at, loop._selector.select
        loop._clock_resolution = self._resolution
        del _times[loop]
        ahead = self._now - self._real_time()
        for timer in [*loop._scheduled, *self._lazy]:
            timer._when -= ahead
        for timer in [*self._lazy, *self._outer]:
            if not timer.cancelled():
                timer._scheduled = True  # type: ignore[attr-defined]
                loop._scheduled.append(timer)
        heapq.heapify(loop._scheduled)

    # ---- What the loop asks ----------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual time of the loop, in seconds."""
        return self._now

    def now_ms(self) -> int:
        """Return wall time, ms since the epoch."""
        # A timer for the n-th ms rings at a float that may lie a hair below it.
        return self.start_ms + math.floor((self._now - self._begin) * 1000 + 1e-2)

    def instant(self, epoch_ms: int) -> float:
        """Return the loop's time at that instant."""
        return self._begin + (epoch_ms - self.start_ms) / 1000

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer. One of housekeeping rings late, when time has come to rest for another reason."""
        task = asyncio.current_task(self.loop)
        if is_housekeeping(task, callback):
            timer = asyncio.TimerHandle(when, callback, args, self.loop, context)
            self._lazy.append(timer)
            return timer
        if task in self._outsiders and task not in self.testers:
            timer = asyncio.TimerHandle(self._real_time() + when - self._now, callback, args, self.loop, context)
            self._outer.append(timer)
            return timer
        timer = self._call_at(when, callback, *args, context=context)
        if callback is _SLEPT and task in self.testers:
            self._sleeping.append(timer)
        return timer

    def select(self, timeout: float | None) -> list[Any]:
        """Wait in the loop's place. It asks with no timeout, or a positive one, only when nothing is ready."""
        if timeout is not None and timeout <= 0:
            events = self._select(0)
        elif self._at_work():
            heard = self._wait(THREADS_S, THREADS)
            if heard is None:  # they may be there for as long as the app
                self._given_up = self.threads + self._limiter.borrowed_tokens
            events = heard or []
        elif self._is_driven():
            events = self._select(0) or self._listen()
            if not events:
                self._move()
        else:
            heard = self._wait(WATCHDOG_S, IDLE)
            if heard is None:
                self._unattended = self._now + UNATTENDED_S
            events = heard or []
        self._ring_outer()
        return events

    # ---- Waiting in real time --------------------------------------------------------------------

    def _at_work(self) -> bool:
        working = self.threads + self._limiter.borrowed_tokens
        self._given_up = min(self._given_up, working)
        return working > self._given_up

    def _wait(self, seconds: float, why: str) -> list[Any] | None:
        """Wait for what comes from outside. If nothing comes for so long, say so, and return None."""
        end = self._real_time() + seconds
        upcoming = min([end, *(one.when() for one in self._outer)])
        events: list[Any] = self._select(max(upcoming - self._real_time(), 0))
        if events or upcoming < end:
            return events
        log.error("%s", why)
        return None

    def _listen(self) -> list[Any]:
        """Wait a moment for sockets, if what runs may listen to one; not longer than virtual time would jump.

        If nothing is left but the limit of what is waited for, that comes from outside, if at all: wait long.
        """
        patience = self.may_hear()
        if not self._has_sockets():
            patience = min(patience, NO_SOCKET_S)
        ahead = math.inf if (upcoming := self.upcoming) is None else upcoming - self._now
        if not self._lazy_due() and any(one.is_limit and one.target <= self._now + ahead for one in self._drivers):
            patience = ahead = WATCHDOG_S
        events: list[Any] = self._select(min(patience, ahead)) if patience and ahead > 0 else []
        return events

    def _has_sockets(self) -> bool:
        """Return whether the loop watches anything but its own pipe, by which threads wake it."""
        watched = getattr(self.loop._selector, "get_map", None)
        return watched is None or len(watched()) > 1

    def _ring_outer(self) -> None:
        """Ring timers that keep to real time."""
        if not self._outer:
            return
        now = self._real_time()
        self._outer = [timer for timer in self._outer if not timer.cancelled()]
        for timer in [timer for timer in self._outer if timer.when() <= now]:
            self._outer.remove(timer)
            self.loop._ready.append(timer)

    # ---- Moving ----------------------------------------------------------------------------------

    def _is_driven(self) -> bool:
        self._sleeping = [one for one in self._sleeping if not one.cancelled() and one.when() > self._now]
        return bool(self._drivers or self._sleeping) or self._unattended > self._now

    @property
    def upcoming(self) -> float | None:
        """Return when the next timer rings that is not housekeeping."""
        timers: list[asyncio.TimerHandle] = self.loop._scheduled
        return timers[0].when() if timers else None

    def _targets(self) -> Iterator[float]:
        yield from (driver.target for driver in self._drivers)
        yield from (timer.when() for timer in self._sleeping)
        if self._unattended > self._now:
            yield self._unattended

    def _move(self) -> None:
        """Go on by one step: ring what waited for time to come to rest, end a wait, or jump to the next timer."""
        if self._ring_lazy():
            return
        for driver in self._drivers:
            if driver.target <= self._now and not driver.reached.done():
                driver.reached.set_result(None)
                return
        upcoming = self.upcoming
        target = min(self._targets(), default=math.inf)
        goal = target if upcoming is None else min(upcoming, target)
        if goal == math.inf:
            self.fail(Stuck("no timer is set, so what is waited for cannot come"))
        elif goal > self._now:
            self._now = goal
            self.jumps += 1
            self._tell()

    def _tell(self) -> None:
        """Call whoever follows the time. What they raise is raised where a test passes it."""
        for follow in self.followers:
            try:
                follow(self.now_ms())
            except Exception as error:
                self.fail(error)

    def _lazy_due(self) -> list[asyncio.TimerHandle]:
        return [timer for timer in self._lazy if timer.when() <= self._now and not timer.cancelled()]

    def _ring_lazy(self) -> bool:
        due = self._lazy_due()
        self._lazy = [timer for timer in self._lazy if timer.when() > self._now and not timer.cancelled()]
        self.loop._ready.extend(due)
        return bool(due)

    def fail(self, error: Exception) -> None:
        """Have those who pass the time raise this."""
        for driver in self._drivers:
            if not driver.reached.done():
                driver.reached.set_exception(error)

    async def drive(self, target: float, until: asyncio.Future[Any] | None = None) -> None:
        """Pass the time until `target`, or until that future is done, and let all that is due come to rest.

        Raises Stuck if it is never done because nothing can happen any more.
        """
        self._unattended = -math.inf
        driver = _Driver(target, self.loop, is_limit=until is not None)
        self._drivers.append(driver)
        try:
            waits: list[asyncio.Future[Any]] = [driver.reached] if until is None else [driver.reached, until]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if driver.reached.done() and (until is None or not until.done()):
                driver.reached.result()
        finally:
            self._drivers.remove(driver)
            if driver.reached.done():
                driver.reached.exception()  # taken note of

    async def pass_until(self, awaitable: Awaitable[T], limit_s: float, what: str) -> T:
        """Pass the time until this is done, at most so many virtual seconds. Raises Stuck if it takes longer."""
        waiting = asyncio.ensure_future(awaitable)
        try:
            await self.drive(self._now + limit_s, waiting)
            if not waiting.done():
                raise Stuck(f"{what} has not ended after {limit_s:g} virtual seconds")
            return await waiting
        finally:
            waiting.cancel()


def time_of(loop: asyncio.AbstractEventLoop | None) -> LoopTime | None:
    """Return the virtual time of this loop; without a loop, of the only one that has any."""
    if loop is not None:
        return _times.get(loop)
    live = [time for one, time in list(_times.items()) if not one.is_closed()]
    return live[0] if len(live) == 1 else None


def times_of_this_thread() -> list[LoopTime]:
    """Return the virtual times whose loops live in the calling thread."""
    here = threading.get_ident()
    return [time for loop, time in list(_times.items()) if time.thread == here and not loop.is_closed()]


async def taken_over(start_ms: int | None, now_ms: int) -> LoopTime:
    """Take over the time of the running loop, unless another lab has done so: then share it.

    Raises SettingsError on a loop that has no such time, and if another lab began at another instant.
    """
    loop = asyncio.get_running_loop()
    time = _times.get(loop)
    if time is None:
        if not isinstance(loop, base_events.BaseEventLoop) or not hasattr(loop, "_selector"):
            raise SettingsError(
                f"a lab needs one of asyncio's own event loops, not {type(loop).__module__}.{type(loop).__name__}: "
                "run the tests with asyncio's default loop"
            )
        time = LoopTime(loop, now_ms if start_ms is None else start_ms, current_default_thread_limiter())
        time.install()
    elif start_ms is not None and start_ms != time.start_ms:
        raise SettingsError(
            f"start: another lab on this event loop began at {time.start_ms}, and labs of one loop share their time: "
            "leave start out, or close the other one first"
        )
    time.users += 1
    return time


def given_back(time: LoopTime) -> None:
    """Leave a loop's time; whoever leaves last takes it away."""
    time.users -= 1
    if not time.users:
        time.remove()
