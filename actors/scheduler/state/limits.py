"""Limits that the settings of a host set for each of its schedulers."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.actors.scheduler.state.occurrences import KEPT_SLOTS
from tocsin.actors.scheduler.state.scheduler_state import TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class Limits:
    """The same for all schedulers of a host."""

    dead_ms: int | None = None
    """How long dead letters are kept; None: they are kept forever."""
    quota: int | None = None
    """How many jobs an instance may hold."""
    kept_slots: int = KEPT_SLOTS
    """How many occurrences are kept per schedule."""
    timeout_ms: int = TIMEOUT_MS
    """The deadline of callbacks whose jobs and instances have none of their own."""
