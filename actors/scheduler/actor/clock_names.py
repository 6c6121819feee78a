"""Remembers which instances may have a test clock, so that a host knows them without reading every instance."""

from __future__ import annotations

from typing import ClassVar, Final

from tocsin.actors.runtime.actor import EventActor
from tocsin.actors.runtime.events import Event
from tocsin.actors.runtime.ids import ActorId


class NoteName(Event[None], frozen=True):
    """Remember an instance that is about to get a test clock."""

    name: str


PREFIX: Final = b"name/"


class ClockNames(EventActor[NoteName]):
    """One actor a store. A name whose instance has no clock is harmless: the instance's own row decides."""

    kind: ClassVar[str] = "tocsin-clocks"

    async def handle(self, event: NoteName) -> None:
        self.ctx.storage.put(PREFIX + event.name.encode(), b"")


ID: Final = ActorId(ClockNames.kind, "host")
