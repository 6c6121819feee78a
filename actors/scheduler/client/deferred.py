"""`Scheduler.deferred()`: ids at once, the jobs together at the end of a block, none of them if it fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Self, Unpack

from tocsin.actors.scheduler.client.job_checks import Job, JobOptions
from tocsin.actors.scheduler.client.port import JobsPort
from tocsin.actors.scheduler.client.submitting import submit_all
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.state.path_counts import paths_of
from tocsin.dispatch.values import LEFT_OUT
from tocsin.errors import InvalidInputError, NotAllAcceptedError, PayloadTooLargeError, TocsinError


class Deferred:
    """Jobs of one `async with` block. At its end they are submitted in one commit; if it raises, or is cancelled, none.

    Leaving the block raises NotAllAcceptedError if jobs were refused (an id was taken, a quota used up): those that
    were accepted stay, and it names both. What the host or its store raises then (OverloadedError, StoreError, ...)
    means what it means for `submit_many`: nothing was stored, but for ActorBrokenError, and for a cancelled exit, after
    which all are there or none.
    """

    def __init__(self, check: Callable[[Job], NewJob], port: JobsPort) -> None:
        self._check, self._port = check, port
        self._jobs: list[NewJob] = []
        self._bytes = 0
        self._paths: set[str] = set()
        self._open = False

    def run_at(
        self,
        at: datetime | int,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Add a job due at an instant; its id. Arguments, and errors for wrong ones, as for `Scheduler.run_at`.

        InvalidInputError for more than 1,000 jobs in a block, PayloadTooLargeError for more than fits one commit;
        the block may go on without that job.
        """
        return self._add(Job(path=path, args=args, at=at, workflow=workflow, options=options))

    def run_after(
        self,
        delay: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Add a job due after a delay, counted from this call; its id. The rest as `run_at`."""
        arguments.duration_ms(delay, "delay")  # refused by the name it has here
        return self._add(Job(path=path, args=args, after=delay, workflow=workflow, options=options))

    def run_debounced(
        self,
        debounce: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Add a call that puts off the job of its id, counted from the end of the block; its id. See
        `Scheduler.run_debounced`."""
        return self._add(Job(path=path, args=args, debounce=debounce, workflow=workflow, options=options))

    def _add(self, job: Job) -> str:
        if not self._open:
            raise InvalidInputError("this block has ended, or not begun: jobs are taken inside `async with` only")
        new = self._check(job)
        if len(self._jobs) == arguments.MAX_BATCH:
            raise InvalidInputError(f"at most {arguments.MAX_BATCH} jobs in one block: this one would be one more")
        if self._bytes + new.size > arguments.MAX_BATCH_BYTES:
            raise PayloadTooLargeError(
                f"with this job the block would be {self._bytes + new.size} bytes, at most "
                f"{arguments.MAX_BATCH_BYTES} fit one commit: begin another block",
                limit=arguments.MAX_BATCH_BYTES,
            )
        more = paths_of(new.job) - self._paths
        paths = len(self._paths) + len(more)
        if paths > arguments.MAX_BATCH_PATHS:
            raise PayloadTooLargeError(
                f"with this job, and what is to follow it, the block would have {paths} different function paths, "
                f"at most {arguments.MAX_BATCH_PATHS} fit one commit: begin another block",
                limit=arguments.MAX_BATCH_PATHS,
            )
        self._paths |= more
        self._jobs.append(new)
        self._bytes += new.size
        return new.job.id

    async def __aenter__(self) -> Self:
        if self._open:
            raise InvalidInputError("this block has begun already: call deferred() for another one")
        self._open = True
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        jobs, self._jobs, self._bytes, self._open = self._jobs, [], 0, False
        self._paths = set()
        if error is not None or not jobs:
            return
        answers = await submit_all(self._port, jobs)
        ids = [job.job.id for job in jobs]
        refused = [(id, one) for id, one in zip(ids, answers, strict=True) if isinstance(one, TocsinError)]
        if refused:
            accepted = [id for id, one in zip(ids, answers, strict=True) if not isinstance(one, TocsinError)]
            raise NotAllAcceptedError(accepted, refused)
