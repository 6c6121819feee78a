"""What schedules add to the scheduler's events and timers: tables of turns, looked up by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from tocsin.actors.scheduler.model.schedule_rows import FORGET, RECHECK, TIMER
from tocsin.actors.scheduler.schedules import change
from tocsin.actors.scheduler.schedules.process_due import ring
from tocsin.actors.scheduler.schedules.purge import forget
from tocsin.actors.scheduler.schedules.recompute import recheck
from tocsin.actors.scheduler.schedules.register import leave, register
from tocsin.actors.scheduler.state.turn import Turn

CHANGES: Final[Mapping[str, Callable[..., Awaitable[Any]]]] = {
    "put": change.put,
    "set_paused": change.set_paused,
    "delete": change.delete,
    "trigger": change.trigger,
    "register": register,
    "leave": leave,
}
"""Each raises a refusal before it has changed anything."""
RINGS: Final[Mapping[str, Callable[[Turn, Sequence[tuple[int, str]]], Awaitable[None]]]] = {
    TIMER: ring,
    FORGET: forget,
    RECHECK: recheck,
}
"""Each deletes the rows of the timers that it has served: what is too much for one turn is still due."""
NEW_WORK: Final = ([TIMER.encode()], [RECHECK.encode()])
"""The kinds, as they stand in a key, of those that wait while the store is full."""
