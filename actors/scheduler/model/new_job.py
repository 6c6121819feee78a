"""A job that was asked for and found valid, on its way to the turn that accepts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.dispatch.job_options import HandlerMembers

_shown: Final = attrgetter(*HandlerMembers.__struct_fields__)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A validated job to accept. Its incarnation is given in the turn."""

    job: JobRow
    rest_of_args: Sequence[bytes] = field(default=())
    chosen: bool = False
    """The caller chose the id, so it may be taken."""
    on_conflict: str = "error"

    @property
    def size(self) -> int:
        """Return about how many bytes its rows take."""
        job = self.job
        texts = (*job.chained, job.id, job.function_path, job.workflow, *job.initiator, *_shown(job))
        names = sum(len(text) for text in texts if isinstance(text, str))
        labels = sum(len(label) + 3 for label in job.labels)
        return len(job.args) + sum(map(len, self.rest_of_args)) + 4 * names + labels + 400
