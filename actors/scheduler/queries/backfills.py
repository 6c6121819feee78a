"""Read backfills, and count what one would run, from committed state, outside the actor's turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.model.backfill_rows import BackfillRow, backfill_prefix
from tocsin.actors.scheduler.model.schedule_rows import (
    CursorRow,
    DefinitionRow,
    SlotRow,
    cursor_key,
    definition_key,
    slot_key,
    split_slot_key,
)
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.schedules.backfill import decided
from tocsin.actors.scheduler.schedules.backfill_asked import forgotten_of
from tocsin.actors.scheduler.schedules.schedule import Schedule
from tocsin.actors.scheduler.schedules.series import next_of
from tocsin.errors import InvalidInputError, NotFoundError
from tocsin.storage.api import StoreView, after, each_row

MOST_SLOTS: Final = 100_000
"""In one backfill."""
AT_A_STRETCH: Final = 200
"""Slots computed before others on the loop have their turn."""
SHOWN: Final = 5
LISTED: Final = 100
PAGE: Final = 1_000


@dataclass(slots=True)
class Counted:
    """How many slots a backfill would run, the first of them, and how many of its range it would leave out."""

    matched: int = 0
    left_out: int = 0
    slots: list[int] = field(default_factory=list)


async def count(view: StoreView, name: str, first: int, last: int, now: int, kept_slots: int) -> Counted:
    """Count the slots of a schedule from `first` to `last` that have come and get a run. NotFoundError;
    InvalidInputError for too many."""
    rows = await view.get([definition_key(name), cursor_key(name)])
    definition = query.read(DefinitionRow, definition_key(name), rows.get(definition_key(name)))
    cursor = query.read(CursorRow, cursor_key(name), rows.get(cursor_key(name)))
    if definition is None or cursor is None:
        raise NotFoundError(f"there is no schedule {name!r}")
    one = Schedule(name, definition, cursor)
    last = min(last, now, now if cursor.paused else cursor.last)
    series = next_of(definition)
    if (every := series.count(first, last) if first <= last else 0) is None or every > MOST_SLOTS:
        many = "too many slots to count" if every is None else f"{every:,} slots"
        raise InvalidInputError(
            f"there are {many} of schedule {name!r} from start to end, at most {MOST_SLOTS:,} are run by one backfill: "
            "ask for a part of them"
        )
    own: dict[int, SlotRow] = {}
    async for key, value in each_row(view, slot_key(name, first), slot_key(name, last + 1), PAGE):
        row = query.read(SlotRow, key, value)
        if row is not None and row.request is None:
            own[split_slot_key(key)] = row
    past = decided(await forgotten_of(view, one, kept_slots), dict(await _all(view, name)))
    found = Counted()
    slot = series(first - 1)
    looked = 0
    while slot is not None and slot <= last:
        if past.runs(slot, own.get(slot)):
            found.matched += 1
            if len(found.slots) < SHOWN:
                found.slots.append(slot)
        else:
            found.left_out += 1
        looked += 1
        if not looked % AT_A_STRETCH:
            await asyncio.sleep(0)
        slot = series(slot)
    return found


async def listed(view: StoreView, name: str) -> Sequence[Backfill]:
    """Return the backfills of a schedule, the newest first, at most a hundred."""
    rows = await _all(view, name)
    cursor = query.read(CursorRow, key := cursor_key(name), (await view.get([key])).get(key))
    running = cursor.backfill.ids if cursor is not None and cursor.backfill is not None else ()
    return [record_of(name, *one, running) for one in reversed(rows[-LISTED:])]


async def one_of(view: StoreView, name: str, backfill_id: str) -> Backfill | None:
    """Return the backfill of this id; None if there is none."""
    return next((one for one in await listed(view, name) if one.backfill_id == backfill_id), None)


def record_of(name: str, backfill_id: str, row: BackfillRow, running: Sequence[str]) -> Backfill:
    """Return a backfill as callers see it; `running` are those of its schedule that have not ended, in their order."""
    waits_for = None
    if row.state == "running" and backfill_id in running and running[0] != backfill_id:
        waits_for = running[running.index(backfill_id) - 1]
    return Backfill(
        backfill_id=backfill_id,
        name=name,
        start=row.first,
        end=row.last + 1,
        rate_per_second=row.rate,
        matched=row.matched,
        started=row.started,
        state="waiting" if waits_for is not None else row.state,
        reached=row.cursor if row.cursor >= row.first else None,
        waits_for=waits_for,
        error=row.error,
    )


async def _all(view: StoreView, name: str) -> list[tuple[str, BackfillRow]]:
    prefix = backfill_prefix(name)
    found: list[tuple[str, BackfillRow]] = []
    async for key, value in each_row(view, prefix, after(prefix), PAGE):
        row = query.read(BackfillRow, key, value)
        if row is not None:
            found.append((key[len(prefix) :].decode(), row))
    return found
