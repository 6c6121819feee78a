"""A backfill is asked for, or stopped, by an operator: one turn each."""

from __future__ import annotations

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.backfill_rows import AT_ONCE, BackfillRow, Range
from tocsin.actors.scheduler.model.schedule_rows import rule_key, slot_prefix, split_slot_key
from tocsin.actors.scheduler.schedules.allowance import Allowance
from tocsin.actors.scheduler.schedules.backfill import all_of, begin, end
from tocsin.actors.scheduler.schedules.change import skip_until, the_one
from tocsin.actors.scheduler.schedules.schedule import Schedule, used_slots
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.errors import ConflictError
from tocsin.storage.api import Scanned, after


async def start(
    turn: Turn, name: str, backfill_id: str, first: int, last: int, rate: int, matched: int, by: AskedBy | None
) -> BackfillRow:
    """Begin a backfill, or put it behind those that go on. NotFoundError; ConflictError for a schedule that stands
    still by an error, or has too many of them."""
    one = await the_one(turn, name, None)
    rows = await all_of(turn, name)
    if (known := rows.get(backfill_id)) is not None:
        return known  # the same call came twice
    if one.cursor.error is not None:
        raise ConflictError(f"schedule {name!r} has stopped: {one.cursor.error}; put it in order first")
    if one.cursor.backfill is not None and len(one.cursor.backfill.ids) >= AT_ONCE:
        raise ConflictError(
            f"schedule {name!r} has {AT_ONCE} backfills that have not ended: wait, or stop some of them"
        )
    if one.cursor.paused:  # what has passed would be recorded when it is resumed, over the runs that it gets now
        used = await used_slots(turn, [one])
        skip_until(turn, one, one.definition, turn.now, "paused", used, Allowance(turn))
    one.move(forgotten=await forgotten_of(turn.state.storage, one, turn.state.limits.kept_slots))
    last = min(last, one.cursor.last, turn.now)
    row = BackfillRow(first, last, rate, matched, first - 1, rule_key(one.definition))
    begin(turn, one, backfill_id, row)
    one.save(turn)
    said = {"id": backfill_id, "start": first, "end": last + 1, "ratePerSecond": rate}
    audit.note(turn, by, "schedules.backfill", name, said, matched)
    return row


async def forgotten_of(view: Scanned, one: Schedule, kept_slots: int) -> Range | None:
    """Return between which slots some may have had rows that were dropped for their age. Earlier versions dropped them
    without a note: where so many are kept as can be, it may be all before the oldest that is there."""
    if one.cursor.forgotten is not None or one.cursor.kept < kept_slots:
        return one.cursor.forgotten
    prefix = slot_prefix(one.name)
    oldest = await view.scan(prefix, after(prefix), limit=1)
    if not oldest:
        return None
    slot = split_slot_key(oldest[0][0])
    return one.begins_by(slot), slot - 1


async def stop(turn: Turn, name: str, backfill_id: str, by: AskedBy | None) -> bool:
    """Stop a backfill; what it has started goes on. False if there is none, or it has ended."""
    one = await the_one(turn, name, None)
    row = (await all_of(turn, name)).get(backfill_id)
    if row is None or row.state != "running":
        return False
    end(turn, one, backfill_id, row, "stopped")
    one.save(turn)
    audit.note(turn, by, "schedules.backfill_stop", name, {"id": backfill_id})
    return True
