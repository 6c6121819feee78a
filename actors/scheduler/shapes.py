"""Any row by its key: of which family it is, the names in its key, and whether it can be read at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tocsin.actors.scheduler.rows import (
    DAY_MS,
    META_COUNTERS,
    AtRow,
    BadRow,
    Counters,
    DeadRow,
    HistRow,
    IdemRow,
    InstanceRow,
    JobRow,
    LeaseRow,
    LinesRow,
    ParkedRow,
    PoolRow,
    RedriveRow,
    decode,
)

NAME: Final = rb"([!-.0-~]+)"
ANY: Final = rb"([!-.0-~]*)"
MS: Final = rb"(\d{15})"
DAY: Final = rb"(\d{6})"
BAD: Final = b"bad/"

FAMILIES: Final[dict[bytes, tuple[bytes, Any]]] = {
    b"args": (NAME + rb"/(\d{2,})", None),
    b"at": (NAME, AtRow),
    b"dead": (NAME, DeadRow),
    b"hist": (DAY + b"/" + NAME + b"/" + NAME + b"/" + NAME, HistRow),
    b"idem": (DAY + b"/" + NAME, IdemRow),
    b"job": (NAME, JobRow),
    b"lease": (NAME + b"/" + NAME, LeaseRow),
    b"line": (ANY + b"/" + ANY + rb"/(\d\d)/" + MS + b"/" + NAME, None),
    b"lines": (ANY + b"/" + ANY, LinesRow),
    b"parked": (MS + b"/" + NAME, ParkedRow),
    b"pool": (NAME, PoolRow),
    b"redrive": (NAME, RedriveRow),
    b"timer": (MS + b"/" + NAME + b"/" + NAME, None),
}
"""What follows the family in the key, and the kind of the value (None: bytes of their own, or none)."""
SINGLE: Final[dict[bytes, Any]] = {b"instance": InstanceRow, META_COUNTERS: Counters}
_KEYS: Final = {family: re.compile(pattern) for family, (pattern, _) in FAMILIES.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """A row that can be read. `names` are the parts of its key behind the family."""

    family: bytes
    names: tuple[str, ...]
    row: Any = None


def read_row(key: bytes, value: bytes) -> Shape | None:
    """None for a row of no family of ours (`meta/layout` and `bad/` among them). BadRow if it cannot be read."""
    if key in SINGLE:
        return Shape(key, (), decode(SINGLE[key], key, value))
    family, slash, rest = key.partition(b"/")
    if not slash or family not in FAMILIES:
        return None
    match = _KEYS[family].fullmatch(rest)
    if match is None:
        raise BadRow(key, "its key has another shape")
    kind = FAMILIES[family][1]
    row = None if kind is None else decode(kind, key, value)
    shape = Shape(family, tuple(part.decode() for part in match.groups()), row)
    if (fault := _contradiction(shape)) is not None:
        raise BadRow(key, fault)
    return shape


def _contradiction(shape: Shape) -> str | None:
    """Where key and value say different things that nothing else can decide."""
    if isinstance(shape.row, JobRow) and shape.row.id != shape.names[0]:
        return f"it holds job {shape.row.id!r}"
    if shape.family == b"line" and int(shape.names[2]) > 18:
        return f"there is no priority {9 - int(shape.names[2])}"
    return None


def day_of(row: Any) -> int | None:
    """The day under which a row of history, or an answer, belongs."""
    if isinstance(row, HistRow):
        return row.ended // DAY_MS
    return row.at // DAY_MS if isinstance(row, IdemRow) else None
