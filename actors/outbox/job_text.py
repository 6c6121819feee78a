"""The job of an outbox row as text: what the body of `POST /schedule` would be, with an absolute due instant.

So a row holds what any version, and any language, can write and read; `initiator` is the one member beside those.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from tocsin.actors.http.body import parse, reading_args
from tocsin.actors.http.chain_requests import followers
from tocsin.actors.http.wire import Scalar, whole
from tocsin.actors.http.wire_jobs import ScheduleRequest
from tocsin.actors.scheduler.client.chain_requests import Following, Job
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.dispatch.worker.specs import body_of


class RowJob(ScheduleRequest, frozen=True, kw_only=True):
    """What the text holds."""

    initiator: Scalar = None


# ---- Writing -------------------------------------------------------------------------------------


class JobWriter(Following):
    """Checks jobs as a scheduler does, without one: of it only what it holds, and its settings, come later."""

    def __init__(self, instance: str, catalog: CatalogCheck, random: Random) -> None:
        self.name, self._catalog, self._random = arguments.instance_name(instance), catalog, random

    def write(
        self,
        path: str | None,
        workflow: str | None,
        args: bytes,
        due: int,
        now: int,
        minted: str,
        options: Mapping[str, Any],
    ) -> tuple[str, str]:
        """The job's id and its text. InvalidInputError, and its kin, for what no scheduler would take."""
        checked = arguments.new_job(
            function_path=path, workflow=workflow, args=args, scheduled_for=due, enqueued_at=now,
            minted=minted, options=self._wire_options(options),
        )  # fmt: skip
        self._check_catalog(checked.job, args)
        members: dict[str, Any] = {"args": msgspec.Raw(args), "id": checked.job.id}
        if not checked.chosen:
            members["onConflict"] = "keep"  # nobody else has such an id: who has it is this job, submitted before
        sent = {option: value for option, value in options.items() if option != "initiator"}
        members = body_of(Job(path=path, workflow=workflow, at=due, options=sent)) | members
        if (initiator := options.get("initiator")) is not None:
            members["initiator"] = initiator
        return checked.job.id, msgspec.json.encode(members).decode()

    def _check_catalog(self, job: JobRow, args: bytes) -> None:
        self._catalog.check(job, args)

    def _mint(self, now: int) -> str:
        """For a check only: the ids of what follows are made when the job comes to its scheduler."""
        return arguments.mint_id(now, self._random.getrandbits(80))

    def _now(self) -> int:
        return 0

    def _check_origin(self, options: Mapping[str, Any]) -> None:
        """Another process may know it."""


# ---- Reading -------------------------------------------------------------------------------------


def read(text: str) -> RowJob:
    return parse(text.encode(), RowJob, "the job")


def new_job(scheduler: Scheduler, text: str) -> NewJob:
    """The text of a row as a job to submit. InvalidInputError, and its kin, if this scheduler refuses it."""
    job = read(text)
    job.check_instance(scheduler.name)
    options = {**job.options(), "then": followers(scheduler, job.then)}
    with reading_args():
        return scheduler.new_job(
            function_path=job.function_path,  # type: ignore[arg-type]  # the handle checks every value
            workflow=job.workflow,  # type: ignore[arg-type]
            raw_args=bytes(job.args),
            scheduled_for=whole(job.scheduled_for),  # type: ignore[arg-type]
            delay_ms=whole(job.delay_ms),  # type: ignore[arg-type]
            options=options,
        )
