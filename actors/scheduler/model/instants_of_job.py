"""When a job is due, and how it is retried, as its rows say."""

from __future__ import annotations

from random import Random

from tocsin.actors.scheduler.model.rows import LARGEST_MS, AtRow, JobRow
from tocsin.dispatch.retry import Retry

DEFAULT_RETRY = Retry()


def indexable(ms: int) -> bool:
    return 0 <= ms <= LARGEST_MS


def due_of(job: JobRow, at: AtRow) -> int:
    """Return the instant for which the job was requested, by its last reschedule if there was one."""
    return job.scheduled_for if at.moved_to is None else at.moved_to


def retry_of(job: JobRow) -> Retry:
    return job.retry or DEFAULT_RETRY


def backoff_ms(job: JobRow, at: AtRow, random: Random) -> int:
    """Draw the delay of the retry that a failure of this attempt would cause."""
    return (job.retry or DEFAULT_RETRY).delay_ms(at.attempts + 1, random)
