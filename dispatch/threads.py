"""Functions on threads of a pool, in a process that may have no thread left."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def submitted(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> Future[T]:
    """As `threads.submit`, but after its RuntimeError the function never runs: a pool keeps what it has no thread for,
    and would run it as soon as it has one, when nobody waits for it any more."""
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
