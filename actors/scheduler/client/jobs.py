"""Scheduling: `run_at`, `run_after`, `submit_many`, and what the HTTP face needs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tocsin.actors.scheduler.client.chain_requests import Following, Job
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.state.path_counts import paths_of
from tocsin.actors.scheduler.transitions.events import Submit, SubmitOnce
from tocsin.actors.scheduler.transitions.idempotency import Kept, Once, answered
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.values import LEFT_OUT
from tocsin.errors import InvalidInputError, PayloadTooLargeError, StoreFull, TocsinError


class Scheduling(Following):
    """The part of a handle that accepts jobs."""

    async def run_at(
        self,
        at: datetime | int,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        id: str | None = None,
        on_conflict: str = "error",
        pool: str | None = None,
        max_concurrency: int | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        timeout_ms: int | None = None,
        expires_at: datetime | int | None = None,
        shard_key: str | None = None,
        labels: Sequence[str] | None = None,
        queue: str | None = None,
        then: Sequence[Job] | None = None,
        keep_result: timedelta | float | str | None = None,
        initiator: str | None = None,
    ) -> str:
        """Call `path` back at an instant (aware datetime or epoch ms; a past one is due at once). The id.

        The job is on disk when this returns. `args` is JSON and the types of docs/typed-args.md, 256 KiB at most; left
        out it is `{}`, and None is null. A chosen `id` that is taken raises DuplicateScheduleIdError, unless
        `on_conflict` is "keep" (the job there stays) or "replace" (a waiting one is swapped). `timeout_ms` is the
        deadline of each callback, 1 s to 1 h. `initiator` names who wants it, for `authorize_fire` and the record; the
        receiver does not see it. With a `queue` nobody is called back: a worker pulls it. `then`: jobs that start when
        this one is done, in the same commit; nested ones make a chain. `keep_result`: for how long (1 s to 7 d)
        `result` can tell what it came to.
        """
        options = {
            "id": id, "on_conflict": on_conflict, "pool": pool, "max_concurrency": max_concurrency,
            "priority": priority, "retry": retry, "timeout_ms": timeout_ms, "expires_at": expires_at,
            "shard_key": shard_key, "labels": labels, "initiator": initiator, "queue": queue, "then": then,
            "keep_result": keep_result,
        }  # fmt: skip
        due = arguments.instant_ms(at, "at")
        job = self._new_job(path, workflow, arguments.encode_args(args), due, self._wire_options(options))
        return (await self.submit(job)).id

    async def run_after(
        self,
        delay: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        id: str | None = None,
        on_conflict: str = "error",
        pool: str | None = None,
        max_concurrency: int | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        timeout_ms: int | None = None,
        expires_at: datetime | int | None = None,
        shard_key: str | None = None,
        labels: Sequence[str] | None = None,
        queue: str | None = None,
        then: Sequence[Job] | None = None,
        keep_result: timedelta | float | str | None = None,
        initiator: str | None = None,
    ) -> str:
        """Call `path` back after a delay: timedelta, seconds, or text like "90s", "5m". The rest as `run_at`."""
        options = {
            "id": id, "on_conflict": on_conflict, "pool": pool, "max_concurrency": max_concurrency,
            "priority": priority, "retry": retry, "timeout_ms": timeout_ms, "expires_at": expires_at,
            "shard_key": shard_key, "labels": labels, "initiator": initiator, "queue": queue, "then": then,
            "keep_result": keep_result,
        }  # fmt: skip
        due = self._after(arguments.duration_ms(delay, "delay"), "delay")
        job = self._new_job(path, workflow, arguments.encode_args(args), due, self._wire_options(options))
        return (await self.submit(job)).id

    async def submit_many(self, jobs: Sequence[Job]) -> list[Scheduled | TocsinError]:
        """Up to 1,000 jobs in one atomic commit. One answer each, in order: accepted, or why not."""
        given: object = jobs
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            raise InvalidInputError(f"jobs must be a list of Job, not {type(jobs).__name__}")
        if len(jobs) > arguments.MAX_BATCH:
            raise InvalidInputError(f"jobs: {len(jobs)} given, at most {arguments.MAX_BATCH} in one call")
        checked: list[NewJob | TocsinError] = []
        for n, job in enumerate(jobs):
            try:
                with arguments.naming(f"jobs[{n}]"):
                    checked.append(self._checked(job))
            except TocsinError as error:
                checked.append(error)
        return await self.submit_checked(checked)

    def _checked(self, job: Job) -> NewJob:
        if not isinstance(job, Job):
            raise InvalidInputError(
                f"a job must be a Job, not {type(job).__name__}: Job(path=..., args=..., after=..., options={{...}})"
            )
        if (job.at is None) == (job.after is None):
            raise InvalidInputError("give exactly one of at and after")
        if job.at is not None:
            due = arguments.instant_ms(job.at, "at")
        else:
            due = self._after(arguments.duration_ms(job.after, "after"), "after")
        return self._new_job(
            job.path, job.workflow, arguments.encode_args(job.args), due, self._wire_options(job.options)
        )

    def new_job(
        self,
        *,
        function_path: str | None,
        workflow: str | None,
        raw_args: bytes,
        scheduled_for: int | None,
        delay_ms: int | None,
        options: Mapping[str, Any],
    ) -> NewJob:
        """A checked job from wire values; for the HTTP face."""
        if (scheduled_for is None) == (delay_ms is None):
            raise InvalidInputError("give exactly one of scheduledFor and delayMs")
        if scheduled_for is not None:
            due = arguments.epoch_ms(scheduled_for, "scheduledFor")
        else:
            due = self._after(arguments.integer(delay_ms, "delayMs", *arguments.DELAY_MS), "delayMs")
        return self._new_job(function_path, workflow, arguments.raw_args(raw_args), due, options)

    def _new_job(
        self, path: str | None, workflow: str | None, args: bytes, due: int, options: Mapping[str, Any]
    ) -> NewJob:
        self._check_origin(options)
        now = self._now()
        job = arguments.new_job(
            function_path=path, workflow=workflow, args=args, scheduled_for=due, enqueued_at=now,
            minted=self._mint(now), options=options, initiator=self._initiator,
        )  # fmt: skip
        self._service.catalog_check.check(job.job, args)
        return job

    async def submit(self, job: NewJob) -> Scheduled:
        """Store one checked job."""
        self._check_space()
        answer = (await self._call(Submit([job])))[0]
        if isinstance(answer, TocsinError):
            raise answer
        return answer

    async def submit_once(self, jobs: Sequence[NewJob], once: Once) -> Kept:
        """For the HTTP face: a request with an Idempotency-Key. The status and body of its one answer."""
        if self._service.host.provider.trouble is None or not await answered(self._view(), once, self._now()):
            self._check_space()
        self._check_size(jobs)
        answer = await self._service.renderers.ask(
            once.render, lambda number: self._call(SubmitOnce(jobs, once.key, once.body, number))
        )
        if isinstance(answer, TocsinError):
            raise answer
        return answer

    async def submit_checked(self, jobs: Sequence[NewJob | TocsinError]) -> list[Scheduled | TocsinError]:
        """Store those that passed their checks; errors stay where they stand."""
        self._check_space()
        good = [job for job in jobs if isinstance(job, NewJob)]
        self._check_size(good)
        answers = await self._call(Submit(good)) if good else []
        stored = iter(answers)
        return [next(stored) if isinstance(job, NewJob) else job for job in jobs]

    def _check_size(self, jobs: Sequence[NewJob]) -> None:
        size = sum(job.size for job in jobs)
        if size > arguments.MAX_BATCH_BYTES:
            raise PayloadTooLargeError(
                f"these jobs are {size} bytes, at most {arguments.MAX_BATCH_BYTES} fit one call: send them in parts",
                limit=arguments.MAX_BATCH_BYTES,
            )
        labels = sum(len(job.job.labels) for job in jobs)
        if labels > arguments.MAX_BATCH_LABELS:
            raise PayloadTooLargeError(
                f"these jobs have {labels} labels together, at most {arguments.MAX_BATCH_LABELS} fit one call: "
                "send them in parts",
                limit=arguments.MAX_BATCH_LABELS,
            )
        paths = len(frozenset[str]().union(*(paths_of(job.job) for job in jobs)))
        if paths > arguments.MAX_BATCH_PATHS:
            raise PayloadTooLargeError(
                f"these jobs, and what is to follow them, have {paths} different function paths, at most "
                f"{arguments.MAX_BATCH_PATHS} fit one call: send them in parts",
                limit=arguments.MAX_BATCH_PATHS,
            )

    def _check_space(self) -> None:
        if (trouble := self._service.host.provider.trouble) is None:
            return
        if isinstance(trouble, StoreFull):
            raise StoreFull(f"{trouble.message}; what is under way goes on")
        raise type(trouble)(trouble.message, **trouble.details)
