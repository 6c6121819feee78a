"""Changes of schedules: put, delete, pause, resume, trigger. Each is one turn; a stale revision changes nothing.

Editing never fires a job: slots that had come before the edit, and were not looked at yet, are recorded as skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tocsin.actors.scheduler.recurring import slots
from tocsin.actors.scheduler.recurring.fire import know, record_run, start
from tocsin.actors.scheduler.recurring.rows import (
    FORGET,
    CursorRow,
    DefinitionRow,
    SlotRow,
    TriggerRow,
    cursor_key,
    definition_args_key,
    definition_key,
    slot_key,
    trigger_key,
    triggered_id,
)
from tocsin.actors.scheduler.recurring.schedule import Schedule, args_of, load, read
from tocsin.actors.scheduler.recurring.slots import Come, Run
from tocsin.actors.scheduler.rows import DAY_MS, encode
from tocsin.actors.scheduler.submit import over_quota
from tocsin.actors.scheduler.turn import Turn
from tocsin.errors import ConflictError, NotFoundError, RequestError

FORGET_MS: Final = 30 * DAY_MS
"""How long the history of a deleted schedule is kept, and with it which of its slots are used up."""
_RULE: Final = ("cron", "every_ms", "at", "timezone")


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A checked definition to put. Its uid, anchor and creation are given in the turn."""

    name: str
    definition: DefinitionRow
    rest_of_args: Sequence[bytes] = field(default=())
    paused: bool | None = None
    """None: unchanged; a new one runs."""
    revision: int | None = None
    """The one it was made from; None: whatever is there."""


async def put(turn: Turn, news: Sequence[NewSchedule]) -> list[Schedule]:
    """All of them or, if one revision is stale, none (ConflictError)."""
    found = await load(turn, [new.name for new in news])
    for new in news:
        _check_revision(new.name, found.get(new.name), new.revision)
    cursors = await turn.book.storage.get_many([cursor_key(new.name) for new in news if new.name not in found])
    old_args = await args_of(turn, list(found.values()))
    made: list[Schedule] = []
    for new in news:
        old = found.get(new.name)
        if old is None:
            one = _create(turn, new, read(turn, CursorRow, cursor_key(new.name), cursors))
        else:
            one = _edit(turn, old, new, old_args[new.name])
        one.save(turn)
        made.append(one)
    return made


def _check_revision(name: str, one: Schedule | None, revision: int | None) -> None:
    if revision is None:
        return
    at = 0 if one is None else one.cursor.revision
    if revision != at:
        raise ConflictError(
            f"schedule {name!r} is at revision {at}, not {revision}: read it again, and decide on what is there now",
            revision=at,
        )


def _create(turn: Turn, new: NewSchedule, left: CursorRow | None) -> Schedule:
    """Of a deleted one that is made again the revision goes on, and slots that were used stay used."""
    definition = msgspec.structs.replace(new.definition, uid=turn.incarnation(), created_at=turn.now, anchor=turn.now)
    cursor = CursorRow(1, turn.now) if left is None else CursorRow(left.revision + 1, turn.now, kept=left.kept)
    if left is not None and left.forget_at is not None:
        turn.book.drop_timer(left.forget_at, FORGET, new.name)
    one = Schedule(new.name, definition, cursor)
    one.move(paused=bool(new.paused))
    _write(turn, one, new.rest_of_args)
    _begin(turn, one)
    return one


def _begin(turn: Turn, one: Schedule) -> None:
    """The first slot from here. An `at` in the past has come already, and is for the misfire policy."""
    at = one.definition.at
    last = turn.now if at is None else min(turn.now, at - 1)
    _aim(turn, one, last)


def _aim(turn: Turn, one: Schedule, last: int) -> None:
    one.set_next(slots.next_of(one.definition)(last), last)
    if one.cursor.paused:
        one.move(rings_at=None)


def _edit(turn: Turn, old: Schedule, new: NewSchedule, old_args: list[bytes]) -> Schedule:
    before = old.definition
    definition = msgspec.structs.replace(
        new.definition,
        uid=before.uid,
        created_at=before.created_at,
        anchor=before.anchor if new.definition.every_ms == before.every_ms else turn.now,
        owner=new.definition.owner or before.owner,
    )
    paused = old.cursor.paused if new.paused is None else new.paused
    same = _asked(definition) == _asked(before) and list(new.rest_of_args) == old_args
    if same and paused == old.cursor.paused and old.cursor.error is None:
        if before.orphaned:  # its owner names it again
            old.definition = msgspec.structs.replace(before, orphaned=False)
            _write(turn, old, ())
        return old
    old.definition = definition
    old.move(revision=old.cursor.revision + 1)
    if not same:
        for n in range(len(new.rest_of_args), before.args_rows):
            turn.book.storage.delete(definition_args_key(old.name, n))
        _write(turn, old, new.rest_of_args)
    if old.cursor.error is not None or any(getattr(definition, name) != getattr(before, name) for name in _RULE):
        _skip_to_now(turn, old, before, "edited")
        _begin(turn, old)
    if paused != old.cursor.paused:
        _set_paused(turn, old, paused)
    elif not paused and old.cursor.next_slot is not None and old.cursor.missed_from is None:
        old.set_next(old.cursor.next_slot, old.cursor.last)  # its jitter may have changed
    return old


def _asked(definition: DefinitionRow) -> DefinitionRow:
    """What was asked for, without who asked and whether its owner still does."""
    return msgspec.structs.replace(definition, orphaned=False, initiator=("", ""))


def _write(turn: Turn, one: Schedule, rest_of_args: Sequence[bytes]) -> None:
    turn.book.storage.put(definition_key(one.name), encode(one.definition))
    for n, part in enumerate(rest_of_args):
        turn.book.storage.put(definition_args_key(one.name, n), part)


def _skip_to_now(turn: Turn, one: Schedule, definition: DefinitionRow, reason: str) -> None:
    """The slots that have come and were not looked at end here, as one row. A long run is not counted."""
    try:
        following = slots.next_of(definition)
    except RequestError:  # its zone is gone: what it would have owed is not known
        one.move(last=max(turn.now, one.cursor.last), missed_from=None, missed=0)
        return
    found = slots.come(following, one.cursor, turn.now, 1)
    if not found.reached:
        found = Come(slots.newest(following, one.cursor.last + 1, turn.now, 1), turn.now, True, found.missed_from, None)
    first = found.missed_from if found.missed_from is not None else found.slots[0] if found.slots else None
    if first is not None:
        count = None if found.missed is None else found.missed + len(found.slots)
        record_run(turn, one, Run(first, found.slots[-1] if found.slots else found.last, count, "skipped", reason))
        turn.book.occurrences.see(found.last)
    one.move(last=max(turn.now, one.cursor.last), missed_from=None, missed=0)


# ---- Pause, resume, delete, trigger --------------------------------------------------------------


async def _one(turn: Turn, name: str, revision: int | None) -> Schedule:
    one = (await load(turn, [name])).get(name)
    if one is None:
        raise NotFoundError(f"there is no schedule {name!r}")
    _check_revision(name, one, revision)
    return one


async def set_paused(turn: Turn, name: str, paused: bool, revision: int | None) -> Schedule:
    """Slots that pass while it is paused are recorded as skipped when it is resumed."""
    one = await _one(turn, name, revision)
    if one.cursor.paused != paused or (one.cursor.error is not None and not paused):
        one.move(revision=one.cursor.revision + 1)
        _set_paused(turn, one, paused)
        one.save(turn)
    return one


def _set_paused(turn: Turn, one: Schedule, paused: bool) -> None:
    if paused:
        one.move(paused=True, rings_at=None)
        return
    slots.next_of(one.definition)  # refused, and nothing is changed, if its zone is gone
    one.move(paused=False)
    if one.definition.at is None:
        _skip_to_now(turn, one, one.definition, "paused")
    _aim(turn, one, one.cursor.last)


async def delete(turn: Turn, name: str, revision: int | None) -> Schedule:
    """The definition goes; its occurrences go on, and its history is kept for 30 days."""
    one = await _one(turn, name, revision)
    remove(turn, one)
    return one


def remove(turn: Turn, one: Schedule) -> None:
    if one.cursor.queued is not None:
        row = SlotRow("skipped", turn.now, one.cursor.queued + one.jitter, reason="deleted")
        one.record(turn, one.cursor.queued, row, again=True)
    storage = turn.book.storage
    storage.delete(definition_key(one.name))
    for n in range(one.definition.args_rows):
        storage.delete(definition_args_key(one.name, n))
    one.move(rings_at=None, next_slot=None, queued=None, live=0, forget_at=turn.now + FORGET_MS)
    turn.book.put_timer(turn.now + FORGET_MS, FORGET, one.name)
    one.save(turn)


@dataclass(frozen=True, slots=True)
class Triggered:
    """An occurrence that was asked for by hand."""

    name: str
    slot: int
    job_id: str | None
    created: bool


async def trigger(turn: Turn, name: str, request: str) -> Triggered:
    """One now, paused or not, whatever is live. The same request gives the same occurrence."""
    one = await _one(turn, name, None)
    key = trigger_key(name, request)
    row = read(turn, TriggerRow, key, await turn.book.storage.get_many([key]))
    if row is not None:
        return Triggered(name, row.slot, row.job_id, False)
    job_id = triggered_id(name, request)
    known = await know(turn, [(one, [], [job_id])])
    if job_id in known.taken:
        raise ConflictError(f"the id of this occurrence, {job_id}, is held by another job: use another request key")
    if (refused := over_quota(turn)) is not None:
        raise refused
    slot = turn.now
    start(turn, one, job_id, slot, SlotRow("fired", slot, slot, request=request), known, late=False)
    turn.book.storage.put(key, encode(TriggerRow(slot, job_id)))
    one.save(turn)
    return Triggered(name, slot, job_id, True)


# ---- Forgetting ----------------------------------------------------------------------------------

FORGOTTEN_AT_ONCE: Final = 500


async def forget(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """The history of schedules that were deleted 30 days ago, a page a turn."""
    for ms, name in due:
        key = cursor_key(name)
        cursor = read(turn, CursorRow, key, await turn.book.storage.get_many([key]))
        if cursor is None or cursor.forget_at is None or cursor.forget_at > ms:
            continue
        more = False
        for prefix in (slot_key(name, 0)[:-15], trigger_key(name, "")):
            rows = await turn.book.storage.scan(prefix, prefix[:-1] + b"0", limit=FORGOTTEN_AT_ONCE)
            for row_key, _ in rows:
                turn.book.storage.delete(row_key)
            more = more or len(rows) == FORGOTTEN_AT_ONCE
        if more:
            turn.book.put_timer(turn.now, FORGET, name)
        else:
            turn.book.storage.delete(key)
