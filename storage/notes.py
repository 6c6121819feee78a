"""The notes of a store about itself, in rows of an actor of its own: whoever opens the store to serve it reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from tocsin.errors import StoreMoved
from tocsin.storage.api import Batch, StoreProvider, StoreView

NOTES: Final = "tocsin-store/notes"
"""The actor that has them. A part of the layout."""
RESIDENCY: Final = b"residency"
"""The rules of several stores, of which this is one."""
MOVE: Final = b"move"
"""The part of this store in a move to another engine."""
PROGRESS: Final = b"progress"
"""The last actor that has arrived whole."""


class Part(StrEnum):
    """The role of a store in a move."""

    LEAVING = "leaving"
    """Its actors are being copied: nothing of it changes."""
    LEFT = "left"
    """Its actors are elsewhere, and this is what was left behind."""
    ARRIVING = "arriving"
    """Not all of them are there yet."""
    ARRIVED = "arrived"
    """All of them are there; the store may be used as any other one."""
    GIVEN_UP = "given up"
    """Some of the actors arrived, and never will the others."""


@dataclass(frozen=True, slots=True)
class MoveNote:
    """A move as one of its two stores remembers it. `other` is the place of the other one, without a password."""

    part: Part
    move: str
    other: str
    at_ms: int = 0
    digest: str = ""
    """The digest over all actors, once they were compared."""

    @classmethod
    def read(cls, raw: bytes) -> MoveNote:
        said = json.loads(raw)
        return cls(Part(said["part"]), said["move"], said["other"], said["at_ms"], said["digest"])

    def written(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()


async def read_notes(view: StoreView) -> dict[bytes, bytes]:
    """Return the notes that there are, by their keys."""
    return await view.get([RESIDENCY, MOVE, PROGRESS])


async def write_notes(provider: StoreProvider, notes: Mapping[bytes, bytes | None]) -> None:
    """Write notes durably, and remove those that are None, in one step. StoreLocked if another host has that actor."""
    store = await provider.open(NOTES)
    try:
        puts = {key: value for key, value in notes.items() if value is not None}
        await store.commit(Batch(puts, {key for key, value in notes.items() if value is None}))
    finally:
        await store.close()


def check_not_moved(notes: Mapping[bytes, bytes], place: str) -> None:
    """Refuse to serve a store whose actors are elsewhere, or are on their way. StoreMoved."""
    if MOVE not in notes:
        return
    note = MoveNote.read(notes[MOVE])
    again = "run that command again to its end, or with --abort"
    said = {
        Part.LEAVING: f"{place} is being moved to {note.other} by `tocsin move`: {again}",
        Part.LEFT: f"{place} was moved to {note.other}: use that one. What lies here is what was left behind",
        Part.ARRIVING: f"{place} is being filled from {note.other} by `tocsin move`: {again}",
        Part.GIVEN_UP: f"{place} holds a part of {note.other}, whose move was given up: use {note.other}, and remove "
        "this one",
    }.get(note.part)
    if said is not None:
        raise StoreMoved(said, movedTo=note.other) if note.part is Part.LEFT else StoreMoved(said)
