"""Slots of the past run at a pace, each once: a durable job of its schedule, one at a time, in the commits of its runs.

Which slots get a run is decided slot by slot, when they are come to: by the row of the slot; where that was dropped for
its age, by what the cursor and earlier backfills say of that time. So neither a crash nor a backfill that overlaps
makes two runs of a slot. Where the schedule has one occurrence at a time, so it is here: a slot of the past starts when
nothing of it lives and nothing is held back, and one that comes meanwhile is held back, not skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.backfill_rows import (
    BACKFILL,
    Backfilling,
    BackfillRow,
    Range,
    backfill_key,
    backfill_prefix,
)
from tocsin.actors.scheduler.model.rows import encode
from tocsin.actors.scheduler.model.schedule_rows import (
    DefinitionRow,
    SlotRow,
    occurrence_id,
    rule_key,
    slot_key,
)
from tocsin.actors.scheduler.schedules.allowance import Allowance
from tocsin.actors.scheduler.schedules.fire import Known, know, start
from tocsin.actors.scheduler.schedules.schedule import Schedule, load, read, read_slot, trim
from tocsin.actors.scheduler.schedules.series import Series, next_of
from tocsin.actors.scheduler.schedules.slots import walk
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.submit import over_quota
from tocsin.errors import TocsinError
from tocsin.storage.api import after, each_row

TICK_MS: Final = 1_000
LOOKED_AT: Final = 200
"""Slots in one turn."""
RUN_AGAIN: Final = ("skipped", "coalesced", "expired")
"""States of slots that had no run of their own."""
PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Decided:
    """The knowledge of slots that have no row of their own: those that an earlier backfill came to, and those whose
    rows were dropped for their age."""

    forgotten: Range | None
    earlier: Sequence[tuple[int, int, Series]]

    def runs(self, slot: int, row: SlotRow | None) -> bool:
        """Return whether a slot gets a run; `row` is its own, if it has any."""
        if row is not None:
            return row.state in RUN_AGAIN
        if self.forgotten is not None and self.forgotten[0] <= slot <= self.forgotten[1]:
            return False
        return not any(first <= slot <= last and slots(slot - 1) == slot for first, last, slots in self.earlier)


def decided(forgotten: Range | None, backfills: Mapping[str, BackfillRow], but: str = "") -> Decided:
    """Collect what is known of a schedule's past, apart from what the backfill `but` has decided itself."""
    earlier = [
        (row.first, row.cursor, next_of(_rule(row)))
        for backfill_id, row in backfills.items()
        if backfill_id != but and row.cursor >= row.first
    ]
    return Decided(forgotten, earlier)


def _rule(row: BackfillRow) -> DefinitionRow:
    cron, every_ms, at, timezone, anchor = row.rule
    return DefinitionRow("", 0, anchor, cron=cron, every_ms=every_ms, at=at, timezone=timezone)


# ---- The timer -----------------------------------------------------------------------------------


async def go_on(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Go on with the backfills of schedules whose timers have come; those that are not reached are still due."""
    found = await load(turn, [name for _, name in due])
    allowance = Allowance(turn, for_schedules=len(due))
    looked = False
    for ms, name in due:
        one = found.get(name)
        if one is None or one.cursor.backfill is None or one.cursor.backfill.rings_at != ms:
            turn.state.drop_timer(ms, BACKFILL, name)
            continue
        if looked and allowance.spent:
            return
        looked = True
        await _tick(turn, one, one.cursor.backfill, allowance)
        await trim(turn, one, allowance)
        one.save(turn)


async def _tick(turn: Turn, one: Schedule, doing: Backfilling, allowance: Allowance) -> None:
    """Start as many slots as the pace and the schedule allow, of a bounded number that are looked at."""
    one.move(backfill=msgspec.structs.replace(doing, rings_at=None))  # `save` sets it, where nothing is in the way
    backfill_id = doing.ids[0]
    rows = await all_of(turn, one.name)
    row = rows.get(backfill_id)
    if row is None:  # it could not be read, and was set aside
        _leave(one, backfill_id)
        return
    if turn.now < row.not_before <= turn.now + TICK_MS:
        _ring(one, row.not_before)
        return
    if not one.may_backfill:
        return
    try:
        if rule_key(one.definition) != row.rule:
            raise TocsinError("its schedule has another rule by now: ask for the rest of its slots anew")
        series = next_of(one.definition)
        known = decided(one.cursor.forgotten, rows, backfill_id)
    except TocsinError as error:
        end(turn, one, backfill_id, row, "stopped", error.message)
        return
    horizon = min(row.last, one.cursor.last)  # a clock that was far ahead is taken back
    found = walk(series, row.cursor, horizon, allowance.share(LOOKED_AT))
    cursor, started, waits = await _some(turn, one, found.slots, known, (backfill_id, row), allowance)
    reached = not waits and found.reached
    row = msgspec.structs.replace(
        row,
        cursor=max(row.cursor, horizon) if reached else cursor,
        started=row.started + started,
        not_before=turn.now + (TICK_MS if waits and not started else started * TICK_MS // row.rate),
    )
    if reached:
        end(turn, one, backfill_id, row, "done")
        return
    _write(turn, one, backfill_id, row)
    if one.may_backfill:
        _ring(one, row.not_before)


async def _some(
    turn: Turn, one: Schedule, slots: Sequence[int], past: Decided, by: tuple[str, BackfillRow], allowance: Allowance
) -> tuple[int, int, bool]:
    """Start those of these slots that get a run. Return up to where all are decided, how many were started, and
    whether some are left that may not start yet."""
    backfill_id, backfill = by
    rows = await turn.state.storage.get_many([slot_key(one.name, slot) for slot in slots]) if slots else {}
    known = await know(turn, [(one, slots, ())])
    most = backfill.rate if one.definition.overlap == "allow" else 1
    most = min(most, max(min(allowance.rows // one.rows, allowance.size // one.size), 1))
    cursor, started = backfill.cursor, 0
    for place, slot in enumerate(slots):
        key = slot_key(one.name, slot)
        row = read_slot(turn, one, key, rows)
        if past.runs(slot, row):
            if started >= most or turn.is_full or over_quota(turn) is not None:
                return cursor, started, True
            if row is not None and row.until is not None and occurrence_id(one.name, slot) not in known.taken:
                after_it = slots[place + 1] if place + 1 < len(slots) else None
                rows |= await _shorten(turn, one, slot, row, after_it)
            started += _start(turn, one, slot, row, known, backfill_id)
        cursor = slot
    return cursor, started, False


def _start(turn: Turn, one: Schedule, slot: int, row: SlotRow | None, known: Known, backfill_id: str) -> int:
    """Start the job of a slot; return how many were started: none if another job has its id."""
    job_id = occurrence_id(one.name, slot)
    made = SlotRow("fired", turn.now, slot + one.jitter, backfill=backfill_id)
    if job_id in known.taken:
        if row is None:
            taken = msgspec.structs.replace(made, state="skipped", reason="id_taken")
            one.record(turn, slot, taken, run=one.cursor.run)
        return 0
    start(turn, one, job_id, slot, made, known, late=False, again=row is not None)
    if one.definition.overlap != "allow":
        doing = one.cursor.backfill or Backfilling()
        one.move(backfill=msgspec.structs.replace(doing, live_slot=slot))
    return 1


async def _shorten(turn: Turn, one: Schedule, slot: int, row: SlotRow, after_it: int | None) -> Mapping[bytes, bytes]:
    """Let the row of a run of slots begin behind its first one, which gets a row of its own, if there is a slot for it
    to begin with; return the row, which may be that of a slot that is come to next."""
    if one.cursor.run is not None and one.cursor.run[0] == slot:
        one.move(run=None)
    first = after_it if after_it is not None else next_of(one.definition)(slot)
    if row.until is None or first is None or first > row.until:
        return {}
    key = slot_key(one.name, first)
    if (await turn.state.storage.get(key)) is not None:
        return {}  # a slot inside a run that has a row of its own
    rest = msgspec.structs.replace(
        row,
        due=first + one.jitter,
        until=None if first == row.until else row.until,
        count=None if row.count is None else max(row.count - 1, 1),
    )
    written = {key: encode(rest)}
    turn.state.storage.put(key, written[key])
    one.move(kept=one.cursor.kept + 1)
    return written


def _ring(one: Schedule, at: int) -> None:
    doing = one.cursor.backfill or Backfilling()
    one.move(backfill=msgspec.structs.replace(doing, rings_at=at))


# ---- Beginning and end ---------------------------------------------------------------------------


def begin(turn: Turn, one: Schedule, backfill_id: str, row: BackfillRow) -> None:
    """Put a backfill behind those of the schedule that have not ended."""
    turn.state.use_flow()
    _write(turn, one, backfill_id, row)
    doing = one.cursor.backfill or Backfilling()
    one.move(backfill=msgspec.structs.replace(doing, ids=(*doing.ids, backfill_id)))


def end(turn: Turn, one: Schedule, backfill_id: str, row: BackfillRow, state: str, error: str | None = None) -> None:
    """End a backfill; the next one goes on."""
    _write(turn, one, backfill_id, msgspec.structs.replace(row, state=state, error=error, not_before=0))
    _leave(one, backfill_id)


async def end_all(turn: Turn, one: Schedule, why: str) -> None:
    """End all backfills of a schedule."""
    if one.cursor.backfill is None:
        return
    rows = await all_of(turn, one.name)
    for backfill_id in one.cursor.backfill.ids:
        if (row := rows.get(backfill_id)) is not None:
            end(turn, one, backfill_id, row, "stopped", why)
    one.move(backfill=None)


def _leave(one: Schedule, backfill_id: str) -> None:
    doing = one.cursor.backfill or Backfilling()
    ids = tuple(other for other in doing.ids if other != backfill_id)
    one.move(backfill=msgspec.structs.replace(doing, ids=ids, rings_at=None))


async def all_of(turn: Turn, name: str) -> dict[str, BackfillRow]:
    """Read the backfills of a schedule, by id."""
    prefix = backfill_prefix(name)
    found: dict[str, BackfillRow] = {}
    async for key, value in each_row(turn.state.storage, prefix, after(prefix), PAGE):
        row = read(turn, BackfillRow, key, {key: value})
        if row is not None:
            found[key[len(prefix) :].decode()] = row
    return found


def _write(turn: Turn, one: Schedule, backfill_id: str, row: BackfillRow) -> None:
    turn.state.storage.put(backfill_key(one.name, backfill_id), encode(row))
