"""The waiting line of an actor, and which of those that wait share one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tocsin.actors.runtime.actor import Actor, EventActor
from tocsin.actors.runtime.events import Event

EVENTS_PER_TURN = 128
"""How many events share one turn at most. The turn keeps the event loop about as long as so many turns would."""

Reply = asyncio.Future[Any]
Sent = tuple[Event[Any], Reply]
"""An event with the future of its answer."""
Place = Sent | asyncio.Future[None]
"""An entry of the line: an event, or a handler that comes back from `outside()`."""


class Line(list[Place]):
    """Those that wait for the turn, in the order in which they came. A list, because most lines are empty: an empty
    deque takes fifty times its memory, and a line is no longer than a mailbox."""

    __slots__ = ("_alone",)

    def __init__(self) -> None:
        super().__init__()
        self._alone = 0  # how many of the first places hold events that share their turn with no other

    def with_neighbours(self, first: Sent, actor: Actor | None) -> list[Sent]:
        """Take the events that may share the turn of `first`, which was taken just now; return them behind it.

        They are those that stand next to each other: an event that may not share its turn ends the group.
        """
        group = [first]
        if self._alone:
            self._alone -= 1
        elif self and isinstance(actor, EventActor) and actor.may_share(first[0]):
            for place in self:
                if len(group) == EVENTS_PER_TURN or isinstance(place, asyncio.Future) or not actor.may_share(place[0]):
                    break
                group.append(place)
            del self[: len(group) - 1]
        return group

    def take_events(self) -> list[Sent]:
        """Take all events; handlers that come back stay."""
        events = [place for place in self if not isinstance(place, asyncio.Future)]
        self[:] = [place for place in self if isinstance(place, asyncio.Future)]
        self._alone = 0
        return events

    def put_back(self, group: Sequence[Sent], *, alone: bool) -> None:
        """Put events that were taken last back in front; with `alone` each of them gets a turn of its own."""
        self[:0] = group
        if alone:
            self._alone = len(group)
