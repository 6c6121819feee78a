"""The host that has a scheduler by now, for what began here and ends when the scheduler has gone there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tocsin.actors.scheduler.transitions.settle import AttemptResult


class Elsewhere(Protocol):
    """Reaches the owner of a scheduler, wherever that is when it is called."""

    async def settle(self, instance: str, ends: Sequence[AttemptResult]) -> None:
        """Have attempts settled that ended here; they are, durably, or will be for certain, when this returns."""
        ...

    async def give_back(self, instance: str, leases: Sequence[str]) -> None:
        """Have jobs requeued, uncharged, whose worker went away before it had them."""
        ...

    async def note_clock(self, instance: str) -> None:
        """Have it noted, where all hosts see it, that an instance is about to get a test clock."""
        ...
