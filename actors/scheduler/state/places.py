"""Where a job waits, as a key."""

from __future__ import annotations

from tocsin.actors.scheduler.model.rows import AtRow, JobRow, line_key
from tocsin.actors.scheduler.model.suspects import queue_of


def place_of(job: JobRow, at: AtRow | None) -> bytes:
    """The line row of a waiting job; `at` as its row says, None if it has none."""
    at = at or AtRow(job.scheduled_for)
    return line_key(job.pool, queue_of(job, at), job.priority, at.next_at, job.id)
