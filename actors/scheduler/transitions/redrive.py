"""Dead letters retried in bulk: a durable job of its own, at a pace, over what was parked before it was requested.

No letter is matched by two of them, and no two retry jobs of one pool at the same time: the later one waits until the
earlier one has ended. So the same call made twice starts nothing twice, and no rate is the sum of two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from tocsin.actors.scheduler.model.acts import TrashRow
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import AuditRow
from tocsin.actors.scheduler.model.crockford import ms_of
from tocsin.actors.scheduler.model.rows import (
    BadRow,
    DeadRow,
    JobRow,
    ParkedRow,
    RedriveRow,
    dead_key,
    decode,
    encode,
    job_key,
    parked_key,
    redrive_key,
    split_line_tail,
)
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import acts, audit
from tocsin.actors.scheduler.transitions.acts import Acting
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
    async for place, letter in letters(view, row.since, row.before, row.ids):
        if not wanted(row, letter):
            continue
        by = next((name for name, other in others.items() if _is_ahead(other, place) and wanted(other, letter)), None)
        if by is None:
            counted.matched += 1
        else:
            counted.under_way += 1
            counted.by = counted.by or by
    return counted


async def letters(
    view: StoreView, since: int, before: int, ids: Sequence[str] | None = None
) -> AsyncIterator[tuple[tuple[int, str], ParkedRow]]:
    """Yield the dead letters parked from `since` on and before `before`, or those of them that have these ids; each
    with its place among all."""
    if ids is None:
        async for key, value in each_row(view, b"parked/%015d/" % since, b"parked/%015d/" % before, PAGE):
            with suppress(BadRow):
                yield split_line_tail(key), decode(ParkedRow, key, value)
        return
    keys = [key for job_id in ids for key in (job_key(job_id), dead_key(job_id))]
    rows = await view.get(keys)
    for job_id, key, of_dead in zip(ids, keys[::2], keys[1::2], strict=True):
        with suppress(BadRow):
            if of_dead in rows and key in rows:
                dead = decode(DeadRow, of_dead, rows[of_dead])
                if since <= dead.parked_at < before:
                    yield (dead.parked_at, job_id), as_parked(decode(JobRow, key, rows[key]), dead)


def as_parked(job: JobRow, dead: DeadRow) -> ParkedRow:
    """Return what a dead letter is filtered by."""
    return ParkedRow(dead.reason, job.pool, job.target)


def _is_ahead(row: RedriveRow, place: tuple[int, str]) -> bool:
    """Tell whether the redrive has still to come to a letter at this place."""
    if row.ids is not None:
        return row.since <= place[0] < row.before and place[1] in row.ids[row.cursor[0] :]
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
        row = msgspec.structs.replace(row, noted_at=ms_of(redrive_id))
        ids = len(row.ids) if row.ids is not None else None
        filters = {"pool": row.pool, "reason": row.reason, "functionPath": row.path, "since": row.since or None}
        said = {name: value for name, value in {**filters, "ids": ids}.items() if value is not None}
        audit.put(turn, redrive_id, AuditRow(row.noted_at, "dead_retry_all", by, "", said, row.matched, 0))
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
    acting = await acts.begin_noted(turn, redrive_id) if row.noted_at else None
    taken, cursor, more = await _retry_some(turn, row, acting)
    retried = row.retried + taken
    if acting is not None:
        acting.end(None, taken)
    # This one may retry letters that it did not match itself, of another that was stopped before it came to them.
    row = msgspec.structs.replace(row, cursor=cursor, retried=retried, matched=max(row.matched, retried))
    if more:
        await _go_on(turn, redrive_id, row)
    else:
        await _write(turn, redrive_id, msgspec.structs.replace(row, next_at=0))


async def _retry_some(turn: Turn, row: RedriveRow, acting: Acting | None) -> tuple[int, tuple[int, str], bool]:
    """Retry letters from the cursor on. Return how many, the cursor behind them, and whether there may be more."""
    if row.ids is not None:
        return await _retry_named(turn, row, row.ids, acting)
    start = parked_key(*row.cursor) + b"\x00" if row.cursor[1] else b"parked/%015d/" % row.since
    rows = await turn.state.storage.scan(start, b"parked/%015d/" % row.before, limit=LOOKED_AT)
    taken, cursor = 0, row.cursor
    for key, value in rows:
        if taken == row.rate or turn.is_full:
            break
        cursor = split_line_tail(key)
        letter = turn.state.read(ParkedRow, key, value)
        if letter is not None and wanted(row, letter):
            taken += await _retry(turn, cursor[1], row.before, acting)
    return taken, cursor, len(rows) == LOOKED_AT or bool(rows and cursor != split_line_tail(rows[-1][0]))


async def _retry_named(
    turn: Turn, row: RedriveRow, ids: Sequence[str], acting: Acting | None
) -> tuple[int, tuple[int, str], bool]:
    """Retry letters of these ids; the cursor counts them."""
    taken = looked = 0
    for job_id in ids[row.cursor[0] :]:
        if taken == row.rate or turn.is_full:
            break
        looked += 1
        found = (await turn.letters([job_id])).get(job_id)
        if found is not None and row.since <= found[1].parked_at and wanted(row, as_parked(*found)):
            taken += await _retry(turn, job_id, row.before, acting)
    done = row.cursor[0] + looked
    return taken, (done, ""), done < len(ids)


async def _retry(turn: Turn, job_id: str, before: int, acting: Acting | None) -> int:
    """Retry one letter, if it was parked before the request, and keep how to make it dead again."""
    letter = (await turn.letters([job_id])).get(job_id)
    if letter is None or letter[1].parked_at >= before:
        return 0
    await retry_dead(turn, job_id)
    if acting is not None:
        acting.keep(job_id, TrashRow("retried", letter[0].incarnation, dead=letter[1]))
    return 1


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
