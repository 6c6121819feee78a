"""Timers that may ring late, as after a suspension of the machine: nothing is due by them.

A worker that has nothing to do reports every ten seconds and asks for jobs every twenty. Over a virtual year that would
be five million times. In a lab such a timer rings when time has come to rest for another reason, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType
from typing import Any, Final

from tocsin.actors.outbox.drain import Drain
from tocsin.actors.runtime.host import Host
from tocsin.dispatch.worker.announcer import Announcer
from tocsin.dispatch.worker.worker import Worker

_BOUND_OF_A_WAIT: Final = asyncio.tasks._release_waiter  # type: ignore[attr-defined]
"""The function that the timer of `asyncio.wait(timeout=...)` calls."""
_LOOPS: Final[frozenset[CodeType]] = frozenset(
    one.__code__ for one in (Announcer._tell_on, Drain._run, Host._evict_idle)
)
_claims: ContextVar[bool] = ContextVar("tocsin_lab_claims", default=False)
"""True in what a worker does to get jobs, on both sides of a request: how long that waits is housekeeping. Its pauses
after a refusal are not, nor are its jobs."""
_CLAIM_ON: Final = Worker._claim_on
_BEGIN: Final = Worker._begin


def is_housekeeping(task: asyncio.Task[Any] | None, callback: Callable[..., object]) -> bool:
    """Return whether a timer that `task` sets may ring late."""
    if callback is _BOUND_OF_A_WAIT and _claims.get():
        return True
    return task is not None and getattr(task.get_coro(), "cr_code", None) in _LOOPS


async def claim_on(worker: Worker, *args: Any) -> None:
    """Stand for `Worker._claim_on`."""
    _claims.set(True)
    await _CLAIM_ON(worker, *args)


def begin(worker: Worker, *args: Any) -> None:
    """Stand for `Worker._begin`."""
    token = _claims.set(False)
    try:
        _BEGIN(worker, *args)
    finally:
        _claims.reset(token)
