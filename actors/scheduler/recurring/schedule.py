"""One schedule in a turn: its rows, read together and written back together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tocsin.actors.scheduler.recurring.rows import (
    TIMER,
    CursorRow,
    DefinitionRow,
    SlotRow,
    cursor_key,
    definition_args_key,
    definition_key,
    jitter_of,
    slot_key,
    slot_prefix,
    split_slot_key,
    trigger_key,
)
from tocsin.actors.scheduler.rows import LARGEST_MS, R, encode
from tocsin.actors.scheduler.turn import Turn
from tocsin.storage.api import after

KEPT: Final = 1_000
"""Occurrences kept per schedule."""
TRIMMED_BY: Final = 100


class Schedule:
    """Its definition, and its cursor as it is now; `save` writes the cursor and its timer."""

    def __init__(self, name: str, definition: DefinitionRow, cursor: CursorRow) -> None:
        self.name, self.definition, self.cursor = name, definition, cursor
        self._rings_at = cursor.rings_at

    def move(self, **changes: object) -> None:
        self.cursor = msgspec.structs.replace(self.cursor, **changes)

    @property
    def jitter(self) -> int:
        return jitter_of(self.name, self.definition.jitter_ms)

    def rung(self) -> None:
        """Its timer row is gone: the turn that rings timers has taken it."""
        self._rings_at = None

    def set_next(self, next_slot: int | None, last: int, *, at_once: int | None = None) -> None:
        """The next slot, and when it rings: at once, if there is more to look at."""
        due = None if next_slot is None else min(next_slot + self.jitter, LARGEST_MS)
        self.move(last=last, next_slot=next_slot, rings_at=due if at_once is None else at_once, error=None)

    def record(self, turn: Turn, slot: int, row: SlotRow, *, again: bool = False) -> None:
        """What became of a slot; `again` for one that has a row already."""
        turn.book.storage.put(slot_key(self.name, slot, row.request), encode(row))
        if not again:
            self.move(kept=self.cursor.kept + 1)

    def save(self, turn: Turn) -> None:
        if self.cursor.rings_at != self._rings_at:
            if self._rings_at is not None:
                turn.book.drop_timer(self._rings_at, TIMER, self.name)
            if self.cursor.rings_at is not None:
                turn.book.put_timer(self.cursor.rings_at, TIMER, self.name)
            self._rings_at = self.cursor.rings_at
        turn.book.storage.put(cursor_key(self.name), encode(self.cursor))


async def load(turn: Turn, names: Sequence[str]) -> dict[str, Schedule]:
    """Those that are there and not deleted, in one hop."""
    keys = [key for name in names for key in (definition_key(name), cursor_key(name))]
    rows = await turn.book.storage.get_many(keys)
    found: dict[str, Schedule] = {}
    for name in names:
        definition = read(turn, DefinitionRow, definition_key(name), rows)
        cursor = read(turn, CursorRow, cursor_key(name), rows)
        if definition is not None and cursor is not None:
            found[name] = Schedule(name, definition, cursor)
    return found


def read(turn: Turn, kind: type[R], key: bytes, rows: Mapping[bytes, bytes]) -> R | None:
    return turn.book.read(kind, key, rows[key]) if key in rows else None


async def args_of(turn: Turn, schedules: Sequence[Schedule]) -> dict[str, list[bytes]]:
    """What of their args goes on beyond the definition's row."""
    keys = {one.name: [definition_args_key(one.name, n) for n in range(one.definition.args_rows)] for one in schedules}
    rows = await turn.book.storage.get_many([key for some in keys.values() for key in some])
    return {name: [rows[key] for key in some if key in rows] for name, some in keys.items()}


async def trim(turn: Turn, one: Schedule) -> None:
    """Drop the oldest occurrences once there are so many more than are kept."""
    while one.cursor.kept >= KEPT + TRIMMED_BY:
        prefix = slot_prefix(one.name)
        rows = await turn.book.storage.scan(prefix, after(prefix), limit=TRIMMED_BY)
        for key, value in rows:
            turn.book.storage.delete(key)
            row = turn.book.read(SlotRow, key, value)
            if row is not None and row.request is not None:
                turn.book.storage.delete(trigger_key(one.name, row.request))
            if one.cursor.queued is not None and split_slot_key(key) == one.cursor.queued:
                one.move(queued=None)
        one.move(kept=one.cursor.kept - len(rows) if len(rows) == TRIMMED_BY else 0)
