"""What the settings of a host say of each of its schedulers."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.actors.scheduler.state.occurrences import KEPT_SLOTS
from tocsin.actors.scheduler.state.scheduler_state import TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Limits:
    """What the host's settings say of every scheduler."""

    dead_ms: int | None = None
    """How long dead letters are kept; None: for ever."""
    quota: int | None = None
    """How many jobs an instance may hold."""
    kept_slots: int = KEPT_SLOTS
    """How many occurrences are kept per schedule."""
    timeout_ms: int = TIMEOUT_MS
    """The deadline of callbacks whose jobs and instances have none of their own."""
