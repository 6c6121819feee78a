"""Timers that may ring late, as after a suspension of the machine: nothing is due by them.

A worker that has nothing to do reports every ten seconds and asks for jobs every twenty. Over a virtual year that would
be five million times. In a lab such a timer rings when time has come to rest for another reason, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

from tocsin.actors.outbox.drain import Drain
from tocsin.actors.runtime.host import Host
from tocsin.dispatch.worker.announcer import Announcer
from tocsin.dispatch.worker.worker import Worker

_BOUND_OF_A_WAIT: Final = asyncio.tasks._release_waiter  # type: ignore[attr-defined]
"""The function that the timer of `asyncio.wait(timeout=...)` calls."""
_ALL: Final[dict[CodeType, Callable[..., object] | None]] = {
    Announcer._tell_on.__code__: None,
    Drain._run.__code__: None,
    Host._evict_idle.__code__: None,
    Worker._claim_on.__code__: _BOUND_OF_A_WAIT,  # its pauses after a refusal are not housekeeping
}
"""The loops, and which of their timers: all, or those that call this."""


def is_housekeeping(task: asyncio.Task[Any] | None, callback: Callable[..., object]) -> bool:
    """Return whether a timer that `task` sets may ring late."""
    code = None if task is None else getattr(task.get_coro(), "cr_code", None)
    if code is None or code not in _ALL:
        return False
    only = _ALL[code]
    return only is None or callback is only
