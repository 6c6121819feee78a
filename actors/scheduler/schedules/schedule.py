"""One schedule in a turn: its rows, read together and written back together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import repeat
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.backfill_rows import BACKFILL, Backfilling
from tocsin.actors.scheduler.model.followers import targets, with_ids
from tocsin.actors.scheduler.model.rows import INLINE_ARGS, LARGEST_MS, SOON, BadRow, R, encode
from tocsin.actors.scheduler.model.schedule_rows import (
    RECHECK,
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
from tocsin.actors.scheduler.schedules.allowance import Allowance
from tocsin.actors.scheduler.schedules.slots import begun_anew
from tocsin.actors.scheduler.state.occurrences import Version
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.storage.api import after

Used = Mapping[str, Collection[int]]
"""By name: slots to come that have their rows already."""
ROWS_PER_FIRE: Final = 8
TRIMMED_BY: Final = 20
"""Occurrences dropped at once, the oldest, when there are so many more than are kept."""


class Schedule:
    """Its definition, and its cursor as it is now; `save` writes the cursor and its timer."""

    def __init__(self, name: str, definition: DefinitionRow, cursor: CursorRow, *, new: bool = False) -> None:
        self.name = name
        self.cursor = cursor if cursor.missed_from is None else begun_anew(cursor)
        self._stored: CursorRow = cursor
        self._new = new
        self.define(definition)

    def define(self, definition: DefinitionRow) -> None:
        """Give the schedule this definition, and what follows from it."""
        self.definition = definition
        self.jitter = jitter_of(self.name, definition.jitter_ms) if definition.jitter_ms else 0
        self.size = len(definition.args) + definition.args_rows * INLINE_ARGS + 1_000
        self.size += 2 * (len(definition.then) + len(definition.on_dead))
        """About how many bytes a job of it takes, and about how many ..."""
        chains = (definition.then, definition.on_dead)
        followers = [one for stored in chains if stored for one in with_ids(stored, repeat(""))]
        self.rows = ROWS_PER_FIRE + len(definition.labels) + (len(set(targets(followers))) if followers else 0)
        """... rows: what is to follow it counts by its path."""

    @property
    def version(self) -> Version:
        """Name this definition of this schedule: every change makes another version."""
        return self.definition.uid, self.cursor.revision

    def move(self, **changes: object) -> None:
        """Change members of the cursor."""
        self.cursor = msgspec.structs.replace(self.cursor, **changes)

    def expires_at(self, slot: int) -> int | None:
        """Return until when a slot is worth a job; None: for ever."""
        after_ms = self.definition.expires_after_ms
        return None if after_ms is None else slot + self.jitter + after_ms

    def is_over(self, slot: int, now: int) -> bool:
        expires_at = self.expires_at(slot)
        return expires_at is not None and expires_at <= now

    @property
    def may_backfill(self) -> bool:
        """Tell whether a slot of the past may start: those that come by themselves go first."""
        return self.may_start and self.cursor.queued is None

    @property
    def runs_past(self) -> bool:
        """Tell whether slots of the past run, or wait to run: one that comes meanwhile is held back, not skipped."""
        return self.cursor.backfill is not None

    @property
    def may_start(self) -> bool:
        """Tell whether no live occurrence is in the way of another one. An edit may allow what held a slot back."""
        return not self.cursor.live or self.definition.overlap == "allow"

    def arm(self, *, more: bool = False) -> None:
        """Set when it rings: with its next slot, or when one that is held back is over; soon, if there is `more` to
        look at, or a slot waits for nobody."""
        next_slot, rang_at = self.cursor.next_slot, self._stored.rings_at
        at = None if self.cursor.error is None else self.cursor.rings_at
        if next_slot is not None:
            at = min(next_slot + self.jitter, LARGEST_MS)
        if self.cursor.queued is not None and (over_at := self.expires_at(self.cursor.queued)) is not None:
            at = min(over_at, LARGEST_MS if at is None else at)
        if more or (self.cursor.queued is not None and self.may_start):
            at = rang_at + 1 if rang_at is not None and rang_at < SOON else 1
        self.move(rings_at=None if self.cursor.paused else at)

    def record(self, turn: Turn, slot: int, row: SlotRow, *, again: bool = False, **changes: object) -> None:
        """Write what became of a slot, and change the cursor with it; `again` for a slot that has a row already."""
        if not again:
            kept = {"kept": self.cursor.kept + 1, "run": self.cursor.run if row.request is not None else None}
            changes = kept | changes
        if changes:
            self.cursor = msgspec.structs.replace(self.cursor, **changes)
        turn.state.storage.put(slot_key(self.name, slot, row.request), encode(row))

    def forget(self, slot: int, row: SlotRow | None) -> None:
        """Note that the row of a slot is dropped, for its age. Which run a backfill made, the backfill's row tells."""
        if row is not None and (row.request is not None or row.backfill is not None):
            return
        until = slot if row is None or row.until is None else max(row.until, slot)
        if self.cursor.forgotten is None:
            self.move(forgotten=(self.begins_by(slot), until))
        else:
            first, last = self.cursor.forgotten
            self.move(forgotten=(min(first, slot), max(last, until)))

    def begins_by(self, slot: int) -> int:
        """Return an instant before which nothing of it has fired, if the oldest that is known to have come is `slot`.
        One that was deleted and made again may have fired at any time."""
        return self.definition.created_at + 1 if self.definition.created_at < slot else 0

    def _look_back(self, turn: Turn) -> None:
        """Have its backfill go on, if it waited for what is over by now."""
        doing = self.cursor.backfill or Backfilling()
        if doing.live_slot is not None and not self.cursor.live:
            doing = msgspec.structs.replace(doing, live_slot=None)
        if doing.ids and doing.rings_at is None and self.may_backfill:
            doing = msgspec.structs.replace(doing, rings_at=turn.now)
        self.move(backfill=None if doing == Backfilling() else doing)

    def save(self, turn: Turn) -> None:
        """Write the cursor and its timers, if they have changed."""
        if self.cursor.backfill is not None:
            self._look_back(turn)
        old, new = self._stored, self.cursor
        if new.rings_at != old.rings_at:
            self._move_timer(turn, TIMER, old.rings_at, new.rings_at)
        if new.backfill != old.backfill:
            before, after = old.backfill or Backfilling(), new.backfill or Backfilling()
            self._move_timer(turn, BACKFILL, before.rings_at, after.rings_at)
        if new != old or self._new:
            turn.state.storage.put(cursor_key(self.name), encode(new))
            turn.state.occurrences.see(new.last)
        self._stored, self._new = new, False

    def _move_timer(self, turn: Turn, kind: str, before: int | None, now: int | None) -> None:
        if before == now:
            return
        if before is not None:
            turn.state.drop_timer(before, kind, self.name)
        if now is not None:
            turn.state.put_timer(now, kind, self.name)


async def load(turn: Turn, names: Sequence[str]) -> dict[str, Schedule]:
    """Read those that are there and not deleted, in one hop."""
    keys = {name: (definition_key(name), cursor_key(name)) for name in names}
    rows = await turn.state.storage.get_many([key for pair in keys.values() for key in pair]) if keys else {}
    found: dict[str, Schedule] = {}
    for name, (key, place) in keys.items():
        definition = turn.state.read(DefinitionRow, key, rows[key]) if key in rows else None
        if definition is None or not _is_whole(turn, definition, key, rows):
            continue
        cursor = turn.state.read(CursorRow, place, rows[place]) if place in rows else None
        found[name] = await _lost(turn, name, definition) if cursor is None else Schedule(name, definition, cursor)
    return found


def _is_whole(turn: Turn, definition: DefinitionRow, key: bytes, rows: Mapping[bytes, bytes]) -> bool:
    """Check what is to follow its occurrences: a row in its row."""
    if not (definition.then or definition.on_dead):
        return True
    try:
        with_ids(definition.then, repeat(""))
        with_ids(definition.on_dead, repeat(""))
    except BadRow as error:
        turn.state.set_aside(key, rows[key], str(error))
        return False
    return True


async def _lost(turn: Turn, name: str, definition: DefinitionRow) -> Schedule:
    """Replace a cursor that could not be read and was moved to bad/: the schedule goes on from now, and a pass
    begins."""
    prefix = slot_prefix(name)
    rows = await turn.state.storage.scan(prefix, after(prefix), limit=10 * turn.state.limits.kept_slots)
    # No definition was changed as often as seconds have passed: who knows an earlier revision is refused.
    one = Schedule(name, definition, CursorRow(turn.now // 1000, turn.now, kept=len(rows)), new=True)
    one.save(turn)
    turn.state.put_timer(1, RECHECK, "")
    return one


def read(turn: Turn, kind: type[R], key: bytes, rows: Mapping[bytes, bytes]) -> R | None:
    """Read one of these rows; None if it is not there, or cannot be read and was moved aside."""
    return turn.state.read(kind, key, rows[key]) if key in rows else None


def read_slot(turn: Turn, one: Schedule | None, key: bytes, rows: Mapping[bytes, bytes]) -> SlotRow | None:
    """Read the row of a slot; None also if it cannot be read: then it was moved aside, and is one fewer."""
    row = read(turn, SlotRow, key, rows)
    if row is None and key in rows and one is not None:
        one.move(kept=one.cursor.kept - 1)
    return row


async def used_slots(turn: Turn, schedules: Sequence[Schedule]) -> Used:
    """Find slots to come that have their rows already: there are some where the clock was ahead."""
    found: dict[str, Collection[int]] = {}
    for one in schedules:
        to = one.cursor.used_to
        if to is not None and one.cursor.last >= to:
            one.move(used_to=None)
        elif to is not None:
            rows = await turn.state.storage.scan(slot_key(one.name, one.cursor.last), slot_key(one.name, to + 1))
            found[one.name] = frozenset(split_slot_key(key) for key, _ in rows if b"+" not in key)
    return found


async def args_of(turn: Turn, schedules: Sequence[Schedule]) -> dict[str, list[bytes]]:
    """Read what of their args goes on beyond the definition's row."""
    keys = {one.name: [definition_args_key(one.name, n) for n in range(one.definition.args_rows)] for one in schedules}
    rows = await turn.state.storage.get_many([key for some in keys.values() for key in some])
    return {name: [rows[key] for key in some if key in rows] for name, some in keys.items()}


async def trim(turn: Turn, one: Schedule, allowance: Allowance) -> None:
    """Drop the oldest occurrences once there are some more than are kept, but for a slot that is held back."""
    while one.cursor.kept >= turn.state.limits.kept_slots + TRIMMED_BY and allowance.rows > TRIMMED_BY:
        prefix = slot_prefix(one.name)
        rows = await turn.state.storage.scan(prefix, after(prefix), limit=TRIMMED_BY + 1)
        oldest = [row for row in rows if not _is_held(one, row[0])][:TRIMMED_BY]
        for key, value in oldest:
            turn.state.storage.delete(key)
            row = turn.state.read(SlotRow, key, value)
            if row is not None and row.request is not None:
                turn.state.storage.delete(trigger_key(one.name, row.request))
            one.forget(split_slot_key(key), row)
            if one.cursor.run is not None and key == slot_key(one.name, one.cursor.run[0]):
                one.move(run=None)
        allowance.take(TRIMMED_BY)
        if len(oldest) < TRIMMED_BY:
            one.move(kept=len(rows) - len(oldest))
            return
        one.move(kept=one.cursor.kept - len(oldest))


def _is_held(one: Schedule, key: bytes) -> bool:
    return one.cursor.queued is not None and key == slot_key(one.name, one.cursor.queued)
