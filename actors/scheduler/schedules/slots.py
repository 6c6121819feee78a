"""Decide the slots of a schedule at an instant: which have come, and the outcome of each. Pure: no rows, no turn.

A slot follows from the slot before it, never from the clock (contract, section 6). Nobody walks through those that were
missed: what may fire is found from the newest backwards, and the others are counted by arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from tocsin.actors.scheduler.model.rows import DAY_MS
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow, Piece
from tocsin.actors.scheduler.schedules.series import Series, before

FEW: Final = 20
"""So many slots are walked through before they are counted."""


class Pace(Protocol):
    """How far one look may go."""

    @property
    def most(self) -> int:
        """Return how many slots it may decide."""
        ...

    def step(self) -> bool:
        """Count a computed slot; return whether there is time for another one."""
        ...


@dataclass(slots=True)
class Run:
    """Slots that end without a job: one, or a run of them."""

    first: int
    last: int
    count: int | None
    state: str
    reason: str | None = None


@dataclass(slots=True)
class Fire:
    """A slot that becomes a job, if no overlap or taken id is in its way."""

    slot: int
    late: bool
    first_slot: int | None = None
    coalesced: int | None = 0
    """How many earlier slots it stands for; None: not counted."""
    pieces: tuple[Piece, ...] = ()
    """Those slots, if they have no row yet: it comes with the job, since they are coalesced only if there is one."""
    catch_up: bool = False
    """One of them, or it, was missed (`misfire: one`): an overlap holds it back, whatever the policy."""
    joins: bool = False
    """No slot lies between the one held back and the first of these."""

    def stand_for(self, pieces: tuple[Piece, ...]) -> None:
        """Let this slot stand for earlier ones, which have no row yet."""
        some = [piece for piece in pieces if piece[2] != 0]
        counts = [count for _, _, count in some]
        self.pieces, self.first_slot = pieces, some[0][0] if some else None
        self.coalesced = None if None in counts else sum(count for count in counts if count is not None)


@dataclass(slots=True)
class Owed:
    """Outcomes of slots, in order, and the cursor after them."""

    cursor: CursorRow
    more: bool = False
    """True if there is more to decide at this instant, in another look."""
    runs: list[Run] = field(default_factory=list)
    fires: list[Fire] = field(default_factory=list)


@dataclass(slots=True)
class Walk:
    """Slots one after another."""

    slots: list[int]
    next: int | None
    reached: bool
    """True if they are all up to the horizon; if not, `next` is the first of the rest."""


def walk(series: Series, last: int, horizon: int, pace: Pace, *, most: int | None = None) -> Walk:
    """Walk the slots in (last, horizon], at least one of them if there is one, and no more than the pace allows or than
    `most`."""
    slots: list[int] = []
    slot = series(last)
    most = pace.most if most is None else most
    while slot is not None and slot <= horizon:
        if slots and (len(slots) >= most or not pace.step()):
            return Walk(slots, slot, False)
        slots.append(slot)
        slot = series(slot)
    return Walk(slots, slot, True)


def begun_anew(cursor: CursorRow) -> CursorRow:
    """Earlier versions counted what was missed, look after look. Of a backlog that one of them had begun to count
    nothing is decided yet: it is seen as a whole."""
    first = cursor.missed_from
    if first is None:
        return cursor
    return msgspec.structs.replace(
        cursor, last=first - 1, next_slot=first, missed_from=None, missed=0, aim=None, fire_to=None
    )


def missed(series: Series, last: int, until: int, pace: Pace) -> Run | None:
    """Return the slots in (last, until] as one run; None: there are none."""
    found = walk(series, last, until, pace, most=FEW)
    if not found.slots:
        return None
    first = found.slots[0]
    if found.reached:
        return Run(first, found.slots[-1], len(found.slots), "skipped")
    newest = before(series.paced(pace), until + 1)
    return Run(first, newest, series.paced(pace).count(first, newest), "skipped")


def owed(row: DefinitionRow, cursor: CursorRow, series: Series, now: int, pace: Pace) -> Owed:
    """Decide what is owed at `now`, from which the jitter was subtracted. A slot older than the grace is late."""
    if cursor.skip_to is not None:
        return _passed(cursor, series, now, cursor.skip_to, pace)
    if row.misfire == "one":
        return _one(row, cursor, series, now, pace)
    if row.misfire == "skip":
        return _skip(row, cursor, series, now, pace)
    if row.catch_up_limit is None or cursor.fire_to is not None:
        return _each(row, cursor, series, now, pace)
    return _newest(row, cursor, series, now, row.catch_up_limit, pace)


def _moved(cursor: CursorRow, last: int, next_slot: int | None, **changes: object) -> CursorRow:
    return msgspec.structs.replace(cursor, last=last, next_slot=next_slot, error=None, **changes)


def _passed(cursor: CursorRow, series: Series, now: int, skip_to: int, pace: Pace) -> Owed:
    """End those that passed while it was paused. A clock that was far ahead when it was resumed is not waited for."""
    skip_to = now if skip_to > now + DAY_MS else skip_to
    run = missed(series, cursor.last, min(now, skip_to), pace)
    last = cursor.last
    if run is not None:
        run.reason, last = "paused", run.last
    coming = series(last)
    done = now >= skip_to or coming is None or coming > skip_to
    after = _moved(cursor, last, coming, skip_to=None if done else skip_to)
    return Owed(after, coming is not None and coming <= now, [] if run is None else [run])


def _one(row: DefinitionRow, cursor: CursorRow, series: Series, now: int, pace: Pace) -> Owed:
    """Owe at most one job, for the newest slot; the others are folded into it."""
    found = walk(series, cursor.last, now, pace, most=FEW)
    if not found.slots:
        return Owed(_moved(cursor, cursor.last, found.next))
    first, newest, coming = found.slots[0], found.slots[-1], found.next
    older: tuple[Piece, ...] = ()
    if not found.reached:
        paced = series.paced(pace)
        newest = before(paced, now + 1)
        earlier = before(paced, newest)
        older, coming = ((first, earlier, paced.count(first, earlier)),), paced(newest)
    elif newest > first:
        older = ((first, found.slots[-2], len(found.slots) - 1),)
    late_before = now - row.grace_ms
    fire = Fire(newest, newest < late_before, catch_up=first < late_before, joins=cursor.last == cursor.queued)
    if older:
        fire.stand_for(older)
    return Owed(_moved(cursor, newest, coming), fires=[fire])


def _skip(row: DefinitionRow, cursor: CursorRow, series: Series, now: int, pace: Pace) -> Owed:
    """Owe none of those that are late, and all that are on time."""
    run = missed(series, cursor.last, now - row.grace_ms - 1, pace)
    runs: list[Run] = []
    last = cursor.last
    if run is not None:
        run.reason, last = "misfire", run.last
        runs.append(run)
    found = walk(series, last, now, pace)
    after = _moved(cursor, found.slots[-1] if found.slots else last, found.next)
    return Owed(after, not found.reached, runs, [Fire(slot, False) for slot in found.slots])


def _each(row: DefinitionRow, cursor: CursorRow, series: Series, now: int, pace: Pace) -> Owed:
    """Owe all of them, or those that were found to be the newest of a backlog."""
    horizon = now if cursor.fire_to is None else min(now, cursor.fire_to)
    found = walk(series, cursor.last, horizon, pace)
    last = found.slots[-1] if found.slots else cursor.last
    done = found.reached and horizon == cursor.fire_to
    after = _moved(cursor, last, found.next, fire_to=None if done else cursor.fire_to)
    fires = [Fire(slot, slot < now - row.grace_ms) for slot in found.slots]
    return Owed(after, found.next is not None and found.next <= now, fires=fires)


def _newest(row: DefinitionRow, cursor: CursorRow, series: Series, now: int, limit: int, pace: Pace) -> Owed:
    """Owe the newest `limit` of those that are late, and all that are on time."""
    late = missed(series, cursor.last, now - row.grace_ms - 1, pace)
    last, fire_to = cursor.last, None
    runs: list[Run] = []
    if late is not None:
        fire_to = late.last
        if late.count is None or late.count > limit:
            paced = series.paced(pace)
            start = paced.back(late.first, late.last, limit)
            count = None if late.count is None else late.count - limit
            runs.append(Run(late.first, before(paced, start), count, "skipped", "catch_up"))
            last = start - 1
    found = walk(series, last, now, pace)
    last = found.slots[-1] if found.slots else last
    after = _moved(cursor, last, found.next, fire_to=fire_to if fire_to is not None and last < fire_to else None)
    fires = [Fire(slot, slot < now - row.grace_ms) for slot in found.slots]
    return Owed(after, not found.reached, runs, fires)
