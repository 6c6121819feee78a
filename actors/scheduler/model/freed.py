"""The answer to the freeing of a slot."""

from __future__ import annotations

from tocsin.actors.scheduler.model.records import Value


class Freed(Value, frozen=True, rename="camel", omit_defaults=True):
    """The answer: whether an attempt was given up, of which job and pool, and what became of that job.

    `state`: `retrying` (its next attempt is at `next_attempt_at`, epoch ms), `dead` (for `reason`), `expired`, or
    `cancelled`: the job was gone before, and only its slot was held.
    """

    freed: bool
    id: str | None = None
    pool: str | None = None
    state: str | None = None
    reason: str | None = None
    next_attempt_at: int | None = None
