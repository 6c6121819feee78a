"""What schedules add to the scheduler's events and timers: tables of turns, looked up by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from tocsin.actors.scheduler.recurring import change
from tocsin.actors.scheduler.recurring.look import ring
from tocsin.actors.scheduler.recurring.recheck import RECHECK, recheck
from tocsin.actors.scheduler.recurring.register import register
from tocsin.actors.scheduler.recurring.rows import FORGET, TIMER
from tocsin.actors.scheduler.turn import Turn

CHANGES: Final[Mapping[str, Callable[..., Awaitable[Any]]]] = {
    "put": change.put,
    "set_paused": change.set_paused,
    "delete": change.delete,
    "trigger": change.trigger,
    "register": register,
}
"""Each raises a refusal before it has changed anything."""
RINGS: Final[Mapping[str, Callable[[Turn, Sequence[tuple[int, str]]], Awaitable[None]]]] = {
    TIMER: ring,
    FORGET: change.forget,
    RECHECK: recheck,
}
