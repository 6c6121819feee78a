"""Bodies of requests of workers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import shape
from tocsin.actors.http.wire import Request, Scalar, whole
from tocsin.actors.scheduler.model.validation import PID, integer
from tocsin.dispatch.pulled import WorkerInfo
from tocsin.errors import InvalidInputError


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Who claims: the id is another one for every start of a process, the rest is for people."""

    id: Annotated[Scalar, shape(shapes.NAME, "Of this start of the worker's process.", needed=True)] = None
    name: Annotated[Scalar, shape(shapes.TEXT, "What people call it.")] = None
    hostname: Annotated[Scalar, shape(shapes.TEXT, "Where it runs.")] = None
    pid: Annotated[Scalar, shape(shapes.PID, "Its process.")] = None

    def info(self) -> WorkerInfo:
        for name in ("name", "hostname"):
            if not isinstance(getattr(self, name), (str, type(None))):
                raise InvalidInputError(f"worker.{name} must be a text, not {getattr(self, name)!r}")
        pid: Any = whole(self.pid)
        if pid is not None:
            integer(pid, "worker.pid", *PID)
        if not isinstance(self.id, str):
            raise InvalidInputError("worker.id is missing: name this start of the worker")
        return WorkerInfo(id=self.id, name=self.name, hostname=self.hostname, pid=pid)  # type: ignore[arg-type]


class ClaimRequest(Request, frozen=True, kw_only=True):
    """How many jobs, for how long, and how long to wait for one."""

    max: Annotated[Scalar, shape(shapes.CLAIM_MAX, "How many jobs at most.")] = None
    lease_ms: Annotated[
        Scalar, shape({**shapes.LEASE_LENGTH, "default": 60_000}, "For how long each is leased, ms.")
    ] = None
    wait_ms: Annotated[
        Scalar, shape(shapes.CLAIM_WAIT, "How long to wait until there is one, ms; then `jobs` is empty.")
    ] = None
    exclude: Annotated[list[Scalar] | None, shape(shapes.QUEUES, "With queue `*`: queues that are left out.")] = None
    worker: WorkerRequest | None = None
