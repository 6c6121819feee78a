"""Several jobs at once, as callers give them and read the answers: one answer each, in order."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.client.port import JobsPort
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.errors import TocsinError


async def submit_all(port: JobsPort, jobs: Sequence[NewJob]) -> list[Scheduled | TocsinError]:
    """Submit checked jobs in one commit."""
    answers = await port.submit_many(jobs)
    if not answers.refused:
        return list(answers.accepted)
    accepted, refused = iter(answers.accepted), answers.refused
    return [refused[place].error() if place in refused else next(accepted) for place in range(len(jobs))]


async def submit_checked(port: JobsPort, jobs: Sequence[NewJob | TocsinError]) -> list[Scheduled | TocsinError]:
    """Submit those that passed their checks; errors stay where they stand."""
    answers = iter(await submit_all(port, [job for job in jobs if isinstance(job, NewJob)]))
    return [next(answers) if isinstance(job, NewJob) else job for job in jobs]
