"""A store seen from outside: reading only, beside whoever holds it, for tools that ask whether it is sound."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tocsin.storage.api import StoreView


class StoreSnapshot(Protocol):
    """A store at one instant: everything read through it belongs together."""

    def names(self, start: str, limit: int) -> list[str]:
        """Names of existing actors, in code-point order, strictly after `start`."""
        ...

    def wake_at(self, name: str) -> int | None: ...

    def view(self, name: str) -> StoreView:
        """The rows of one actor. It reads on the caller's thread: for tools, not for a serving loop."""
        ...


class StoreLook(Protocol):
    """Takes no lock, writes nothing, and stands in no writer's way."""

    place: str
    """Where it is, for people."""

    def integrity(self) -> Sequence[str]:
        """What the engine finds wrong with its own structures, in its words; empty if nothing."""
        ...

    def snapshot(self) -> AbstractContextManager[StoreSnapshot]:
        """One instant, as long as the block lasts. Changed (at its end) if it was not one instant after all:
        somebody began to write where nobody was expected; look again. StoreError if it cannot be read."""
        ...


class Changed(Exception):
    """What was read may not belong together: somebody opened the store meanwhile. Look again."""
