"""A slot becomes a job, waits for the live one to end, or ends without one; each with its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.crockford import mint_id
from tocsin.actors.scheduler.model.followers import Follower, with_blob, with_ids
from tocsin.actors.scheduler.model.rows import JobRow, ScheduleRef, job_key
from tocsin.actors.scheduler.model.schedule_rows import (
    CursorRow,
    Piece,
    SlotRow,
    inherited,
    occurrence_id,
    slot_key,
)
from tocsin.actors.scheduler.schedules.schedule import Schedule, args_of
from tocsin.actors.scheduler.schedules.slots import Fire, Run
from tocsin.actors.scheduler.state.spread import not_before
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.apply import accept
from tocsin.actors.scheduler.transitions.submit import over_quota

PIECES: Final = 50
"""A slot that is held back stands for so many runs of others: each pause while it waits begins another one."""
MERGED: Final = ("overlap", "quota")
"""Reasons of skipped slots that follow one another for long; those are one row."""


@dataclass(slots=True)
class Known:
    """Rows that are read before slots are fired."""

    taken: set[str] = field(default_factory=set)
    """Ids that jobs hold."""
    decided: set[bytes] = field(default_factory=set)
    """Keys of slots that have their row already: those ended before, whatever clock or rule say now."""
    args: dict[str, list[bytes]] = field(default_factory=dict)


async def know(turn: Turn, wanted: Sequence[tuple[Schedule, Sequence[int], Sequence[str]]]) -> Known:
    """Read what is known of slots that may fire, and of further ids, for each schedule: two hops at most."""
    ids = {
        job_key(job_id): job_id
        for one, slots, more in wanted
        for job_id in (*(occurrence_id(one.name, slot) for slot in slots), *more)
    }
    if not ids:
        return Known()
    slot_keys = [slot_key(one.name, slot) for one, slots, _ in wanted for slot in slots]
    rows = await turn.state.storage.get_many([*ids, *slot_keys])
    long = [one for one, slots, more in wanted if (slots or more) and one.definition.args_rows]
    args = await args_of(turn, long) if long else {}
    return Known({ids[key] for key in rows if key in ids}, {key for key in slot_keys if key in rows}, args)


def record_run(turn: Turn, one: Schedule, run: Run) -> None:
    """Record slots that end without a job, as one row."""
    until = None if run.last == run.first else run.last
    row = SlotRow(run.state, turn.now, run.first + one.jitter, None, run.reason, until, run.count)
    one.record(turn, run.first, row)


def record_pieces(turn: Turn, one: Schedule, pieces: Sequence[Piece], state: str, reason: str | None = None) -> None:
    """Record the earlier slots of one that has ended, or has started for them."""
    for first, last, count in pieces:
        if count != 0:
            record_run(turn, one, Run(first, last, count, state, reason))


def fire_slot(turn: Turn, one: Schedule, fire: Fire, known: Known, *, again: bool = False) -> None:
    """Decide a slot. `again`: its row is there already, held back by an overlap that is over."""
    if not again and slot_key(one.name, fire.slot) in known.decided:
        record_pieces(turn, one, fire.pieces, "skipped", "misfire")  # it ended before, and stands for none of them
        return
    row = SlotRow("fired", turn.now, fire.slot + one.jitter, first_slot=fire.first_slot, coalesced=fire.coalesced)
    job_id = occurrence_id(one.name, fire.slot)
    if one.definition.expires_after_ms is not None and one.is_over(fire.slot, turn.now):
        _pass(turn, one, fire, "expired", None, again=again)
    elif not one.may_start:
        if _waits(one, fire):
            _hold(turn, one, fire, row, known, again=again)
        else:
            _pass(turn, one, fire, "skipped", "overlap", again=again)
    elif job_id in known.taken:
        _pass(turn, one, fire, "skipped", "id_taken", again=again)
    elif over_quota(turn) is not None:
        _pass(turn, one, fire, "skipped", "quota", again=again)
    else:
        if fire.pieces:
            record_pieces(turn, one, fire.pieces, "coalesced")
        start(turn, one, job_id, fire.slot, row, known, late=fire.late, again=again)


def _pass(turn: Turn, one: Schedule, fire: Fire, state: str, reason: str | None, *, again: bool) -> None:
    """End a slot without a job, and those that it would have stood for."""
    row = SlotRow(state, turn.now, fire.slot + one.jitter, reason=reason)
    if again or reason not in MERGED or fire.coalesced is None:
        record_pieces(turn, one, fire.pieces, state, reason)
        one.record(turn, fire.slot, row, again=again)
    else:
        assert reason is not None
        _join_run(turn, one, fire, reason, row)


def _join_run(turn: Turn, one: Schedule, fire: Fire, reason: str, row: SlotRow) -> None:
    """Record a slot that was skipped like those before it: the same row stands for all."""
    count, first = (fire.coalesced or 0) + 1, fire.slot if fire.first_slot is None else fire.first_slot
    joins = one.cursor.run is not None and one.cursor.run[2] == reason
    if joins and one.cursor.run is not None:
        first, count = one.cursor.run[0], one.cursor.run[1] + count
    if count > 1:
        row = msgspec.structs.replace(row, due=first + one.jitter, until=fire.slot, count=count)
    one.record(turn, first, row, again=joins)
    one.move(run=(first, count, reason))


# ---- Held back -----------------------------------------------------------------------------------


def _waits(one: Schedule, fire: Fire) -> bool:
    """Tell whether a slot waits for the live occurrence to end, rather than pass."""
    if one.cursor.queued is None:
        return fire.catch_up or one.definition.overlap == "queue" or one.runs_past
    return (fire.catch_up or one.cursor.stands is not None) and len(one.cursor.stands or ()) < PIECES


def _hold(turn: Turn, one: Schedule, fire: Fire, row: SlotRow, known: Known, *, again: bool) -> None:
    """Hold a slot back; one that was held back already is from now on among those it stands for."""
    held, stands = one.cursor.queued, fire.pieces
    if held is not None:
        key = slot_key(one.name, held)
        turn.state.storage.delete(key)
        one.move(kept=one.cursor.kept - (key in known.decided))
        *earlier, last = one.cursor.stands or ((held, held - 1, 0),)
        last = _joined(last, (held, held, 1))
        if not fire.joins:
            stands = (*earlier, last, *(stands or (_nothing_before(fire.slot),)))
        else:
            stands = (*earlier, _joined(last, stands[0]) if stands else last)
    elif fire.catch_up and not stands:
        stands = (_nothing_before(fire.slot),)
    fire.stand_for(stands)
    row = msgspec.structs.replace(row, state="queued", first_slot=fire.first_slot, coalesced=fire.coalesced)
    one.record(turn, fire.slot, row, again=again)
    known.decided.add(slot_key(one.name, fire.slot))  # the next slot of this look may take its place
    one.move(queued=fire.slot, stands=stands or None, run=None)


def _nothing_before(slot: int) -> Piece:
    """Return a piece that begins with a slot that is held back, and is empty so far."""
    return slot, slot - 1, 0


def _joined(piece: Piece, other: Piece) -> Piece:
    count = None if piece[2] is None or other[2] is None else piece[2] + other[2]
    return piece[0], other[1], count


def start(
    turn: Turn, one: Schedule, job_id: str, slot: int, row: SlotRow, known: Known, *, late: bool, again: bool = False
) -> None:
    """Start the job of a slot: a frozen copy of the definition. That of a backfill is due now, behind what is due
    already."""
    definition, cursor = one.definition, one.cursor
    at = due = row.due if row.backfill is None else turn.now
    expires_at = None if definition.expires_after_ms is None else due + definition.expires_after_ms
    starts_from = cursor.starts_from
    if row.request is None and row.backfill is None and (late or starts_from is not None):
        at, starts_from = _start_at(turn, row.due, expires_at, cursor, late=late)
    row = msgspec.structs.replace(row, job_id=job_id)
    changes: dict[str, object] = {"live": cursor.live + 1, "starts_from": starts_from}
    if row.backfill is not None:
        changes["run"] = cursor.run  # the newest slots are others
    one.record(turn, slot, row, again=again, **changes)
    known.taken.add(job_id)
    job = JobRow(
        id=job_id,
        incarnation="",
        scheduled_for=due,
        enqueued_at=turn.now,
        args=b"",
        expires_at=expires_at,
        schedule=ScheduleRef(one.name, slot, definition.uid, row.first_slot, row.coalesced, row.request),
        **inherited(definition),
    )
    more = known.args.get(one.name, [])
    # What is left of them, where a piece is missing, must not be taken for all of them: the job dies of its damage.
    args = definition.args + b"".join(more if len(more) == definition.args_rows else [])
    then, on_dead = _followers(turn, definition.then), _followers(turn, definition.on_dead)
    accept(turn, with_blob(job, args, then, on_dead=on_dead), at)


def _followers(turn: Turn, stored: bytes) -> tuple[Follower, ...]:
    """Give what follows this occurrence ids of its own."""
    if not stored:
        return ()
    return with_ids(stored, (mint_id(turn.now, turn.random.getrandbits(80)) for _ in repeat(None)))


def _start_at(turn: Turn, due: int, expires_at: int | None, cursor: CursorRow, *, late: bool) -> tuple[int, int | None]:
    """Return when a slot starts, no sooner than an earlier slot of its schedule, which may have been spread: ids decide
    where both start at one instant. And from when on later slots may start, if that is not their own due instant."""
    earlier = not_before(turn.now, cursor.starts_from)
    at = after = max(due, earlier)
    if late:
        begins, after = turn.state.occurrences.spread.place(turn.now, earlier, expires_at)
        at = max(at, begins) if begins > turn.now else at
    return at, max(at, after) if after > due else None
