"""How long calls took and how they ended, as the history of a store tells; the model of a rehearsal draws from it."""

from __future__ import annotations

import re
from random import Random
from typing import Final, NamedTuple

from tocsin.actors.scheduler.model.rows import HistRow, JobRow
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow, occurrence_id

FEW: Final = 5
"""From fewer attempts of a path nothing is drawn: those of its pool are taken, or all."""
TELLING: Final = frozenset({"done", "failed", "dead", "declined", "busy", "unknown", "returned"})
"""Outcomes that receivers and workers decide, by what they answer or by their silence. The others tell of hosts, of the
network, and of who cancelled."""
WAIT: Final = re.compile(r"retry after ([0-9]+) ms")


class Ended(NamedTuple):
    """How one attempt ended."""

    outcome: str = "done"
    took_ms: int = 0
    status: int | None = None
    wait_ms: int = 0
    """Of a busy answer: what its Retry-After said."""


class History:
    """Attempts of the past, by path and by pool. Where it knows nothing, calls take `call_ms` and succeed."""

    def __init__(self, call_ms: int) -> None:
        self.unknown = Ended(took_ms=call_ms)
        self.attempts = 0
        self.everything: list[Ended] = []
        self.by_path: dict[str, list[Ended]] = {}
        self.by_pool: dict[str, list[Ended]] = {}

    def note(self, row: HistRow, ran: tuple[str, str]) -> None:
        """Note one attempt of this path, in this pool; "" for what is not known."""
        if row.outcome not in TELLING:
            return
        said = WAIT.search(row.message or "") if row.outcome == "busy" else None
        ended = Ended(row.outcome, max(row.ended - row.started, 0), row.status, int(said[1]) if said else 0)
        self.attempts += 1
        self.everything.append(ended)
        path, pool = ran
        if path:
            self.by_path.setdefault(path, []).append(ended)
        if pool:
            self.by_pool.setdefault(pool, []).append(ended)

    def draw(self, path: str, pool: str, random: Random) -> Ended:
        """Draw an attempt of this path; where it has few, one of this pool, and then of all."""
        known = [self.by_path.get(path, ()), self.by_pool.get(pool, ()), self.everything]
        for attempts in known:
            if len(attempts) >= FEW:
                return random.choice(attempts)
        return next((random.choice(attempts) for attempts in known if attempts), self.unknown)


class Ran:
    """Paths and pools, for rows of history from before these told it: as far as other rows still say."""

    def __init__(self) -> None:
        self._by_id: dict[str, tuple[str, str]] = {}
        self._by_schedule: dict[str, tuple[str, str]] = {}

    def note_job(self, job: JobRow) -> None:
        self._by_id[job.id] = (job.target, job.pool)

    def note_schedule(self, name: str, row: DefinitionRow) -> None:
        self._by_schedule[_schedule_in(occurrence_id(name, 0))] = (row.function_path or row.workflow or "", row.pool)

    def of(self, job_id: str, row: HistRow) -> tuple[str, str]:
        """Return path and pool; "" for what nobody says."""
        if row.ran[0]:
            return row.ran
        return self._by_id.get(job_id) or self._by_schedule.get(_schedule_in(job_id), ("", ""))


def _schedule_in(job_id: str) -> str:
    """Return the part of an occurrence's id that stands for its schedule."""
    return job_id.rpartition("-")[2] if job_id.startswith("cron-") else ""
