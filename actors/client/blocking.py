"""`Blocking`: a `Client` on an event loop in a thread of its own, for callers that block until they are answered."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeVar

import anyio.from_thread

from tocsin.actors.client.client import Client
from tocsin.actors.client.queues import GIVE_BACK_S
from tocsin.errors import SettingsError, UnreachableError

T = TypeVar("T")


class Running:
    """A thread with an event loop, and the client that lives there. Of one process: a child has another."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal())
        self._loop: asyncio.AbstractEventLoop = self._portal.call(asyncio.get_running_loop)
        self._portal.call(_named)
        self.client = self._portal.call(make)

    def call(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Return what the coroutine comes to. If this thread is interrupted, as by Ctrl-C, the call is cancelled and
        has time to clean up: a claim gives back what it got."""
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(ask(self.client)))
            tasks[0].add_done_callback(partial(_pass_on, answer))

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(begin)
        try:
            return self._wait(answer)
        except concurrent.futures.CancelledError:
            raise UnreachableError("this SyncClient was closed while the call waited for its answer") from None
        except BaseException:
            if not answer.done():
                self._loop.call_soon_threadsafe(cancel)  # behind `begin`
                concurrent.futures.wait([answer], GIVE_BACK_S + 1)
            raise

    def _wait(self, answer: concurrent.futures.Future[T]) -> T:
        """Wait for the answer. A lab replaces this where its own loop must answer, in the thread that waits."""
        return answer.result()

    def run(self, function: Callable[[Client], T]) -> T:
        """Run a function that does not wait where the client lives."""
        return self._portal.call(function, self.client)

    def close(self) -> None:
        """Close the connections, and end the thread."""
        with self._stack:
            self._portal.call(self.client.aclose)


def _named() -> None:
    threading.current_thread().name = "tocsin-client"


def _pass_on(answer: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        answer.cancel()
        answer.set_running_or_notify_cancel()  # wakes who waits for it
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


class Blocking:
    """Starts it at the first call, and anew in a child process; ends it when it is closed or the interpreter exits."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._closed = False
        self.after_fork()
        _ALL.add(self)
        self._finish = weakref.finalize(self, _end, self._held)

    def after_fork(self) -> None:
        """Forget the thread, which the child has not. What it held stays untouched: it is the parent's."""
        self._lock = threading.Lock()
        held: list[Running] = getattr(self, "_held", [])
        _OF_PARENTS.extend(held)
        held.clear()
        self._held = held

    @property
    def running(self) -> Running:
        """Return it, started. SettingsError once it is closed."""
        for one in tuple(self._held):  # whatever another thread does meanwhile
            return one
        with self._lock:
            if self._closed:
                raise SettingsError("this SyncClient is closed: make another one")
            if not self._held:
                self._held.append(Running(self._make))
            return self._held[0]

    def call(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return self.running.call(ask)

    def run(self, function: Callable[[Client], T]) -> T:
        return self.running.run(function)

    def close(self) -> None:
        """End it. A second time is nothing."""
        with self._lock:
            self._closed = True
            _end(self._held)


def _end(held: list[Running]) -> None:
    while held:
        held.pop().close()


_ALL: Final[weakref.WeakSet[Blocking]] = weakref.WeakSet()
_OF_PARENTS: Final[list[Running]] = []
"""Kept for good: were they collected, this child would close what its parent uses."""


def _forget() -> None:
    for one in list(_ALL):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
