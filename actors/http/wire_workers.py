"""The status that a worker reports."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import shape
from tocsin.actors.http.wire import Request, Scalar, whole
from tocsin.actors.scheduler.inflight.worker_registry import MAX_TEXT, STATUSES
from tocsin.actors.scheduler.model.validation import MAX_TARGET
from tocsin.dispatch.pulled import WorkerJob, WorkerSnapshot
from tocsin.errors import InvalidInputError

_TEXT = {**shapes.TEXT, "maxLength": MAX_TEXT}
_TARGET = {**shapes.TEXT, "maxLength": MAX_TARGET}
_EPOCH = shapes.whole((0, 10**15 - 1))


class WorkerJobRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A job in a worker's hands."""

    id: Annotated[Scalar, shape({**shapes.TEXT, "minLength": 1, "maxLength": 64}, "The job.", needed=True)] = None
    function_path: Annotated[Scalar, shape(_TARGET, "What it runs.")] = None
    workflow: Annotated[Scalar, shape(_TARGET, "What it runs, if that is a workflow.")] = None
    attempt: Annotated[Scalar, shape(shapes.whole((1, 10**15 - 1)), "Which attempt.", needed=True)] = None
    started_at: Annotated[Scalar, shape(_EPOCH, "When it began, epoch ms.", needed=True)] = None


class SnapshotRequest(Request, frozen=True, kw_only=True):
    """How a worker is, at each change and every ten seconds."""

    id: Annotated[Scalar, shape(shapes.NAME, "Another one for every start of a process.", needed=True)] = None
    name: Annotated[Scalar, shape(_TEXT, "What people call it.")] = None
    hostname: Annotated[Scalar, shape(_TEXT, "Where it runs.")] = None
    pid: Annotated[Scalar, shape(shapes.whole((0, 2**63 - 1)), "Its process.")] = None
    queues: Annotated[
        list[Scalar] | Scalar,
        shape({"anyOf": [shapes.one_of(["*"]), shapes.QUEUES, shapes.NAME]}, "What it serves.", needed=True),
    ] = None
    exclude: Annotated[list[Scalar] | None, shape(shapes.QUEUES, "With `*`: what it does not serve.")] = None
    concurrency: Annotated[Scalar, shape(shapes.whole((1, 1_000_000)), "How many jobs at most.", needed=True)] = None
    status: Annotated[Scalar, shape(shapes.one_of(STATUSES), "How it is.", needed=True)] = None
    jobs: Annotated[
        list[WorkerJobRequest] | None,
        shape(
            {"type": "array", "items": {"$ref": "#/components/schemas/WorkerJobRequest"}}, "What it runs; 100 are kept."
        ),
    ] = None
    started_at: Annotated[Scalar, shape(_EPOCH, "When it started, epoch ms.", needed=True)] = None
    heartbeat_at: Annotated[
        Scalar, shape(_EPOCH, "Now, epoch ms; the server puts its own clock there.", needed=True)
    ] = None

    def snapshot(self) -> WorkerSnapshot:
        """Return the snapshot as it was given; the port checks every value."""
        for name in ("id", "queues", "concurrency", "status", "startedAt", "heartbeatAt"):
            if getattr(self, _field(name)) is None:
                raise InvalidInputError(f"{name} is missing")
        members: dict[str, Any] = {
            name: whole(value) if isinstance(value := getattr(self, name), float) else value
            for name in WorkerSnapshot.__struct_fields__
        }
        members["exclude"] = members["exclude"] or ()
        members["jobs"] = [_job(job) for job in self.jobs or ()]
        return WorkerSnapshot(**members)


def _job(said: WorkerJobRequest) -> WorkerJob:
    members: dict[str, Any] = {name: whole(getattr(said, name)) for name in WorkerJob.__struct_fields__}
    return WorkerJob(**members)


def _field(name: str) -> str:
    return {"startedAt": "started_at", "heartbeatAt": "heartbeat_at"}.get(name, name)
