"""Dead letters retried in bulk: a durable job of its own, at a pace, over what was parked before it was requested.

No letter is matched by two of them, and no two retry jobs of one pool at the same time: the later one waits until the
earlier one has ended. So the same call made twice starts nothing twice, and no rate is the sum of two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import AuditRow
from tocsin.actors.scheduler.model.rows import (
    BadRow,
    ParkedRow,
    RedriveRow,
    decode,
    encode,
    parked_key,
    redrive_key,
    split_line_tail,
)
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.actors.scheduler.transitions.submit import retry_dead
from tocsin.storage.api import StoreView, after, each_row

REDRIVE = "redrive"
TICK_MS = 1_000
LOOKED_AT = 2_000
PAGE = 5_000
Running = Mapping[str, RedriveRow]
"""The redrives that have not ended, by id."""


def wanted(row: RedriveRow, letter: ParkedRow) -> bool:
    return row.pool in (None, letter.pool) and row.reason in (None, letter.reason) and row.path in (None, letter.path)


# ---- Before one begins ---------------------------------------------------------------------------


@dataclass(slots=True)
class Counted:
    """How many letters a redrive would retry, and how many more it would if no other had those already."""

    matched: int = 0
    under_way: int = 0
    by: str = ""
    """The redrive that has the first of those `under_way`."""


async def running(view: StoreView) -> dict[str, RedriveRow]:
    found: dict[str, RedriveRow] = {}
    async for key, value in each_row(view, b"redrive/", after(b"redrive/"), PAGE):
        try:
            row = decode(RedriveRow, key, value)
        except BadRow:
            continue  # the actor sets it aside when it comes to it
        if row.next_at:
            found[key.removeprefix(b"redrive/").decode()] = row
    return found


async def count(view: StoreView, row: RedriveRow, others: Running) -> Counted:
    counted = Counted()
    async for key, value in each_row(view, b"parked/%015d/" % row.since, b"parked/%015d/" % row.before, PAGE):
        try:
            letter = decode(ParkedRow, key, value)
        except BadRow:
            continue
        if not wanted(row, letter):
            continue
        place = split_line_tail(key)
        by = next((name for name, other in others.items() if _is_ahead(other, place) and wanted(other, letter)), None)
        if by is None:
            counted.matched += 1
        else:
            counted.under_way += 1
            counted.by = counted.by or by
    return counted


def _is_ahead(row: RedriveRow, place: tuple[int, str]) -> bool:
    """Tell whether the redrive has still to come to a letter at this place."""
    return row.since <= place[0] < row.before and place > row.cursor


def next_turn(others: Running) -> int:
    """Return the turn of a redrive that begins behind all of these."""
    return 1 + max((other.turn for other in others.values()), default=0)


def waits_for(redrive_id: str, row: RedriveRow, others: Running) -> str | None:
    """Return the first of the redrives before it that retries jobs of the same pool."""
    mine = (row.turn, redrive_id)
    before = [
        place
        for name, other in others.items()
        if (place := (other.turn, name)) < mine and (None in (row.pool, other.pool) or row.pool == other.pool)
    ]
    return min(before)[1] if before else None


# ---- Turns ---------------------------------------------------------------------------------------


async def start(
    turn: Turn, redrive_id: str, row: RedriveRow, known: Collection[str], by: AskedBy | None = None
) -> bool:
    """Begin a redrive; its first letters are retried at once, unless it has to wait. False, and nothing is done, if
    others have begun than those `known` when its letters were counted."""
    if (await _running(turn)).keys() - set(known):
        return False
    if by is not None:
        row = msgspec.structs.replace(row, noted_at=turn.now)
        filters = {"pool": row.pool, "reason": row.reason, "functionPath": row.path, "since": row.since or None}
        said = {name: value for name, value in filters.items() if value is not None}
        audit.put(turn, redrive_id, AuditRow(turn.now, "dead_retry_all", by, "", said, row.matched, 0))
    await _tick(turn, redrive_id, row)
    return True


async def stop(turn: Turn, redrive_id: str) -> bool:
    """Stop a redrive; False if there is none, or it has ended."""
    row = await _read(turn, redrive_id)
    if row is None or not row.next_at:
        return False
    turn.state.drop_timer(row.next_at, REDRIVE, redrive_id)
    await _write(turn, redrive_id, msgspec.structs.replace(row, next_at=0, stopped=True))
    return True


async def drive(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Carry out a tick of each redrive whose timer has come."""
    for ms, redrive_id in due:
        row = await _read(turn, redrive_id)
        if row is not None and row.next_at == ms:
            await _tick(turn, redrive_id, row)


async def _tick(turn: Turn, redrive_id: str, row: RedriveRow) -> None:
    """Retry as many letters as the rate allows, of a bounded number that are looked at."""
    if waits_for(redrive_id, row, await _running(turn)) is not None:
        await _go_on(turn, redrive_id, row)
        return
    start = parked_key(*row.cursor) + b"\x00" if row.cursor[1] else b"parked/%015d/" % row.since
    rows = await turn.state.storage.scan(start, b"parked/%015d/" % row.before, limit=LOOKED_AT)
    taken, cursor = 0, row.cursor
    for key, value in rows:
        if taken == row.rate or turn.is_full:
            break
        cursor = split_line_tail(key)
        letter = turn.state.read(ParkedRow, key, value)
        if letter is not None and wanted(row, letter) and await retry_dead(turn, cursor[1]) is not None:
            taken += 1
    retried = row.retried + taken
    await audit.count(turn, row.noted_at, redrive_id, retried)
    # This one may retry letters that it did not match itself, of another that was stopped before it came to them.
    row = msgspec.structs.replace(row, cursor=cursor, retried=retried, matched=max(row.matched, retried))
    if len(rows) == LOOKED_AT or (rows and cursor != split_line_tail(rows[-1][0])):
        await _go_on(turn, redrive_id, row)
    else:
        await _write(turn, redrive_id, msgspec.structs.replace(row, next_at=0))


async def _go_on(turn: Turn, redrive_id: str, row: RedriveRow) -> None:
    next_at = turn.now + TICK_MS
    turn.state.put_timer(next_at, REDRIVE, redrive_id)
    await _write(turn, redrive_id, msgspec.structs.replace(row, next_at=next_at))


async def _running(turn: Turn) -> dict[str, RedriveRow]:
    """Return the redrives that have not ended. They are read once: those that ended stay in the store, and may be
    many."""
    state = turn.state
    if state.redrives is None:
        rows = [(key, state.read(RedriveRow, key, value)) for key, value in await state.all_rows(b"redrive/")]
        state.redrives = {key[8:].decode(): row for key, row in rows if row is not None and row.next_at}
    return state.redrives


async def _read(turn: Turn, redrive_id: str) -> RedriveRow | None:
    key = redrive_key(redrive_id)
    value = await turn.state.storage.get(key)
    return None if value is None else turn.state.read(RedriveRow, key, value)


async def _write(turn: Turn, redrive_id: str, row: RedriveRow) -> None:
    known = await _running(turn)
    if row.next_at:
        known[redrive_id] = row
    else:
        known.pop(redrive_id, None)
    turn.state.storage.put(redrive_key(redrive_id), encode(row))
