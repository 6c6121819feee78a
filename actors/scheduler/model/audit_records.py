"""Records of the audit log, for callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tocsin.actors.scheduler.model.outcomes import Value
from tocsin.actors.scheduler.model.records import By


class AuditEntry(Value, frozen=True, rename="camel", omit_defaults=True):
    """An action of an operator: when (epoch ms), what (the name of the method), by whom, and how much it changed.

    `about` is the job, the pool, the schedule or the bulk retry; `given` the filters of a bulk action, or what was set.
    `matched`: how many jobs a bulk action fitted. `undo_until`: until when it can be undone. `undone_by` and `undoes`
    are the ids of the actions that undid it, and that it undid.
    """

    id: str
    at: int
    action: str
    by: By
    changed: int
    about: str | None = None
    given: Mapping[str, Any] = msgspec.field(default_factory=dict)
    matched: int | None = None
    undoes: str | None = None
    undone_by: str | None = None
    undo_until: int | None = None


class AuditPage(Value, frozen=True, rename="camel", omit_defaults=True):
    """A page of the audit log, the newest action first; `cursor` asks for the next one."""

    actions: Sequence[AuditEntry]
    truncated: bool
    cursor: str | None = None


class Undone(Value, frozen=True, rename="camel", omit_defaults=True):
    """The outcome of an undo: how many things the action had done, how many were put back, and why others were not.

    `skipped` counts by reason: `running` (when it was cancelled), `id_taken` by another job, `started` since, `gone`,
    or `changed` since. An undo is an action itself: `action_id` undoes it, until `undo_until`.
    """

    action_id: str
    undoes: str
    matched: int
    restored: int
    skipped: Mapping[str, int] = msgspec.field(default_factory=dict)
    undo_until: int | None = None


class DeadGroup(Value, frozen=True, rename="camel", omit_defaults=True):
    """Dead letters of one reason and one path: how many, when the first and the last of them were parked (epoch ms),
    and of the last its id and how its last attempt ended."""

    reason: str
    path: str
    count: int
    oldest: int
    newest: int
    sample: str
    last_error: str | None = None
    last_status: int | None = None


class DeadGroups(Value, frozen=True, rename="camel", omit_defaults=True):
    """Dead letters by reason and path, the largest group first. `truncated`: there are more than were looked at, the
    newest ones, or more groups."""

    groups: Sequence[DeadGroup]
    truncated: bool
