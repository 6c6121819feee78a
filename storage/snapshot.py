"""Reading a store from outside, beside the process that has it open: for tools that check it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tocsin.storage.api import StoreView


class StoreSnapshot(Protocol):
    """A store at one instant: everything read through it belongs together."""

    def names(self, start: str, limit: int) -> list[str]:
        """Return the names of existing actors, in code-point order, strictly after `start`."""
        ...

    def wake_at(self, name: str) -> int | None: ...

    def view(self, name: str) -> StoreView:
        """Return the rows of one actor. They are read on the caller's thread: for tools, not for a serving loop."""
        ...


class StoreLook(Protocol):
    """Opens snapshots of a store. It takes no lock, writes nothing, and blocks no writer."""

    place: str
    """The place of the snapshot, for people."""

    def integrity(self) -> Sequence[str]:
        """Return what the engine finds wrong with its own structures, in its words; empty if nothing."""
        ...

    def snapshot(self) -> AbstractContextManager[StoreSnapshot]:
        """Hold one snapshot as long as the block lasts. StoreError if the store cannot be read.

        Changed is raised at the end of the block if a writer opened the store meanwhile, which was not in use: what
        was read may not belong together, so read again."""
        ...


class Changed(Exception):
    """A writer opened the store during a snapshot: what was read may not belong together. Read again."""
