"""An asyncio event loop with virtual time, a seeded order of ready tasks, and no way to the outside.

Time jumps to the next timer when nothing is ready, so a day's sleep costs nothing and a deadlock is an error.
A run is a function of its seed: tasks and futures hash by the order of their making, not by their address, so
even a set of them iterates alike in every run. The loop leans on five private names of asyncio
(`_run_once`, `_ready`, `_scheduled`, and `_run` and `_callback` of handles); its tests run on every Python.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from asyncio import base_events
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from random import Random
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OUTSIDE = "a simulation has no threads and no sockets: something tried to leave its virtual time"
ENDING_S = 3_600
"""After `main` has ended, the tasks that it left must end within so much virtual time."""
NAMED_WHEN_STUCK = 20
"""How many waiting tasks the message of `Stuck` names."""


class Stuck(RuntimeError):
    """Raised when nothing can happen any more: a deadlock, or a wait for something outside the simulation."""


class SimLoop(base_events.BaseEventLoop):
    """An event loop for `asyncio.Runner(loop_factory=...)`, or for anyio's backend option `loop_factory`.

    Ready callbacks run in rounds. Steps of tasks run in an order drawn from the seed; plain callbacks keep the
    order of their registration, as asyncio promises, at places drawn among the steps. Without a seed (None) all run as
    they became ready, as on asyncio's own loops. A call from another thread, an executor or a socket raises an error.
    """

    def __init__(self, seed: int | None = 0) -> None:
        super().__init__()
        self._in_order = seed is None
        self._time = 0.0
        self._chance = Random(seed)
        self._numbers = itertools.count()
        self._thread = threading.get_ident()
        self._ends_at: float | None = None
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # Python 3.11 passes no name

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._time

    # ---- Rounds ----------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one round: what is ready, or, if nothing is, what the next timers call."""
        ready: Any = self._ready  # type: ignore[attr-defined]
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            self._pass_time()
        ready.extend(self._due())
        if not self._in_order:
            handles = self._shuffled(list(ready))
            ready.clear()
            ready.extend(handles)
        for _ in range(len(ready)):  # what these make ready waits for the next round
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _pass_time(self) -> None:
        """Jump to the next timer."""
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False
        if not timers:
            raise Stuck(self._why_stuck())
        if self._ends_at is not None and timers[0].when() > self._ends_at:
            raise Stuck(
                f"these tasks go on although they are cancelled; stop or crash() what they belong to: {_names(self)}"
            )
        self._time = max(self._time, timers[0].when())

    def _due(self) -> Iterator[asyncio.TimerHandle]:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].when() <= self._time:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            yield timer

    def _shuffled(self, handles: list[asyncio.Handle]) -> list[asyncio.Handle]:
        # Code may iterate over sets of its own objects, so the order in which tasks became ready can differ
        # from run to run: sort their steps by number before the draw.
        steps = sorted((handle for handle in handles if _number(handle) >= 0), key=_number)
        if not steps or len(handles) == 1:
            return handles
        callbacks = (handle for handle in handles if _number(handle) < 0)
        order: list[asyncio.Handle | None] = [*steps, *itertools.repeat(None, len(handles) - len(steps))]
        self._chance.shuffle(order)
        return [step or next(callbacks) for step in order]

    def _why_stuck(self) -> str:
        return (
            f"no task is ready and no timer is set at {self._time:g} s, so what is waited for cannot come: "
            f"{_names(self) or 'no task is left'}"
        )

    def ends(self) -> None:
        """Note that `main` has ended: raise Stuck if cancelled tasks go on for much longer."""
        self._ends_at = self._time + ENDING_S

    # ---- Tasks and futures -----------------------------------------------------------------------

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        number = next(self._numbers)
        if options.get("name") is None:
            options["name"] = f"task-{number}"  # asyncio's own numbers go on from run to run
        return _NumberedTask(number, coro, loop=loop, **options)

    def create_future(self) -> asyncio.Future[Any]:
        return _NumberedFuture(next(self._numbers), loop=self)

    # ---- The outside -----------------------------------------------------------------------------

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Refuse calls of other threads. asyncio itself calls this from the loop's own thread (Ctrl-C, generators)."""
        if threading.get_ident() != self._thread:
            raise RuntimeError(OUTSIDE)
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError(OUTSIDE)


class _Numbered:
    """Hashes as its number, which is the same in every run of a seed; an address is not."""

    number: int

    def __hash__(self) -> int:
        return self.number


class _NumberedTask(_Numbered, asyncio.Task[Any]):
    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number  # first: asyncio puts the task in a set while it makes it
        super().__init__(coro, **options)

    def set_name(self, value: object) -> None:
        if value is not None:  # Python 3.13.0 renames every nameless task to None
            super().set_name(value)


class _NumberedFuture(_Numbered, asyncio.Future[Any]):
    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        super().__init__(loop=loop)


def _number(handle: asyncio.Handle) -> int:
    """Return the number of the task whose step this is, or -1."""
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return owner.number if isinstance(owner, _NumberedTask) else -1


def _names(loop: SimLoop) -> str:
    """Name the tasks that are left, and where they wait."""
    waiting = sorted(asyncio.all_tasks(loop), key=lambda task: (getattr(task, "number", -1), task.get_name()))
    named = [f"{task.get_name()} at {_place(task)}" for task in waiting[:NAMED_WHEN_STUCK]]
    more = f" and {len(waiting) - len(named)} more" if len(waiting) > len(named) else ""
    return f"{', '.join(named)}{more}"


def _place(task: asyncio.Task[Any]) -> str:
    """Return where a task waits: the line of its innermost coroutine."""
    frame: Any = None
    awaited: Any = task.get_coro()
    while (inner := getattr(awaited, "cr_frame", None)) is not None:
        frame, awaited = inner, awaited.cr_await
    return f"{frame.f_code.co_qualname}:{frame.f_lineno}" if frame is not None else "its start"


def simulate(seed: int, main: Callable[[Random], Coroutine[Any, Any, T]], *, in_order: bool = False) -> T:
    """Run `main` on a simulated loop, with a `Random` of the same seed. The same seed gives the same run. `in_order`:
    tasks run in the order in which they become ready; else their order is drawn, to find what depends on it.

    Tasks that `main` leaves are cancelled. Raises Stuck if they do not end: a host was neither stopped nor crashed.
    """
    loop = SimLoop(None if in_order else seed)

    async def whole() -> T:
        try:
            return await main(Random(seed ^ 0x5EED))
        finally:
            loop.ends()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(whole())
