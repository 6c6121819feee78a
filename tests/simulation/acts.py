"""The promises of bulk actions and of undo, watched at the disk, commit by commit.

What an action does is kept in the commit that does it. What is kept goes away only as it is put back, or because its id
is taken, its job has gone on, or its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tocsin.actors.scheduler.model.acts import ActRow, TrashRow
from tocsin.actors.scheduler.model.rows import AtRow, DeadRow, JobRow, at_key, dead_key, decode, job_key
from tocsin.storage.memory import SortedMap

Rows = dict[bytes, bytes | None]
UNDO_MS = 40_000
"""For how long an action can be undone in the simulation."""


@dataclass(slots=True)
class Acts:
    """Notes every broken promise; `hold` fails at the end."""

    maps: dict[str, SortedMap]
    name: str
    on_swept: Callable[[JobRow], None] = lambda _: None
    """A waiting job is about to be cancelled in bulk, or a dead one."""
    on_restored: Callable[[JobRow], None] = lambda _: None
    """It is about to be put back."""
    restored: int = 0
    forgotten: int = 0
    broken: list[str] = field(default_factory=list)

    def must(self, holds: object, what: str) -> None:
        if not holds:
            self.broken.append(what)

    def commit(self, rows: Rows) -> None:
        """About to be applied."""
        before = self.maps.get(self.name) or SortedMap()
        kept = [(key, value) for key, value in rows.items() if key.startswith(b"trash/")]
        # One turn may put a job back and, for another action, cancel it again: it is kept last.
        for key, value in sorted(kept, key=lambda row: row[1] is not None):
            _, action, about = key.decode().split("/")
            old = before.get(key)
            if value is not None and old is None:
                self._kept(before, rows, action, about, decode(TrashRow, key, value))
            elif value is None and old is not None:
                self._let_go(before, rows, action, about, decode(TrashRow, key, old))

    def _kept(self, before: SortedMap, rows: Rows, action: str, about: str, trash: TrashRow) -> None:
        job = _job(before, rows, about)
        if trash.what in ("cancelled", "discarded"):
            assert trash.job is not None
            gone = job is None or job.incarnation != trash.job.incarnation
            self.must(gone, f"{about} is kept as {trash.what} by {action}, and is there")
            self.on_swept(trash.job)
        elif trash.what in ("restored", "letter", "parked", "retried"):
            there = job is not None and job.incarnation == trash.incarnation
            is_dead = _now(before, rows, dead_key(about)) is not None
            over = _ended(rows, about, trash.incarnation)
            self.must(there or over, f"{about} is {trash.what} by {action}, and is not there")
            if trash.what in ("letter", "parked"):
                self.must(is_dead or over, f"{about} is {trash.what} by {action}, and is not dead")
            stood, dead = before.get(at_key(about)), rows.get(dead_key(about))
            if trash.what == "parked" and stood is not None and dead is not None:
                begun = decode(AtRow, b"", stood).attempt != decode(DeadRow, b"", dead).at.attempt
                self.must(not begun, f"{about} is dead again, and has run since it was retried")

    def _let_go(self, before: SortedMap, rows: Rows, action: str, about: str, trash: TrashRow) -> None:
        if trash.what not in ("cancelled", "discarded"):
            return
        assert trash.job is not None
        job = _job(before, rows, about)
        if (job is not None and job.incarnation == trash.job.incarnation) or _ended(rows, about, trash.job.incarnation):
            self.restored += 1
            self.on_restored(trash.job)
            return
        row = before.get(b"act/" + action.encode())
        undone = row is not None and not decode(ActRow, b"", row).rings_at
        taken = job is not None or _ended(rows, about)
        self.must(not undone or taken, f"{about} was to be put back, its id was free, and it is gone")
        if not undone:
            self.forgotten += 1

    def hold(self) -> None:
        assert self.broken == [], self.broken[:3]


def _now(before: SortedMap, rows: Rows, key: bytes) -> bytes | None:
    return rows[key] if key in rows else before.get(key)


def _job(before: SortedMap, rows: Rows, job_id: str) -> JobRow | None:
    value = _now(before, rows, job_key(job_id))
    return None if value is None else decode(JobRow, job_key(job_id), value)


def _ended(rows: Rows, job_id: str, incarnation: str = "") -> bool:
    """Tell whether a job of this id has ended in the very commit."""
    return any(
        value and key.startswith(b"hist/") and f"/{job_id}/{incarnation}".encode() in key for key, value in rows.items()
    )
