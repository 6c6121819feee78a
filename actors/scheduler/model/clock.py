"""The test clock of an instance: its row, and how it is told."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.records import ClockState
from tocsin.actors.scheduler.model.rows import Row

CLOCK: Final = b"clock"
"""There only in an instance that was made with a test clock."""


class ClockRow(Row, frozen=True, array_like=True, tag=1):
    """`clock`: where the clock stands, epoch ms; and up to where it is being advanced (0: it is frozen)."""

    at: int
    target: int = 0


def state_of(row: ClockRow, waits_for: str | None = None) -> ClockState:
    """Return what callers are told of a clock."""
    return ClockState(row.at, bool(row.target), row.target or None, waits_for)
