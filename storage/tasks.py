"""Tasks that whoever makes them can note before they begin."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

_EAGER: Final = "create_eager_task_factory"


def begin_soon(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Make a task that begins at a later step of the loop, also where an app has its tasks begin eagerly
    (`asyncio.eager_task_factory`, Python 3.12): a turn, or a commit, would run within the call that only asks for it.
    """
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if factory is not None and getattr(factory, "__qualname__", "").startswith(_EAGER):
        return asyncio.Task(coroutine, loop=loop)
    return loop.create_task(coroutine)
