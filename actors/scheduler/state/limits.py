"""The limits that the settings of a host set for each of its schedulers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.model.rows import DAY_MS
from tocsin.actors.scheduler.state.occurrences import KEPT_SLOTS

TIMEOUT_MS = 60_000
"""The deadline of a callback, if neither its job, the instance nor the host sets another."""
HISTORY_MS = 7 * DAY_MS
"""How long history keeps the end of an attempt, by whole days."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that the settings of a host set for each of its schedulers."""

    dead_ms: int | None = 30 * DAY_MS  # how long dead letters are kept; None: they are kept forever
    quota: int | None = None  # how many jobs an instance may hold
    kept_slots: int = KEPT_SLOTS  # how many occurrences are kept per schedule
    timeout_ms: int = TIMEOUT_MS  # the deadline of callbacks whose jobs and instances have none of their own
    clocks_differ_ms: int = 0  # by which the clocks of two hosts of the store may differ


DEFAULTS: Final = Limits()
