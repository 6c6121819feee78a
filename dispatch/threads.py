"""Functions on threads of a pool, in a process that may have no thread left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_Outcome = tuple[Any, BaseException | None]


def submitted(threads: Executor, function: Callable[..., T], *arguments: object) -> Future[T]:
    """Do as `threads.submit`, but never run a function after a RuntimeError for it.

    A pool keeps what it has no thread for, and would run it as soon as it has one, after its caller was refused.
    """
    answer: Future[T] = Future()

    def run() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(function(*arguments))
        except BaseException as error:  # whatever it is, it belongs to the one who waits
            answer.set_exception(error)

    def dropped(given: Future[None]) -> None:
        if given.cancelled():
            answer.cancel()

    try:
        threads.submit(run).add_done_callback(dropped)
    except RuntimeError:
        if answer.cancel():
            raise
        # Another thread of the pool has come to it already.
    return answer


async def outcome_in_thread(threads: Executor, function: Callable[..., Any], *arguments: object) -> _Outcome:
    """Call `function` on a thread, in a copy of this context, and return what it returned or raised.

    Once begun it is waited for, also when this task is cancelled: nothing can stop a thread. Cancelled before that, and
    after a RuntimeError because there is no thread, it never runs.
    """
    context = copy_context()
    begun: Future[_Outcome] = submitted(threads, context.run, _outcome, function, arguments)
    waiting = asyncio.wrap_future(begun)
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            if begun.cancel():
                raise
    return waiting.result()


def _outcome(function: Callable[..., Any], arguments: tuple[object, ...]) -> _Outcome:
    """Return an error as a value: a future takes not every one, and SystemExit would end the process."""
    try:
        return function(*arguments), None
    except BaseException as error:  # whatever it is, it belongs to the one who waits
        return None, error
