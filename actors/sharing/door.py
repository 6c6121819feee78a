"""The seam between processes: where the holder lets followers in, and how they find it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

W = TypeVar("W", bound=asyncio.Protocol)
MayEnter = Callable[[asyncio.BaseTransport], bool]
"""Tells whether whoever has opened a link may be let in, as far as the system knows who that is."""


class DoorClosed(Exception):
    """There is no holder behind the door, or not yet. The text says what was found."""


class Neighbour(Protocol):
    """The process at the other end of a link, as the system knows it."""

    def name(self) -> str:
        """Return what to call it in a log."""
        ...

    async def is_stopped(self) -> bool | None:
        """Return whether it was stopped by a signal, and does nothing until it is continued. A process that is busy is
        not stopped. None: it cannot be seen from here."""
        ...

    def kill(self) -> None:
        """End it at once; this very process, and no other that has its number by now."""
        ...

    def forget(self) -> None:
        """Let go of what was held of it."""
        ...


class Door(Protocol):
    """The place where the processes of one store meet."""

    def prepare(self, token: str) -> None:
        """Have this token noted as soon as this process takes the store, for those who may read it."""
        ...

    async def open(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> None:
        """Let followers in: this process holds the store. OSError if there can be no door."""
        ...

    async def close(self) -> None:
        """Let nobody in any more."""
        ...

    def token(self) -> str:
        """Return the token that the holder has noted; StoreLocked if it shares its store with nobody, DoorClosed if
        there is none."""
        ...

    def holder(self) -> Neighbour | None:
        """Return the process that has the store, also one that lets nobody in; None if it is not known for sure."""
        ...

    async def enter(self, make: Callable[[], W]) -> tuple[W, Neighbour]:
        """Open a link to the holder; DoorClosed if nobody lets anybody in."""
        ...
