"""Callers that block: one event loop for all of them, on a thread of its own, and each caller's thread for its work."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
JOIN_S: Final = 5.0
"""How long a stop waits for the loop's thread, which only closes the loop by then."""


class NoThread(Exception):
    """The loop was stopped, or no thread or no loop can be had."""


class LoopThread:
    """An event loop on a thread of its own, begun at the first use.

    A process that was forked since begins another one: threads are not forked. Forgotten without a stop, it ends.
    """

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()
        self._process, self._stopped = 0, False
        _ALL.add(self)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def _running(self) -> bool:
        return self._loop is not None and self._process == os.getpid()

    @property
    def elsewhere(self) -> bool:
        """Return whether the loop runs on another thread than this."""
        return self._running and self._thread is not threading.current_thread()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine in the loop, in the context of this caller. A stop cancels what has not ended.

        NoThread after a stop, or if none can be had.
        """
        try:
            with self._lock:
                if self._stopped:
                    raise NoThread(f"{self._name} is stopped")
                loop = self._loop if self._running else None
                return asyncio.run_coroutine_threadsafe(work, loop or self._begun())
        except BaseException:
            work.close()
            raise

    def _begun(self) -> asyncio.AbstractEventLoop:
        ready: Future[asyncio.AbstractEventLoop] = Future()
        thread = threading.Thread(target=_serve, args=(ready,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise NoThread(f"{self._name} has no thread: {error}") from error
        if self._loop is not None:
            _OF_PARENTS.append(self._loop)
        self._process, self._thread, self._loop = os.getpid(), thread, ready.result()
        weakref.finalize(self, _end, self._loop, self._process)
        return self._loop

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def open(self) -> None:
        """Take work again."""
        self._stopped = False

    def stop(self) -> None:
        """Stop the loop and take no more work. Called in the loop itself it does nothing: it has work still.

        Wait for the thread, unless that would block an event loop.
        """
        with self._lock:
            thread, loop, running = self._thread, self._loop, self._running
            if running and not self.elsewhere:
                return
            self._thread = self._loop = None
            self._stopped = True
        if not running or loop is None or thread is None:
            return
        _end(loop, os.getpid())
        if not in_event_loop():
            thread.join(JOIN_S)


def _serve(ready: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        try:
            loop = runner.get_loop()
        except OSError as error:  # no file descriptor is left
            ready.set_exception(NoThread(f"no event loop can be had: {error}"))
            return
        ready.set_result(loop)
        loop.run_forever()


_ALL: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()
_OF_PARENTS: Final[list[asyncio.AbstractEventLoop]] = []
"""Loops of a parent that a child knows of, kept for good: a child that collected one would close what is in use."""


def _unlock() -> None:
    """Give a child process locks that no thread of its parent holds."""
    for one in list(_ALL):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def _end(loop: asyncio.AbstractEventLoop, process: int) -> None:
    """Stop a loop of this process: one of its parent's, known here by a fork, must not hear of it."""
    if process == os.getpid() and not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def in_event_loop() -> bool:
    """Return whether this thread runs an event loop, which whatever blocks would stop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_in_event_loop(blocking: str, awaited: str) -> None:
    """Raise a RuntimeError where a call that blocks would stop an event loop."""
    if in_event_loop():
        raise RuntimeError(f"{blocking}() would block the event loop of this thread: await {awaited}() there")


class CallerThread(Executor):
    """The thread of a caller that waits for an answer. Meanwhile it runs what is submitted here."""

    def __init__(self) -> None:
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        self._given.put(partial(_run, done, partial(fn, *args, **kwargs)))
        return done

    def wait(self, answer: Future[T]) -> T:
        """Return the answer when it is there. Interrupted (as by Ctrl-C), cancel it."""
        answer.add_done_callback(lambda _: self._given.put(None))
        try:
            while (given := self._given.get()) is not None:
                given()
            return answer.result()
        except BaseException:
            answer.cancel()
            raise


def _run(done: Future[T], call: Callable[[], T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(call())
    except BaseException as error:  # whatever it is, it belongs to the one who waits
        done.set_exception(error)
