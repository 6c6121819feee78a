"""Reading a store from outside, beside the process that has it open: for tools that check it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol, runtime_checkable

from tocsin.storage.api import StoreView


class StoreSnapshot(Protocol):
    """A store at one instant: everything read through it belongs together."""

    def names(self, start: str, limit: int) -> list[str]:
        """Return the names of existing actors, in code-point order, strictly after `start`."""
        ...

    def wake_at(self, name: str) -> int | None: ...

    def lineage(self) -> str:
        """Return which history of the store this is; "" for engines that keep none."""
        ...

    def view(self, name: str) -> StoreView:
        """Return the rows of one actor. They are read on the caller's thread: for tools, not for a serving loop."""
        ...


@runtime_checkable
class LiveStore(Protocol):
    """A provider that can be read as of one instant while it is in use."""

    def live(self) -> AbstractContextManager[StoreSnapshot]:
        """Hold one snapshot as long as the block lasts, also in a process that shares the store with the one that has
        it open. To be used on one thread, which may be any; StoreError if it cannot be read."""
        ...

    def scratch(self) -> BinaryIO:
        """Open a file without a name that may become as large as the store, and ends with its handle."""
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
