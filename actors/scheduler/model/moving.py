"""Imports and moves: the row that says from which file an instance was made, and what callers are told."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.records import Value
from tocsin.actors.scheduler.model.rows import InstanceRow, Row
from tocsin.errors import InstanceMovedError

META_IMPORT: Final = b"meta/import"


def rests(row: InstanceRow) -> bool:
    """Return whether nothing of the instance is to start."""
    return row.paused or row.erasing or row.moving is not None


def moved_to(row: InstanceRow) -> str | None:
    """Return the place where the instance is now; None while it is here."""
    return row.moving[1] if row.moving is not None and row.moving[2] else None


def moving_to(row: InstanceRow) -> str | None:
    """Return the place that the instance is about to move to."""
    return row.moving[1] if row.moving is not None and not row.moving[2] else None


def moved(name: str, to: str) -> InstanceMovedError:
    """Return the error that says where an instance is now."""
    return InstanceMovedError(f"instance {name!r} has moved to {to}: use it there", movedTo=to)


class ImportRow(Row, frozen=True, array_like=True, tag=1):
    """`meta/import`: the file that an instance was made of."""

    at: int
    """When the import ended."""
    source: str
    """The instance that was exported."""
    exported_at: int
    rows: int
    sha256: str
    """Of the file, as its last line says."""
    move: str = ""
    """The move that the file was made for, "" for a copy."""


class TransferState(Value, frozen=True, rename="camel", omit_defaults=True):
    """The part that an instance has in an import or a move."""

    exists: bool
    in_flight: int = 0
    """Leases that are held."""
    importing: bool = False
    """True while an import has not ended: nothing of the instance runs."""
    move: str | None = None
    """The move that it leaves by, ..."""
    to: str | None = None
    """... where to, ..."""
    sealed: bool = False
    """... and whether all has ended: nothing of it changes any more."""
    imported: Imported | None = None
    """The file that it was made of."""


class Exported(Value, frozen=True, rename="camel", omit_defaults=True):
    """The file that was written. `jobs`: live and dead ones; `kinds`: rows by kind; `move`: the move it is made for."""

    instance: str
    at: int
    jobs: int
    rows: int
    sha256: str
    kinds: dict[str, int]
    move: str | None = None


class Imported(Value, frozen=True, rename="camel", omit_defaults=True):
    """The instance that was made of a file. `jobs`: live and dead ones."""

    instance: str
    source: str
    exported_at: int
    rows: int
    sha256: str
    move: str | None = None
    jobs: int | None = None
    kinds: dict[str, int] | None = None
    """Rows by kind."""
