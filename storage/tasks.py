"""Tasks that whoever makes them can note before they begin."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakSet

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


Maker = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Begins(Protocol):
    """An object that makes its tasks in the loop in which it was started."""

    begin: Maker


def until_forked(one: Begins, maker: Maker) -> Maker:
    """Return this maker of tasks. In a forked process `one` makes them in the loop that runs there: a task in the
    parent's loop would never run."""
    _bound.add(one)
    return maker


_bound: WeakSet[Begins] = WeakSet()


def _forked() -> None:
    for one in list(_bound):
        one.begin = begin_soon


os.register_at_fork(after_in_child=_forked)
