"""Blocking calls on threads of their own. The event loop's default executor belongs to the app, which may have filled
it: a store must open, close and make room all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def aside(function: Callable[..., T], *args: object) -> T:
    """Return its result. A caller that is cancelled does not interrupt it. Each call makes a thread: for rare work."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def give(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]  # None only where T is
        else:
            answer.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args)
        except Exception as raised:  # whatever it is, it belongs to the one who waits
            error = raised
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(give, result, error)

    try:
        threading.Thread(target=work, name="tocsin-aside", daemon=True).start()
    except RuntimeError:
        # The process has no thread left: a loop that waits is better than a store that does not close.
        work()
    return await answer
