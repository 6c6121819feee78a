"""One line of the log for each change of a job, at level DEBUG, once it is on disk; and for what operators change.

Turns only note what they did, and only where somebody reads it (`Turn.changes`); the words are made here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.rows import PULLED, JobRow, LeaseRow
from tocsin.actors.scheduler.schedules.events import (
    DeleteSchedule,
    LeaveSchedules,
    PutSchedules,
    RegisterSchedules,
    SetSchedulePaused,
    StartBackfill,
    StopBackfill,
)
from tocsin.actors.scheduler.state.turn import ACCEPTED, RESTORED, Change
from tocsin.actors.scheduler.transitions import events
from tocsin.actors.scheduler.transitions.job import Cancel, Done, Drop, Expire, Park, Replace, Requeue

log = logging.getLogger("tocsin.scheduler")

WAYS: Final = {
    "accepted": "was taken on by its receiver, which will complete it",
    "unknown": "has no answer yet: it may still run there",
}
"""Words for attempts whose lease is held on, by the kind of their lease."""
Said = tuple[str, Mapping[str, object]]
"""Words, and the fields that go with them."""


def write(instance: str, changes: Sequence[Change]) -> None:
    """Log what one turn has changed."""
    for job, what, attempt in changes:
        if job is None:
            if (words := _operated(what)) and not isinstance(attempt, Exception):
                log.debug("instance %s: %s", instance, words, extra={"instance": instance})
        elif (said := _said(job, what, bool(attempt))) is not None:
            words, fields = said
            log.debug(
                "job %s/%s (%s) %s", instance, job.id, job.target, words,
                extra={**_fields(instance, job, attempt), **fields},
            )  # fmt: skip


def _fields(instance: str, job: JobRow, attempt: object) -> dict[str, object]:
    fields: dict[str, object] = {"instance": instance, "id": job.id, "path": job.target}
    if attempt:
        fields["attempt"] = attempt
    for name, value in (("queue", job.queue), ("pool", job.pool)):
        if value:
            fields[name] = value
    if job.schedule is not None:
        fields["schedule"] = job.schedule.name
    if job.trace is not None:
        fields["trace_id"], fields["span_id"] = job.trace[0][3:35], job.trace[0][36:52]
    return fields


def _said(job: JobRow, what: object, ended: bool) -> Said | None:
    """Say what has become of a job, of which an attempt may have ended; None for what is no change of its state."""
    match what:
        case LeaseRow() if what.kind in WAYS:
            return f"attempt {what.at.attempt} {WAYS[what.kind]}", {"change": what.kind}
        case LeaseRow():
            to = f" by worker {what.host or 'without a name'}" if what.kind == PULLED else ""
            late = max(what.started - what.at.next_at, 0)
            fields: dict[str, object] = {"change": "started", "late_ms": late}
            if what.kind == PULLED:
                fields["worker"] = what.host
            return f"started: attempt {what.at.attempt}{to}, {late} ms after it was due", fields
        case Done():
            return "done", {"change": "done"}
        case Requeue(at):
            last = at.last_error
            if not ended:
                return f"due at {_instant(at.next_at)} now", {"change": "moved", "next_attempt_at": at.next_at}
            fields = {"change": "retry", "next_attempt_at": at.next_at}
            if last is not None and last.status is not None:
                fields["status"] = last.status
            return f"retry at {_instant(at.next_at)}{'' if last is None else f': {last.message}'}", fields
        case Park(reason, at):
            last = at.last_error
            fields = {"change": "dead", "reason": reason}
            if last is not None and last.status is not None:
                fields["status"] = last.status
            return f"dead: {reason}{'' if last is None else f': {last.message}'}", fields
        case Expire():
            return "expired: it waited too long", {"change": "expired"}
        case Cancel():
            return "cancelled", {"change": "cancelled"}
        case Replace():
            return "replaced by a job of its id", {"change": "replaced"}
        case Drop(aged):
            return "dropped from the dead: " + ("too old" if aged else "cancelled"), {"change": "dropped"}
        case _ if what is ACCEPTED:
            due = {"change": "accepted", "due": job.scheduled_for}
            return f"accepted, due at {_instant(job.scheduled_for)}", due
        case _ if what is RESTORED:
            return "put back by an undo", {"change": "restored"}
        case _:
            return None


def _instant(ms: int) -> str:
    """Return an instant in RFC 3339; of one beyond the calendar, the number."""
    try:
        return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def _operated(event: object) -> str | None:
    """Say what an operator, or an app, has changed besides jobs."""
    match event:
        case events.SetInstance(paused, timeout_ms):
            parts = [*_paused(paused), *([] if timeout_ms is None else [f"timeout {timeout_ms} ms"])]
            return ", ".join(parts) or None
        case events.SetPool(name, settings):
            return f"pool {name}: {_of_pool(settings)}"
        case events.SetQueue(name, taken):
            return f"queue {name}: " + ", ".join(f"{one} {value}" for one, value in taken.said().items())
        case events.DeletePool(name):
            return f"pool {name}: deleted"
        case events.OpenGroup(group):
            return f"group {group.name}: opened"
        case events.SealGroup(name):
            return f"group {name}: sealed"
        case events.StopGroup(name):
            return f"group {name}: its members are being cancelled"
        case events.FreeSlot(job_id):
            return f"job {job_id}: its slot was freed"
        case events.StartRedrive(redrive_id, row, _):
            return f"bulk retry {redrive_id}: began, {row.matched} dead jobs at {row.rate} a second"
        case events.StopRedrive(redrive_id):
            return f"bulk retry {redrive_id}: stopped"
        case events.AdvanceClock() | events.SetClock() | events.FreezeClock():
            return "its test clock was set"
        case events.ErasePage():
            return "removed"
        case SetSchedulePaused(name, paused, _):
            return f"schedule {name}: {_paused(paused)[0]}"
        case DeleteSchedule(name, _):
            return f"schedule {name}: deleted"
        case StartBackfill(name, backfill_id, _, _, rate, matched):
            return f"schedule {name}: backfill {backfill_id} began, {matched} slots at {rate} a second"
        case StopBackfill(name, backfill_id):
            return f"schedule {name}: backfill {backfill_id} stopped"
        case PutSchedules(news):
            return f"schedule {_names(news)}: defined"
        case RegisterSchedules(owner, news):
            return f"schedules of {owner}: defined: {_names(news)}"
        case LeaveSchedules(owner, _, _, True, _):
            return f"schedules of {owner}: those that it names no more are removed"
        case _:
            return None


def _paused(paused: bool | None) -> list[str]:
    return [] if paused is None else ["paused" if paused else "resumed"]


def _of_pool(settings: PoolSettings) -> str:
    said = {**settings.said(), "paused": None, "maxConcurrency": None}
    cap = settings.max_concurrency
    parts = [*_paused(settings.paused), *([] if cap is None else [f"cap {cap}"])]
    return ", ".join([*parts, *(f"{name} {value}" for name, value in said.items() if value is not None)])


def _names(news: Sequence[Any]) -> str:
    return ", ".join(new.name for new in news)
