"""Bodies of requests of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
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


class QueueRequest(Request, frozen=True, kw_only=True):
    """Settings of a queue: at least one."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.at_least_one(fair="boolean", weights="object", maxPerKey="integer"),)

    fair: Annotated[Scalar, shape(shapes.FLAG, "True: jobs with different shard keys have turns.")] = None
    weights: Annotated[
        dict[str, Scalar] | Scalar,
        shape(shapes.WEIGHTS, "How many turns a shard key has where others have one; replaces all that were set."),
    ] = None
    max_per_key: Annotated[
        Scalar, shape(shapes.PER_KEY, "How many jobs of one shard key may run at once; 0: no cap of its own.")
    ] = None

    def settings(self) -> Mapping[str, Any]:
        """Return what is given, by its name inside, for the checks."""
        weights = self.weights
        return {
            "fair": self.fair,
            "weights": {key: whole(one) for key, one in weights.items()} if isinstance(weights, dict) else weights,
            "max_per_key": whole(self.max_per_key),
        }
