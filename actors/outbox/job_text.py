"""The job of an outbox row as text: what the body of `POST /schedule` would be, with an absolute due instant.

So a row holds what any version, and any language, can write and read; `initiator` is the one member beside those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from tocsin.actors.http import job_requests
from tocsin.actors.http.body import parse
from tocsin.actors.http.wire import Scalar
from tocsin.actors.http.wire_jobs import ScheduleRequest
from tocsin.actors.scheduler.client.job_checks import Job, JobChecks
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.dispatch.tracing import Tracing
from tocsin.dispatch.worker.specs import body_of


class RowJob(ScheduleRequest, frozen=True, kw_only=True):
    """The content of the job text."""

    initiator: Scalar = None


# ---- Writing -------------------------------------------------------------------------------------


class JobWriter:
    """Checks jobs as a scheduler does, without one: of it only what it holds, and its settings, come later."""

    def __init__(
        self, catalog: CatalogCheck, random: Random, now_ms: Callable[[], int], instance: str = "",
        tracing: Tracing | None = None,
    ) -> None:  # fmt: skip
        # Another process may know the origin, and the ids of what follows are made when the job comes to its scheduler.
        self._checks = JobChecks(catalog, random, now_ms, instance=instance, tracing=tracing)

    def check(
        self,
        path: str | None,
        workflow: str | None,
        args: bytes,
        due: int,
        now: int,
        minted: str,
        options: Mapping[str, Any],
        debounce_ms: int | None = None,
    ) -> NewJob:
        """Return the job. InvalidInputError, and its kin, for what no scheduler would take."""
        checked = arguments.new_job(
            function_path=path, workflow=workflow, args=args, scheduled_for=due, enqueued_at=now, minted=minted,
            options={**self._checks.options(options), "debounce_ms": debounce_ms},
        )  # fmt: skip
        self._checks.catalog.check(checked.job, args)
        return checked

    def traced(self, checked: NewJob) -> NewJob:
        """Return the job in the trace in which it is written down."""
        trace = self._checks.trace_of(checked.job)
        return checked if trace is None else replace(checked, job=replace(checked.job, trace=trace))

    def write(
        self,
        path: str | None,
        workflow: str | None,
        args: bytes,
        due: int,
        now: int,
        minted: str,
        options: Mapping[str, Any],
        debounce_ms: int | None = None,
    ) -> tuple[str, str]:
        """Return the job's id and its text. InvalidInputError, and its kin, for what no scheduler would take."""
        checked = self.check(path, workflow, args, due, now, minted, options, debounce_ms)
        members: dict[str, Any] = {"args": msgspec.Raw(args), "id": checked.job.id}
        if not checked.chosen:
            members["onConflict"] = "keep"  # nobody else has such an id: who has it is this job, submitted before
        sent = {option: value for option, value in options.items() if option != "initiator"}
        members = body_of(Job(path=path, workflow=workflow, at=due, options=sent)) | members
        if debounce_ms is not None:
            members["debounceMs"] = debounce_ms
            del members["scheduledFor"]
        if (initiator := options.get("initiator")) is not None:
            members["initiator"] = initiator
        if (trace := self._checks.trace_of(checked.job)) is not None:
            members["traceparent"] = trace[0]
            if trace[1]:
                members["tracestate"] = trace[1]
        return checked.job.id, msgspec.json.encode(members).decode()


# ---- Reading -------------------------------------------------------------------------------------


def read(text: str) -> RowJob:
    return parse(text.encode(), RowJob, "the job")


def new_job(checks: JobChecks, instance: str, text: str) -> NewJob:
    """Check the text of a row as a job to submit. InvalidInputError, and its kin, if this scheduler refuses it."""
    job = read(text)
    job.check_instance(instance)
    return job_requests.new_job(checks, job)
