"""The audit log: a row for each action of an operator, committed with what the action changed."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.crockford import ms_of
from tocsin.actors.scheduler.model.rows import DAY_MS, Row

AUDIT: Final = "audit"
"""The kind of the timers that drop whole days, and the first part of the keys."""
AUDIT_MS: Final = 90 * DAY_MS
"""How long the log is kept, by whole days."""


class AuditRow(Row, frozen=True, array_like=True, tag=1):
    """`audit/<day>/<id>`: what was done, by whom, when, and how much it changed. Holds no args and no secrets."""

    at: int
    action: str
    """The name of the method, as `authorize` is asked about it."""
    by: AskedBy
    about: str = ""
    """The job, pool, schedule or bulk retry."""
    said: dict[str, str | int | bool] = msgspec.field(default_factory=dict)
    """The filters of a bulk action; what was set."""
    matched: int | None = None
    changed: int = 1
    undoes: str = ""
    undone_by: str = ""
    undo_until: int = 0
    """Until when it can be undone; 0: not at all."""


class Act(msgspec.Struct, frozen=True, array_like=True):
    """An action that takes several turns: its id and its row of the log, to which each turn adds what it changed."""

    id: str
    row: AuditRow


def audit_key(action_id: str) -> bytes:
    """Return the key of a row; its day is that in which the id was minted."""
    return b"audit/%06d/%b" % (ms_of(action_id) // DAY_MS, action_id.encode())


def audit_day(day: int) -> bytes:
    """Return the prefix of everything that was done on one day."""
    return b"audit/%06d/" % day
