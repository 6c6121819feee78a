"""Changes of schedules: put, delete, pause, resume, trigger. Each is one turn; a stale revision changes nothing.

Editing never fires a job: slots that had come before the edit, and were not looked at yet, are recorded as skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model.asked_by import AskedBy, Pause
from tocsin.actors.scheduler.model.rows import DAY_MS, encode
from tocsin.actors.scheduler.model.schedule_rows import (
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
from tocsin.actors.scheduler.schedules import series, slots
from tocsin.actors.scheduler.schedules.allowance import STEPS, Allowance
from tocsin.actors.scheduler.schedules.apply_ends import drop_held
from tocsin.actors.scheduler.schedules.backfill import end_all
from tocsin.actors.scheduler.schedules.fire import know, record_run, start
from tocsin.actors.scheduler.schedules.process_due import stop
from tocsin.actors.scheduler.schedules.recompute import note_zones
from tocsin.actors.scheduler.schedules.schedule import Schedule, Used, args_of, load, read, trim, used_slots
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.actors.scheduler.transitions.submit import over_quota
from tocsin.errors import ConflictError, NotFoundError

log = logging.getLogger("tocsin.scheduler")

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


async def put(turn: Turn, news: Sequence[NewSchedule]) -> tuple[list[Schedule], list[Schedule]]:
    """Make or edit schedules: all of them or, if one revision is stale, none (ConflictError). Return all of them, and
    those that are other than before."""
    found = await load(turn, [new.name for new in news])
    before = {name: one.cursor.revision for name, one in found.items()}
    for new in news:
        _check_revision(new.name, found.get(new.name), new.revision)
    cursors = await turn.state.storage.get_many([cursor_key(new.name) for new in news if new.name not in found])
    old_args = await args_of(turn, list(found.values()))
    used = await used_slots(turn, list(found.values()))
    allowance = Allowance(turn, for_schedules=len(news))
    made: list[Schedule] = []
    for new in news:
        old = found.get(new.name)
        if old is None:
            one = await _create(turn, new, read(turn, CursorRow, cursor_key(new.name), cursors))
        else:
            one = _edit(turn, old, new, old_args[new.name], used, allowance)
            await _pass_held(turn, one)
        await trim(turn, one, allowance)
        one.save(turn)
        made.append(one)
        await allowance.give_way()
    return made, [one for one in made if before.get(one.name) != one.cursor.revision]


def shown(one: Schedule) -> dict[str, str | int | bool]:
    """Return what the audit log says of a definition: its revision and its rule, and what it calls. Args stay out."""
    made = one.definition
    said = {
        "revision": one.cursor.revision, "functionPath": made.function_path, "workflow": made.workflow,
        "cron": made.cron, "everyMs": made.every_ms, "at": made.at, "paused": one.cursor.paused or None,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value is not None}


def _check_revision(name: str, one: Schedule | None, revision: int | None) -> None:
    if revision is None:
        return
    at = 0 if one is None else one.cursor.revision
    if one is None and revision:
        raise ConflictError(
            f"schedule {name!r} is not at revision {revision}: there is none (any more); to make one give revision 0",
            revision=at,
        )
    if revision != at:
        raise ConflictError(
            f"schedule {name!r} is at revision {at}, not {revision}: read it again, and decide on what is there now",
            revision=at,
        )


async def _create(turn: Turn, new: NewSchedule, left: CursorRow | None) -> Schedule:
    """Make a schedule. If it was deleted earlier, its revision goes on, and slots that were used stay used."""
    if not turn.state.occurrences.zones_noted:
        note_zones(turn)
    definition = msgspec.structs.replace(new.definition, uid=turn.incarnation(), created_at=turn.now, anchor=turn.now)
    one = Schedule(new.name, definition, CursorRow(1, turn.now), new=True)
    if left is not None:
        if left.forget_at is not None:
            turn.state.drop_timer(left.forget_at, FORGET, new.name)
        one = Schedule(new.name, definition, left)
        await drop_held(turn, [one], "deleted")  # there is one only if its definition was lost
        last = max(turn.now, left.last)
        one.move(**_EMPTY, revision=left.revision + 1, last=last, live=0, error=None, forget_at=None, orphaned=False)
    one.move(paused=bool(new.paused))
    _write(turn, one, new.rest_of_args)
    at = definition.at
    if at is not None and at <= turn.now and not await turn.state.storage.get(slot_key(new.name, at)):
        one.move(last=at - 1)  # it has come already, and is for the misfire policy
    _aim(one)
    return one


_EMPTY: Final[dict[str, Any]] = {"skip_to": None, "fire_to": None, "run": None}
"""Of a cursor: no backlog."""


def _aim(one: Schedule) -> None:
    """Set the next slot: the first one after its last."""
    one.move(next_slot=series.next_of(one.definition)(one.cursor.last), error=None)
    one.arm(more=one.cursor.skip_to is not None)


def _edit(
    turn: Turn, old: Schedule, new: NewSchedule, old_args: list[bytes], used: Used, allowance: Allowance
) -> Schedule:
    before, jitter = old.definition, old.jitter
    definition = msgspec.structs.replace(
        new.definition,
        uid=before.uid,
        created_at=before.created_at,
        anchor=before.anchor if new.definition.every_ms == before.every_ms else turn.now,
        owner=new.definition.owner or before.owner,
    )
    paused = old.cursor.paused if new.paused is None else new.paused
    same = _asked(definition) == _asked(before) and list(new.rest_of_args) == old_args
    if new.definition.owner is not None:
        old.move(orphaned=False)  # its owner names it
    if same and paused == old.cursor.paused and old.cursor.error is None:
        return old
    old.define(definition)
    old.move(revision=old.cursor.revision + 1)
    if not same:
        for n in range(len(new.rest_of_args), before.args_rows):
            turn.state.storage.delete(definition_args_key(old.name, n))
        _write(turn, old, new.rest_of_args)
    if old.cursor.error is not None or any(getattr(definition, name) != getattr(before, name) for name in _RULE):
        skip_until(turn, old, before, turn.now, "edited", used, allowance)
    elif not same:
        resumed = old.cursor.skip_to  # what passed while it was paused stays passed
        if old.jitter < jitter:  # what would be due at once
            skip_until(turn, old, before, turn.now - old.jitter, "edited", used, allowance)
        else:
            old.move(**_EMPTY)
        old.move(skip_to=resumed)
    if paused != old.cursor.paused:
        _set_paused(turn, old, paused)
    else:
        _aim(old)
    return old


def _asked(definition: DefinitionRow) -> DefinitionRow:
    """Return what was requested, without who requested it."""
    return msgspec.structs.replace(definition, initiator=("", ""))


def _write(turn: Turn, one: Schedule, rest_of_args: Sequence[bytes]) -> None:
    if one.definition.extras is not None:
        turn.state.use_flow()
    turn.state.storage.put(definition_key(one.name), encode(one.definition))
    for n, part in enumerate(rest_of_args):
        turn.state.storage.put(definition_args_key(one.name, n), part)


def skip_until(
    turn: Turn, one: Schedule, definition: DefinitionRow, until: int, reason: str, used: Used, allowance: Allowance
) -> None:
    """End the slots up to this instant that were not decided yet, as one row."""
    until = max(until, one.cursor.fire_to or 0)  # what had come before a step back had come
    if until > one.cursor.last:
        try:
            found = series.unused(series.next_of(definition), used.get(one.name, frozenset()))
            run = slots.missed(found, one.cursor.last, until, allowance.share(STEPS))
        except Exception as error:
            # The rule means nothing here any more: what it would have owed is not known, and a new one comes.
            log.warning("schedule %s: what it owed until now is not known: %r", one.name, error)
        else:
            if run is not None:
                run.reason = "paused" if one.cursor.paused or one.cursor.skip_to is not None else reason
                record_run(turn, one, run)
    one.move(**_EMPTY)
    one.move(last=max(until, one.cursor.last))


# ---- Pause, resume, delete, trigger --------------------------------------------------------------


async def the_one(turn: Turn, name: str, revision: int | None) -> Schedule:
    one = (await load(turn, [name])).get(name)
    if one is None:
        raise NotFoundError(f"there is no schedule {name!r}")
    _check_revision(name, one, revision)
    return one


async def set_paused(turn: Turn, name: str, paused: bool, revision: int | None, by: AskedBy | None = None) -> Schedule:
    """Slots that pass while it is paused are recorded as skipped once it is resumed. One that has stopped for an error
    is tried again."""
    one = await the_one(turn, name, revision)
    if one.cursor.paused != paused or (not paused and one.cursor.error is not None):
        one.move(revision=one.cursor.revision + 1)
        _set_paused(turn, one, paused)
        if paused:
            one.move(pause=Pause(turn.now, by))
        audit.note(turn, by, f"schedules.{'pause' if paused else 'resume'}", name)
        await _pass_held(turn, one)
        one.save(turn)
    return one


async def _pass_held(turn: Turn, one: Schedule) -> None:
    """Let a slot that was held back and was about to start pass, if its schedule is paused."""
    if one.cursor.paused and one.cursor.queued is not None and one.may_start:
        await drop_held(turn, [one], "paused")


def _set_paused(turn: Turn, one: Schedule, paused: bool) -> None:
    if paused:
        one.move(paused=True, rings_at=None, pause=Pause(turn.now))
        return
    cursor = one.cursor
    if cursor.paused:
        one.move(paused=False, pause=None, fire_to=None, skip_to=turn.now if turn.now > cursor.last else None)
    try:
        _aim(one)
        one.move(next_slot=series.next_of(one.definition)(max(turn.now, cursor.last)))
    except Exception as error:
        # As where slots are processed: it is this schedule's fault, and the caller reads it in the record.
        stop(turn, one, error)


async def delete(turn: Turn, name: str, revision: int | None) -> Schedule:
    """Remove the definition. Its occurrences go on, and its history is kept for 30 days."""
    one = await the_one(turn, name, revision)
    await remove(turn, [one])
    return one


async def remove(turn: Turn, schedules: Sequence[Schedule]) -> None:
    await drop_held(turn, schedules, "deleted")
    used = await used_slots(turn, schedules)
    storage, allowance = turn.state.storage, Allowance(turn, for_schedules=len(schedules))
    for one in schedules:
        skip_until(turn, one, one.definition, turn.now, "deleted", used, allowance)
        storage.delete(definition_key(one.name))
        for n in range(one.definition.args_rows):
            storage.delete(definition_args_key(one.name, n))
        await end_all(turn, one, "its schedule was deleted")
        one.move(rings_at=None, next_slot=None, live=0, forget_at=turn.now + FORGET_MS)
        turn.state.put_timer(turn.now + FORGET_MS, FORGET, one.name)
        one.save(turn)
        await allowance.give_way()


@dataclass(frozen=True, slots=True)
class Triggered:
    """An occurrence that was asked for by hand."""

    name: str
    slot: int
    job_id: str | None
    created: bool


async def trigger(turn: Turn, name: str, request: str) -> Triggered:
    """Make an occurrence now, paused or not, whatever is live. The same request gives the same occurrence."""
    one = await the_one(turn, name, None)
    key = trigger_key(name, request)
    row = read(turn, TriggerRow, key, await turn.state.storage.get_many([key]))
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
    turn.state.storage.put(key, encode(TriggerRow(slot, job_id)))
    await trim(turn, one, Allowance(turn))  # a paused one, or one that is over, is never looked at
    one.save(turn)
    return Triggered(name, slot, job_id, True)
