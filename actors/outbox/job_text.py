"""The job of an outbox row as text: what the body of `POST /schedule` would be, with an absolute due instant.

So a row holds what any version, and any language, can write and read; `initiator` is the one member beside those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from tocsin.actors.http.body import parse, reading_args
from tocsin.actors.http.wire import Scalar, ScheduleRequest, whole
from tocsin.actors.scheduler import arguments
from tocsin.actors.scheduler.handle import Scheduler
from tocsin.actors.scheduler.turn import NewJob


class RowJob(ScheduleRequest, frozen=True, kw_only=True):
    """What the text holds."""

    initiator: Scalar = None

    def options(self) -> dict[str, Any]:
        return {**super().options(), "initiator": self.initiator}


def _as_it_is(value: Any) -> Any:
    return value


MEMBERS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "id": ("id", _as_it_is),
    "on_conflict": ("onConflict", _as_it_is),
    "pool": ("pool", _as_it_is),
    "max_concurrency": ("maxConcurrency", _as_it_is),
    "priority": ("priority", _as_it_is),
    "retry": ("retry", msgspec.to_builtins),
    "timeout_ms": ("timeoutMs", _as_it_is),
    "expires_at": ("expiresAt", lambda value: arguments.instant_ms(value, "expiresAt")),
    "shard_key": ("shardKey", _as_it_is),
    "labels": ("labels", list),
    "initiator": ("initiator", _as_it_is),
}
"""Where each option of a job goes, and how. They are checked before."""


def written(
    path: str | None, workflow: str | None, args: bytes, due: int, now: int, minted: str, options: Mapping[str, Any]
) -> tuple[str, str]:
    """The job's id and its text. InvalidInputError, and its kin, for what no scheduler would take."""
    checked = arguments.new_job(
        function_path=path, workflow=workflow, args=args, scheduled_for=due, enqueued_at=now,
        minted=minted, options=options,
    )  # fmt: skip
    members: dict[str, Any] = {"functionPath": path} if workflow is None else {"workflow": workflow}
    members |= {"args": msgspec.Raw(args), "scheduledFor": due, "id": checked.job.id}
    if not checked.chosen:
        members["onConflict"] = "keep"  # nobody else has such an id: who has it is this job, submitted before
    for option, value in options.items():
        if value is not None:
            member, write = MEMBERS[option]
            members[member] = write(value)
    return checked.job.id, msgspec.json.encode(members).decode()


def read(text: str) -> RowJob:
    return parse(text.encode(), RowJob, "the job")


def new_job(scheduler: Scheduler, text: str) -> NewJob:
    """The text of a row as a job to submit. InvalidInputError, and its kin, if this scheduler refuses it."""
    job = read(text)
    job.check_instance(scheduler.name)
    job.check_known()
    with reading_args():
        return scheduler.new_job(
            function_path=job.function_path,  # type: ignore[arg-type]  # the handle checks every value
            workflow=job.workflow,  # type: ignore[arg-type]
            raw_args=bytes(job.args),
            scheduled_for=whole(job.scheduled_for),  # type: ignore[arg-type]
            delay_ms=whole(job.delay_ms),  # type: ignore[arg-type]
            options=job.options(),
        )
