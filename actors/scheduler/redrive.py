"""Dead letters retried in bulk: a durable job of its own, at a pace, over what was parked before it was asked for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.actors.scheduler.rows import ParkedRow, RedriveRow, encode, parked_key, redrive_key, split_line_tail
from tocsin.actors.scheduler.submit import retry_dead
from tocsin.actors.scheduler.turn import Turn

REDRIVE = "redrive"
TICK_MS = 1_000
LOOKED_AT = 2_000


def wanted(row: RedriveRow, letter: ParkedRow) -> bool:
    return row.pool in (None, letter.pool) and row.reason in (None, letter.reason) and row.path in (None, letter.path)


async def start(turn: Turn, redrive_id: str, row: RedriveRow) -> None:
    """The first letters are retried at once."""
    await _tick(turn, redrive_id, row)


async def stop(turn: Turn, redrive_id: str) -> bool:
    """False if there is none, or it has ended."""
    row = await _read(turn, redrive_id)
    if row is None or not row.next_at:
        return False
    turn.book.drop_timer(row.next_at, REDRIVE, redrive_id)
    _write(turn, redrive_id, msgspec.structs.replace(row, next_at=0, stopped=True))
    return True


async def drive(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """A tick of each."""
    for ms, redrive_id in due:
        row = await _read(turn, redrive_id)
        if row is not None and row.next_at == ms:
            await _tick(turn, redrive_id, row)


async def _tick(turn: Turn, redrive_id: str, row: RedriveRow) -> None:
    """As many letters as its rate allows; looks at a bounded number of them."""
    start = parked_key(*row.cursor) + b"\x00" if row.cursor[1] else b"parked/%015d/" % row.since
    rows = await turn.book.storage.scan(start, b"parked/%015d/" % row.before, limit=LOOKED_AT)
    taken, cursor = 0, row.cursor
    for key, value in rows:
        if taken == row.rate or turn.is_full:
            break
        cursor = split_line_tail(key)
        letter = turn.book.read(ParkedRow, key, value)
        if letter is not None and wanted(row, letter) and await retry_dead(turn, cursor[1]) is not None:
            taken += 1
    more = len(rows) == LOOKED_AT or (bool(rows) and cursor != split_line_tail(rows[-1][0]))
    next_at = turn.now + TICK_MS if more else 0
    if more:
        turn.book.put_timer(next_at, REDRIVE, redrive_id)
    _write(turn, redrive_id, msgspec.structs.replace(row, cursor=cursor, retried=row.retried + taken, next_at=next_at))


async def _read(turn: Turn, redrive_id: str) -> RedriveRow | None:
    key = redrive_key(redrive_id)
    value = await turn.book.storage.get(key)
    return None if value is None else turn.book.read(RedriveRow, key, value)


def _write(turn: Turn, redrive_id: str, row: RedriveRow) -> None:
    turn.book.storage.put(redrive_key(redrive_id), encode(row))
