"""Name the row of a job's place in its line."""

from __future__ import annotations

from tocsin.actors.scheduler.model.rows import AtRow, JobRow, line_key
from tocsin.actors.scheduler.model.suspects import queue_of


def place_of(job: JobRow, at: AtRow | None) -> bytes:
    """Return the key of a waiting job's line row. `at` is the job's own row of its place; None if it has none."""
    at = at or AtRow(job.scheduled_for)
    return line_key(job.pool, queue_of(job, at), job.priority, at.next_at, job.id)
