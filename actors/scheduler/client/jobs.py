"""Jobs that are accepted: checked from wire values, and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tocsin.actors.scheduler.client.instance import Instance
from tocsin.actors.scheduler.client.job_checks import JobChecks
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.transitions.events import Submit, SubmitOnce
from tocsin.actors.scheduler.transitions.idempotency import Kept, Once, answered
from tocsin.errors import PayloadTooLargeError, StoreFull, TocsinError


class JobsPort:
    """Accepts jobs of one scheduler."""

    def __init__(self, instance: Instance, checks: JobChecks) -> None:
        self._instance, self._checks = instance, checks

    def new_job(
        self,
        *,
        function_path: str | None,
        workflow: str | None,
        raw_args: bytes,
        scheduled_for: int | None,
        delay_ms: int | None,
        options: Mapping[str, Any],
        initiator: tuple[str, str] = ("", ""),
    ) -> NewJob:
        """Check a job. `initiator` (token, user) asks for it; `options` may name another user."""
        now = self._instance.now_ms()
        due, args = self._checks.wire_due(scheduled_for, delay_ms, now), arguments.raw_args(raw_args)
        return self._checks.new_job(function_path, workflow, args, due, options, now=now, initiator=initiator)

    def follower(
        self, *, function_path: str | None, workflow: str | None, raw_args: bytes, delay_ms: int,
        options: Mapping[str, Any],
    ) -> Follower:  # fmt: skip
        """Check a job of a `then`."""
        return self._checks.follower(function_path, workflow, arguments.raw_args(raw_args), delay_ms, options)

    async def answered(self, once: Once) -> bool:
        """Tell whether a request with this Idempotency-Key may have had its answer already."""
        return await answered(self._instance.view(), once, self._instance.now_ms())

    async def submit(self, job: NewJob) -> Scheduled:
        """Store one checked job."""
        self._check_space()
        answer = (await self._instance.host.call(self._instance.id, Submit([job])))[0]
        if isinstance(answer, TocsinError):
            raise answer
        return answer

    async def submit_once(self, jobs: Sequence[NewJob], once: Once) -> Kept:
        """Store jobs once for an Idempotency-Key. The status and body of its one answer."""
        if self._instance.host.provider.trouble is None or not await self.answered(once):
            self._check_space()
        _check_size(jobs)
        answer = await self._instance.service.renderers.ask(
            once.render, lambda number: self._instance.call(SubmitOnce(jobs, once.key, once.body, number))
        )
        if isinstance(answer, TocsinError):
            raise answer
        return answer

    async def submit_checked(self, jobs: Sequence[NewJob | TocsinError]) -> list[Scheduled | TocsinError]:
        """Store those that passed their checks; errors stay where they stand."""
        self._check_space()
        good = [job for job in jobs if isinstance(job, NewJob)]
        _check_size(good)
        answers = await self._instance.call(Submit(good)) if good else []
        stored = iter(answers)
        return [next(stored) if isinstance(job, NewJob) else job for job in jobs]

    def _check_space(self) -> None:
        if (trouble := self._instance.host.provider.trouble) is None:
            return
        if isinstance(trouble, StoreFull):
            raise StoreFull(f"{trouble.message}; what is under way goes on")
        raise type(trouble)(trouble.message, **trouble.details)


def _check_size(jobs: Sequence[NewJob]) -> None:
    size = labels = 0
    paths: set[str] = set()
    for new in jobs:
        job = new.job
        size += new.size
        labels += len(job.labels)
        paths.add(job.function_path or job.target)
        if job.chained:
            paths.update(job.chained)
    if size > arguments.MAX_BATCH_BYTES:
        raise PayloadTooLargeError(
            f"these jobs are {size} bytes, at most {arguments.MAX_BATCH_BYTES} fit one call: send them in parts",
            limit=arguments.MAX_BATCH_BYTES,
        )
    if labels > arguments.MAX_BATCH_LABELS:
        raise PayloadTooLargeError(
            f"these jobs have {labels} labels together, at most {arguments.MAX_BATCH_LABELS} fit one call: "
            "send them in parts",
            limit=arguments.MAX_BATCH_LABELS,
        )
    if len(paths) > arguments.MAX_BATCH_PATHS:
        raise PayloadTooLargeError(
            f"these jobs, and what is to follow them, have {len(paths)} different function paths, at most "
            f"{arguments.MAX_BATCH_PATHS} fit one call: send them in parts",
            limit=arguments.MAX_BATCH_PATHS,
        )
