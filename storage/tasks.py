"""Tasks that whoever makes them can note before they begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

_EAGER: Final = "create_eager_task_factory"


def task_maker(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]:
    """Return what makes tasks that begin at a later step of the loop, also where an app has its tasks begin eagerly
    (`asyncio.eager_task_factory`, Python 3.12): a turn, or a commit, would run within the call that only asks for it.
    """
    factory = loop.get_task_factory()
    if factory is not None and getattr(factory, "__qualname__", "").startswith(_EAGER):
        return partial(asyncio.Task, loop=loop)
    return loop.create_task


def begin_soon(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Make such a task in the loop that runs."""
    return task_maker(asyncio.get_running_loop())(coroutine)
