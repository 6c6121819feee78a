"""Run one life of the app under test: its lifespan, its requests, and the tasks that end with it when it crashes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, copy_context
from typing import Any, Final
from weakref import WeakSet

from tocsin.actors.testing.loop import Stuck
from tocsin.dispatch.asgi_transport import App, Message, Receive, Send
from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.testing")

ROUNDS: Final = 1_000
"""How often the tasks of a crashed app are cancelled, before one is called stuck: each may clean up a little."""
_life: ContextVar[AppLife | None] = ContextVar("tocsin_lab_life", default=None)


def current_life() -> AppLife | None:
    """Return the life that the running code is part of."""
    return _life.get()


def is_asgi(app: object) -> bool:
    """Return whether this is an ASGI app rather than a function that makes one."""
    if not callable(app):
        return False
    try:
        parameters = inspect.signature(app).parameters.values()
    except (TypeError, ValueError):  # of some builtins
        return True
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len([one for one in positional if one.default is one.empty]) == 3


class AppLife:
    """Runs an ASGI app as a server does, from startup to shutdown."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._state: dict[str, Any] = {}
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._heard: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._has_lifespan = True

    # ---- Lifespan --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Run the startup. SettingsError if the app says that it failed; what it raises is the cause."""
        context = copy_context()
        context.run(_life.set, self)
        self._task = asyncio.create_task(self._lifespan(), context=context)
        await self._told("startup")

    async def stop(self) -> None:
        """Run the shutdown."""
        if self._has_lifespan:
            await self._told("shutdown")
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _told(self, what: str) -> None:
        assert self._task is not None
        self._said.put_nowait({"type": f"lifespan.{what}"})
        heard = asyncio.ensure_future(self._heard.get())
        await asyncio.wait([heard, self._task], return_when=asyncio.FIRST_COMPLETED)
        if heard.done():
            answer = heard.result()
            if answer["type"] != f"lifespan.{what}.failed":
                return
            await asyncio.wait([self._task])
            said = str(answer.get("message", "")).strip().splitlines()
            cause = None if self._task.cancelled() else self._task.exception()
            raise SettingsError(f"the {what} of the app failed: {said[-1] if said else 'it gave no reason'}") from cause
        heard.cancel()
        cause = None if self._task.cancelled() else self._task.exception()
        if isinstance(cause, Exception) and self._said.empty():  # it takes such messages, and failed over this one
            raise SettingsError(f"the {what} of the app failed: {type(cause).__name__}: {cause}") from cause
        # No fault: it is how an app says so, Django's and every wrapper of WSGI. What else fails shows in its requests.
        log.debug("the app has no lifespan%s", "" if cause is None else f": {type(cause).__name__}: {cause}")
        self._has_lifespan = False  # such an app ends or raises at once: Django's does

    async def _lifespan(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        await self._app(scope, self._said.get, self._heard.put)

    # ---- Requests --------------------------------------------------------------------------------

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request as part of this life."""
        token = _life.set(self)
        try:
            await self._app({**scope, "state": dict(self._state)}, receive, send)
        finally:
            _life.reset(token)

    # ---- Its end ---------------------------------------------------------------------------------

    def owns(self, task: asyncio.Task[Any]) -> None:
        """Note that a task belongs to this life."""
        self._tasks.add(task)

    async def kill(self, thread_at_work: Callable[[], bool]) -> None:
        """End every task of this life. Their `finally` blocks run, but what they still wait for is cancelled, too; only
        a function in a thread cannot be stopped, and is waited for."""
        self._has_lifespan = False
        for _ in range(ROUNDS):
            current = asyncio.current_task()
            alive = [task for task in self._tasks if not task.done() and task is not current]
            if not alive:
                return
            for task in alive:
                task.cancel()
            await asyncio.sleep(0)
            if thread_at_work() and not any(task.done() for task in alive):
                await asyncio.wait(alive, return_when=asyncio.FIRST_COMPLETED)
        raise Stuck(f"these tasks of the app go on although they are cancelled: {alive!r:.1000}")


class TaskFactory:
    """Notes which task belongs to which life: each is of the life whose task made it. What a test's task makes is a
    test's, unless it is tocsin's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, testers: WeakSet[asyncio.Task[Any]]) -> None:
        self._loop, self._before, self._testers = loop, loop.get_task_factory(), testers
        loop.set_task_factory(self)

    def __call__(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        make: Callable[..., Any] = self._before or _task
        task = make(loop, coro, **options)
        context = options.get("context")
        life = _life.get() if context is None else context.get(_life)
        if life is not None:
            life.owns(task)
        elif asyncio.current_task(loop) in self._testers and not _is_ours(coro):
            self._testers.add(task)
        return task

    def remove(self) -> None:
        """Give the loop its own factory back."""
        if self._loop.get_task_factory() is self:
            self._loop.set_task_factory(self._before)


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coro, loop=loop, **options)


def _is_ours(coro: Any) -> bool:
    frame = getattr(coro, "cr_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith("tocsin.")


async def made(app: object, given: object) -> object:
    """Return the app, or what a function that makes one returns: it is given the lab, if it takes a parameter."""
    if not callable(app) or is_asgi(app) or isinstance(app, Mapping):
        return app
    takes = [one for one in inspect.signature(app).parameters.values() if one.default is one.empty]
    built = app(given) if takes else app()
    return await built if isinstance(built, Awaitable) else built
