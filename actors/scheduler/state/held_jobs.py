"""Keep the jobs of pulled attempts in memory from the claim to the settlement, so that a settlement reads nothing.

The row of a job never changes: it is written once, and erased when the job ends. What is kept is dropped with the
lease, and with all other memory when a turn or a batch is lost. What does not fit is read.
"""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.state.fronts import ROW_BYTES, Known

BYTES: Final = 512 * 1024
"""How many bytes of jobs one scheduler keeps at most, about; some 700 jobs with short args."""


class HeldJobs:
    """Jobs by the token of the lease under which they run."""

    def __init__(self) -> None:
        self._jobs: dict[str, Known] = {}
        self._size = 0

    def keep(self, token: str, known: Known) -> None:
        """Keep a job that was leased just now, if it fits."""
        size = ROW_BYTES + len(known.job.args)
        if self._size + size <= BYTES:
            self._jobs[token] = known
            self._size += size

    def get(self, token: str) -> Known | None:
        """Return the job, if it is kept. Its place is the one that it had before the claim."""
        return self._jobs.get(token)

    def forget(self, token: str) -> None:
        """Drop the job: the lease is gone, or its job is."""
        if (known := self._jobs.pop(token, None)) is not None:
            self._size -= ROW_BYTES + len(known.job.args)
