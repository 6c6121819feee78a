"""Records of schedules for callers: plain values, camelCase in JSON. Instants are epoch ms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import msgspec

from tocsin.actors.scheduler.model.damage import json_fault, pieces_fault
from tocsin.actors.scheduler.model.followers import with_ids
from tocsin.actors.scheduler.model.job_record import following
from tocsin.actors.scheduler.model.records import By, Following, Initiator, Value, given_args, initiator_of, pause_of
from tocsin.actors.scheduler.model.rows import BadRow
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow, jitter_of
from tocsin.dispatch.job_options import RecordMembers, record_options
from tocsin.dispatch.plain import Plain
from tocsin.dispatch.pulled import raw_member


class _Standing(RecordMembers, frozen=True, rename=raw_member, omit_defaults=True):
    """Which schedule a record is of, and how that stands: what is before its options."""

    name: str
    revision: int
    state: str
    next_at: int | None
    paused: bool
    live: int
    created_at: int
    timezone: str
    cron: str | None = None
    every_ms: int | None = None
    at: int | None = None
    function_path: str | None = None
    workflow: str | None = None
    raw_args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    args_damaged: bool = False
    """Set if the args were damaged in the store, and are left out; its occurrences die as `damaged`."""


class ScheduleRecord(_Standing, frozen=True, kw_only=True, rename=raw_member, omit_defaults=True):
    """A schedule. `state` is `active`, `paused`, `completed` (no slot comes any more) or `error`, with `error`.

    `next_at` is when its next occurrence is due (the slot and its jitter). `live` counts occurrences whose jobs wait,
    run or retry.
    """

    expires_after_ms: int | None = None
    misfire: str
    grace_ms: int
    catch_up_limit: int | None
    overlap: str
    jitter_ms: int = 0
    owner: str | None = None
    orphaned: bool = False
    held_back: int | None = None
    """The slot that waits for the live one to end: with `overlap: queue`, or because it stands for missed ones."""
    error: str | None = None
    paused_at: int | None = None
    paused_by: By | None = None
    initiator: Initiator | None = None
    then: Sequence[Following] = ()
    """Jobs chained to each occurrence; ids are given with it."""
    on_dead: Sequence[Following] = ()
    """Jobs that start when an occurrence dies."""

    @property
    def args(self) -> Any:
        """Return the args as the Python values that were given. StoreCorrupt if they were damaged in the store."""
        return given_args(self.raw_args, f"the args of schedule {self.name!r}")


class SchedulePut(Value, frozen=True, kw_only=True, rename="camel"):
    """The answer to a put: the next instants, at most five, are those of the definition as it is now."""

    name: str
    revision: int
    next_at: int | None
    preview: Sequence[int]


class SchedulePage(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A page of schedules by name."""

    schedules: Sequence[ScheduleRecord]
    truncated: bool
    cursor: str | None = None


class Occurrence(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The outcome of a slot, or with `until` of a run of `count` slots (left out where they were not counted).

    `state`: `fired`, `skipped` (with `reason`), `coalesced`, `expired`, `cancelled`, `dead`, or `queued` while it waits
    for a live one. `live`: its job waits, runs or retries. `lateness_ms`: how long after it was due that was decided;
    of a run, its newest slot.
    """

    slot: int
    state: str
    due: int
    decided_at: int
    lateness_ms: int
    job_id: str | None = None
    live: bool = False
    reason: str | None = None
    until: int | None = None
    count: int | None = None
    first_slot: int | None = None
    coalesced: int | None = None
    triggered: bool = False
    backfill_id: str | None = None
    """The backfill that started it."""


class OccurrencePage(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A page of occurrences, the newest first."""

    occurrences: Sequence[Occurrence]
    truncated: bool
    cursor: str | None = None


class TriggeredRun(Value, frozen=True, kw_only=True, rename="camel"):
    """`created` is False when this request key had made the occurrence before."""

    name: str
    slot: int
    id: str
    created: bool


class CronPreview(Value, frozen=True, kw_only=True, rename="camel"):
    """The next instants of an expression, and for each what a change of the clock does to it: a text that starts with
    `DST`, or null."""

    next: Sequence[int]
    notes: Sequence[str | None]


@dataclass(slots=True)
class Registration(Plain):
    """The set of an owner, as it is stored now. The owner's names outside it were `removed` (`prune`) or are
    `orphaned`: kept, and not in the code."""

    schedules: Sequence[SchedulePut]
    orphaned: Sequence[str]
    removed: Sequence[str]
    closed: bool = field(default=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what the HTTP API answers."""
        found = Plain.to_dict(self)  # `super()` finds no class that has slots
        del found["closed"]
        return found

    def close(self) -> None:
        """Stop declaring the set. Nothing is removed: schedules outlive the process that declared them."""
        self.closed = True


def record_of(name: str, row: DefinitionRow, cursor: CursorRow, rest_of_args: Sequence[bytes]) -> ScheduleRecord:
    jitter = jitter_of(name, row.jitter_ms)
    args = row.args + b"".join(rest_of_args)
    paused_at, paused_by = pause_of(cursor.pause)
    damaged = pieces_fault(row.args_rows, args) is not None or json_fault(args) is not None
    return ScheduleRecord(
        name=name,
        revision=cursor.revision,
        state=_state(cursor),
        next_at=None if cursor.paused or cursor.next_slot is None else cursor.next_slot + jitter,
        paused=cursor.paused,
        live=cursor.live,
        created_at=row.created_at,
        cron=row.cron,
        every_ms=row.every_ms,
        at=row.at,
        timezone=row.timezone,
        function_path=row.function_path,
        workflow=row.workflow,
        raw_args=msgspec.UNSET if damaged else msgspec.Raw(args),
        args_damaged=damaged,
        expires_after_ms=row.expires_after_ms,
        misfire=row.misfire,
        grace_ms=row.grace_ms,
        catch_up_limit=row.catch_up_limit,
        overlap=row.overlap,
        jitter_ms=row.jitter_ms,
        owner=row.owner,
        orphaned=cursor.orphaned,
        held_back=cursor.queued,
        error=cursor.error,
        paused_at=paused_at,
        paused_by=paused_by,
        initiator=initiator_of(row.initiator),
        then=_following(row.then),
        on_dead=_following(row.on_dead),
        **record_options(row),
    )


def _following(stored: bytes) -> Sequence[Following]:
    try:
        return following(with_ids(stored, repeat("")))
    except BadRow:
        return ()  # the next turn that needs the schedule sets its row aside


def _state(cursor: CursorRow) -> str:
    if cursor.error is not None:
        return "error"
    if cursor.paused:
        return "paused"
    return "completed" if cursor.next_slot is None else "active"
