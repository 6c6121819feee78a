"""A job that was asked for and found valid, on its way to the turn that accepts it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.rows import JobRow


class NewJob(msgspec.Struct, frozen=True):
    """A validated job to accept. Its incarnation is given in the turn, unless a process that does not hold the store
    has given it one, by which it can be found again."""

    job: JobRow
    rest_of_args: Sequence[bytes] = ()
    chosen: bool = False
    """The caller chose the id, so it may be taken."""
    on_conflict: str = "error"
    relative: bool = False
    """True if it was asked for after a delay, which counts from `enqueued_at`."""
    parked_as: str = ""
    """The id of the dead letter that keeps it where its own id is taken, or the quota used up: for jobs that come from
    a transaction which is over, so that nobody is there to be told. Empty: the caller is told."""
    debounce: tuple[int, int | None] | None = None
    """For how many ms each call of its id puts it off, and how far from the first call at most (None: without end)."""
    throttle: tuple[int, bool] | None = None
    """For how many ms no further job of its id is accepted; True: further calls are merged into one, not refused."""

    @property
    def folds(self) -> bool:
        """Return whether it takes the place of an earlier call of its id that has not run."""
        return self.debounce is not None or (self.throttle is not None and self.throttle[1])

    group: NewGroup | None = None
    """The group that it makes, if there is none of that name."""

    @property
    def size(self) -> int:
        """Return about how many bytes its rows take."""
        job = self.job
        token, user = job.initiator
        names = (
            len(job.id)
            + len(job.function_path or job.target)
            + len(job.pool)
            + len(job.shard_key or "")
            + len(token)
            + len(user)
        )
        names += sum(map(len, job.chained)) if job.chained else 0
        labels = sum(len(label) + 3 for label in job.labels) if job.labels else 0
        return len(job.args) + sum(map(len, self.rest_of_args)) + 4 * names + labels + 400

    @property
    def is_plain(self) -> bool:
        """Return whether the job has a row and a place in line, and nothing else is to be written for it, but for what
        is counted."""
        job = self.job
        return not (
            self.rest_of_args or job.labels or job.chained or job.expires_at is not None
            or job.max_concurrency is not None or job.extras is not None
            or self.debounce is not None or self.throttle is not None
        )  # fmt: skip
