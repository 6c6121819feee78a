"""The outside of the loop while a lab is open: the machine's clock, and threads at work.

Everything here looks at the running loop: on another one, and after the last lab is closed, nothing is changed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from asyncio import futures
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, Final
from unittest.mock import patch

import aiosqlite

from tocsin.actors.actor_host import ActorHost
from tocsin.actors.client.blocking import Running
from tocsin.actors.outbox import databases
from tocsin.actors.runtime import clock as host_clock
from tocsin.actors.testing.lab import housekeeping, own_thread
from tocsin.actors.testing.lab.clients import asking
from tocsin.actors.testing.lab.loop_time import LoopTime, time_of
from tocsin.dispatch import clock as dispatch_clock
from tocsin.dispatch.receiver.sqlite_dedup import SQLiteDedup
from tocsin.dispatch.server_client import ServerClient
from tocsin.dispatch.worker.worker import Worker
from tocsin.storage.aside import aside
from tocsin.storage.sqlite import provider, upkeep
from tocsin.storage.sqlite import thread as sqlite_thread

OWN_THREADS: Final = "tocsin-"
"""Threads of tocsin, some with a loop of their own for callers that block: they serve the app, in its time."""
_MACHINE: Final = time
_WRAP: Final = asyncio.wrap_future
_EXECUTE: Final[Callable[..., Awaitable[Any]]] = aiosqlite.Connection._execute
_ASIDE: Final = aside
_START: Final = ActorHost._start
_OPENED: Final = SQLiteDedup._opened


def time_here() -> LoopTime | None:
    """Return the virtual time of the running loop; in a thread of a handler or of tocsin, of the only lab's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return time_of(None)  # a thread, such as that of a handler
    own = threading.current_thread().name.startswith(OWN_THREADS)
    return time_of(None if own else loop)


class _Time:
    """Stands for the module `time` where tocsin reads it."""

    @staticmethod
    def time_ns() -> int:
        here = time_here()
        return _MACHINE.time_ns() if here is None else here.now_ms() * 1_000_000

    @staticmethod
    def monotonic() -> float:
        here = time_here()
        return _MACHINE.monotonic() if here is None else here.time()


def _wrap_future(
    future: concurrent.futures.Future[Any] | asyncio.Future[Any], *, loop: asyncio.AbstractEventLoop | None = None
) -> asyncio.Future[Any]:
    """Count a thread that somebody on the loop waits for: handlers, `asyncio.to_thread`, executors."""
    waiting = _WRAP(future, loop=loop)
    here = time_of(waiting.get_loop())
    if here is not None and waiting is not future and not waiting.done():
        here.threads += 1
        waiting.add_done_callback(lambda _: _done(here))
    return waiting


def _done(here: LoopTime) -> None:
    here.threads -= 1


async def _execute(connection: aiosqlite.Connection, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Count the thread of an SQLite connection: of a store, or of the app."""
    here = time_here()
    if here is None:
        return await _EXECUTE(connection, function, *args, **named)
    here.threads += 1
    try:
        return await _EXECUTE(connection, function, *args, **named)
    finally:
        here.threads -= 1


async def _aside(function: Callable[..., Any], *args: object) -> Any:
    """Count a thread on which a store opens, closes or makes room."""
    here = time_here()
    if here is None:
        return await _ASIDE(function, *args)
    here.threads += 1
    try:
        return await _ASIDE(function, *args)
    finally:
        here.threads -= 1


def _adopted(adopt: Callable[[SQLiteDedup], None]) -> Callable[[SQLiteDedup], Any]:
    """Return a method of a dedup store, which is adopted before its file is used."""

    def opened(dedup: SQLiteDedup) -> Any:
        adopt(dedup)
        return _OPENED(dedup)

    return opened


class Outside:
    """Holds the changes while any lab is open."""

    def __init__(self) -> None:
        self._labs = 0
        self._changes = ExitStack()

    def enter(
        self,
        start: Callable[[ActorHost], Any],
        lead: Callable[[ServerClient], None],
        adopt: Callable[[SQLiteDedup], None],
    ) -> None:
        """Open for one more lab. `start` is called in the place of `ActorHost._start`, `lead` before a client asks,
        `adopt` before a dedup file is used."""
        self._labs += 1
        if self._labs > 1:
            return
        for module in (host_clock, dispatch_clock):
            self._changes.enter_context(patch.object(module, "time", _Time))
        for owner in (asyncio, futures):
            self._changes.enter_context(patch.object(owner, "wrap_future", _wrap_future))
        self._changes.enter_context(patch.object(aiosqlite.Connection, "_execute", _execute))
        self._changes.enter_context(patch.object(sqlite_thread, "_EXECUTE", _execute))
        for module in (databases, provider, upkeep):
            self._changes.enter_context(patch.object(module, "aside", _aside))
        self._changes.enter_context(patch.object(ActorHost, "_start", start))
        self._changes.enter_context(patch.object(SQLiteDedup, "_opened", _adopted(adopt)))
        self._changes.enter_context(patch.object(Worker, "_claim_on", housekeeping.claim_on))
        self._changes.enter_context(patch.object(Worker, "_begin", housekeeping.begin))
        self._changes.enter_context(patch.object(Running, "call", own_thread.call))
        self._changes.enter_context(patch.object(Running, "_wait", own_thread.wait))
        for name in ("_request", "_post_directly"):
            method = asking(getattr(ServerClient, name), lead)
            self._changes.enter_context(patch.object(ServerClient, name, method))

    def leave(self) -> None:
        """Close for one lab."""
        self._labs -= 1
        if not self._labs:
            self._changes.close()


OUTSIDE: Final = Outside()


def now_ms() -> int:
    """Return wall time as the machine has it, or as a library for tests pretends it to be."""
    return _MACHINE.time_ns() // 1_000_000


async def start_really(host: ActorHost) -> None:
    """Start a host as without a lab."""
    await _START(host)
