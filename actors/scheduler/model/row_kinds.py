"""Any row by its key: of which family it is, the names in its key, and whether it can be read at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tocsin.actors.scheduler.model import rows
from tocsin.actors.scheduler.model.acts import ActRow, TrashRow
from tocsin.actors.scheduler.model.audit import AuditRow
from tocsin.actors.scheduler.model.backfill_rows import BackfillRow
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.flow_rows import PoolFlow, QueueRow
from tocsin.actors.scheduler.model.groups import GroupJobsRow, GroupRow
from tocsin.actors.scheduler.model.later_rows import LaterRow, ThrottleRow
from tocsin.actors.scheduler.model.moving import META_IMPORT, ImportRow
from tocsin.actors.scheduler.model.rate_rows import RateRow
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow, SlotRow, TriggerRow

NAME: Final = r"([!-.0-~]+)"
ANY: Final = r"([!-.0-~]*)"
MS: Final = r"([0-9]{15})"
DAY: Final = r"([0-9]{6})"
BAD: Final = b"bad/"
LAST_DAY: Final = 999_999
MOST_PIECES: Final = 99
"""Of args: far more than the limit of args asks for, and what their keys can count."""

FAMILIES: Final[dict[bytes, tuple[str, Any]]] = {
    b"act": (NAME, ActRow),
    b"args": (NAME + r"/([0-9]{2,})", None),
    b"at": (NAME, rows.AtRow),
    b"audit": (DAY + "/" + NAME, AuditRow),
    b"dead": (NAME, rows.DeadRow),
    b"deadlabel": (NAME + "/" + MS + "/" + NAME, rows.ParkedRow),
    b"paths": (r"(?s)(.+)", None),
    b"group": (NAME, GroupRow),
    b"groupjobs": (NAME, GroupJobsRow),
    b"hist": (DAY + "/" + NAME + "/" + NAME + "/" + NAME, rows.HistRow),
    b"idem": (DAY + "/" + NAME, rows.IdemRow),
    b"job": (NAME, rows.JobRow),
    b"label": (NAME + "/" + NAME, None),
    b"later": (NAME, LaterRow),
    b"laterargs": (NAME + r"/([0-9]{2,})", None),
    b"lease": (NAME + "/" + NAME, rows.LeaseRow),
    b"line": (ANY + "/" + ANY + "/([0-9]{2})/" + MS + "/" + NAME, None),
    b"lines": (ANY + "/" + ANY, rows.LinesRow),
    b"member": (NAME + "/" + NAME, None),
    b"parked": (MS + "/" + NAME, rows.ParkedRow),
    b"pool": (NAME, rows.PoolRow),
    b"queue": (NAME, QueueRow),
    b"rate": (NAME, RateRow),
    b"redrive": (NAME, rows.RedriveRow),
    b"result": (NAME, rows.ResultRow),
    b"throttle": (NAME, ThrottleRow),
    b"timer": (MS + "/" + NAME + "/" + ANY, None),
    b"backfill": (NAME + "/" + NAME, BackfillRow),
    b"cron": (NAME, DefinitionRow),
    b"cronargs": (NAME + r"/([0-9]{2,})", None),
    b"cronat": (NAME, CursorRow),
    b"slot": (NAME + "/" + MS + r"((?:\+[0-9a-z]+)?)", SlotRow),
    b"trash": (NAME + "/" + NAME, TrashRow),
    b"trashargs": (NAME + "/" + NAME + r"/([0-9]{2,})", None),
    b"trigger": (NAME + "/" + NAME, TriggerRow),
}
"""The parts of the key behind the family, and the kind of the value (None: bytes of their own, or none)."""
SINGLE: Final[dict[bytes, Any]] = {
    b"instance": rows.InstanceRow,
    rows.META_COUNTERS: Counters,
    CLOCK: ClockRow,
    META_IMPORT: ImportRow,
}
_READERS: Final = {family: (re.compile(pattern).fullmatch, kind) for family, (pattern, kind) in FAMILIES.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """A row that can be read. `names` are the parts of its key behind the family."""

    family: bytes
    names: tuple[str, ...]
    row: Any = None


def read_row(key: bytes, value: bytes) -> Shape | None:
    """Read a row of any family; None for a row of no family of ours (`meta/layout` and `bad/` among them). BadRow if
    it cannot be read."""
    if key in SINGLE:
        return Shape(key, (), rows.decode(SINGLE[key], key, value))
    family, slash, rest = key.partition(b"/")
    if not slash or family not in _READERS:
        return None
    fits, kind = _READERS[family]
    match = fits(rest.decode("latin-1"))  # what is no ASCII fits nowhere
    if match is None:
        raise rows.BadRow(key, "its key has another shape")
    if family == b"paths" and not value.isdigit():
        raise rows.BadRow(key, "it holds no count")
    if family == b"label" and not _INSTANT(value):
        raise rows.BadRow(key, "it holds no instant")
    shape = Shape(family, match.groups(), None if kind is None else rows.decode(kind, key, value))
    if family in _CONTRADICTIONS and (fault := _contradiction(shape)) is not None:
        raise rows.BadRow(key, fault)
    return shape


_CONTRADICTIONS: Final = (
    b"job",
    b"later",
    b"pool",
    b"queue",
    b"throttle",
    b"line",
    b"at",
    b"audit",
    b"dead",
    b"redrive",
    b"hist",
    b"idem",
)
_INSTANT: Final = re.compile(rb"[0-9]{15}").fullmatch
_NAME: Final = re.compile(ANY).fullmatch


def _contradiction(shape: Shape) -> str | None:
    """Find what no program of ours can have written: key and value that differ, values that no key can hold."""
    row = shape.row.job if isinstance(shape.row, LaterRow) else shape.row
    if isinstance(row, rows.JobRow):
        if row.id != shape.names[0]:
            return f"it holds job {row.id!r}"
        if not (-9 <= row.priority <= 9 and 0 <= row.args_rows <= MOST_PIECES and _NAME(row.pool) and _NAME(row.queue)):
            return "it has a priority, a pool or a number of pieces of args that no job can have"
    if shape.family == b"line" and int(shape.names[2]) > 18:
        return f"there is no priority {9 - int(shape.names[2])}"
    flow = row.flow if isinstance(row, rows.PoolRow) else row
    if isinstance(flow, (PoolFlow, QueueRow)) and min((flow.weights or {"": 1}).values(), default=1) < 1:
        return "a shard key has no turns in it, and would never start"
    if (day := day_of(row)) is not None and not 0 <= day <= LAST_DAY:
        return f"{day} is no day that a key can hold"
    for ms in _instants(row):
        if not 0 <= ms <= rows.LARGEST_MS:
            return f"{ms} is no instant that a key can hold"
    return None


def _instants(row: Any) -> list[int]:
    """Yield the instants from which keys are made."""
    if isinstance(row, rows.JobRow):
        return [row.scheduled_for, row.expires_at or 0]
    if isinstance(row, rows.DeadRow):
        return [row.parked_at, row.retire_at or 0, row.at.next_at]
    if isinstance(row, ThrottleRow):
        return [row.until, row.at]
    return [row.next_at] if isinstance(row, (rows.AtRow, rows.RedriveRow)) else []


def day_of(row: Any) -> int | None:
    """Return the day under which a row of history, or an answer, belongs."""
    if isinstance(row, rows.HistRow):
        return row.ended // rows.DAY_MS
    return row.at // rows.DAY_MS if isinstance(row, (AuditRow, rows.IdemRow)) else None
