"""The app's `on_tick` hook, called after passes over schedules and repeated until it succeeds. No turn waits for it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.scheduler")

OnTick = Callable[..., Awaitable[None] | None]
"""`on_tick(covered_until, lateness)`, and with `instance` if it takes that: every slot of that scheduler up to
`covered_until` (epoch ms) is decided; the latest of those of this pass was decided `lateness` ms after it was due."""
RETRY_S: Final = 1.0


class Ticks:
    """Calls the hook, once at a time per instance. A call that fails is repeated after a second, with what was covered
    meanwhile."""

    def __init__(
        self,
        hook: OnTick,
        sleep: Callable[[float], Awaitable[None]],
        start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._hook, self._sleep, self._start_soon = hook, sleep, start_soon
        self._named = takes_instance(hook)
        self._waiting: dict[str, tuple[int, int]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped = False
        self.failing: set[asyncio.Task[None]] = set()
        """Tasks of calls that failed and are repeated."""

    def start(self) -> None:
        """Accept notes, also after a stop: a host may be opened again."""
        self._stopped = False

    def stop(self) -> None:
        """Cancel calls that are under way, and make no more."""
        self._stopped = True
        for task in self._tasks.values():
            task.cancel()

    def note(self, instance: str, covered_until: int, late_ms: int) -> None:
        """Let the hook be told of a pass that is durable. Returns at once."""
        if self._stopped:
            return
        self._waiting[instance] = (covered_until, max(late_ms, self._waiting.get(instance, (0, 0))[1]))
        running = self._tasks.get(instance)
        if running is None or running.done():  # a task that has just ended is forgotten a little later
            self._tasks[instance] = self._start_soon(self._run(instance))
            self._tasks[instance].add_done_callback(lambda task: self._forget(instance, task))

    def _forget(self, instance: str, task: asyncio.Task[None]) -> None:
        self.failing.discard(task)
        if self._tasks.get(instance) is task:
            del self._tasks[instance]

    async def _run(self, instance: str) -> None:
        while (covered := self._waiting.get(instance)) is not None:
            try:
                await self._call(instance, *covered)
            except Exception:
                # The app's own code: whatever it raises is reported, and changes nothing here.
                log.exception("on_tick of %s failed, again in %.0f s", instance, RETRY_S, extra={"instance": instance})
                self.failing.update(task for task in [asyncio.current_task()] if task is not None)
                await self._sleep(RETRY_S)
            else:
                if self._waiting.get(instance) == covered:
                    del self._waiting[instance]

    async def _call(self, instance: str, covered_until: int, late_ms: int) -> None:
        more = {"instance": instance} if self._named else {}
        waiting = self._hook(covered_until, late_ms, **more)
        if inspect.isawaitable(waiting):
            await waiting


def takes_instance(hook: object) -> bool:
    """Return whether the hook has a parameter `instance`. SettingsError if it is no function."""
    if not callable(hook):
        raise SettingsError(f"on_tick must be a function, not {type(hook).__name__}")
    try:
        parameters = inspect.signature(hook).parameters.values()
    except ValueError:  # some functions written in C have no signature
        return False
    return any(each.name == "instance" or each.kind is each.VAR_KEYWORD for each in parameters)
