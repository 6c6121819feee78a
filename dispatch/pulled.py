"""What goes between a queue and a worker: a claimed job, how its attempt was settled, who the worker is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from tocsin.dispatch import values
from tocsin.dispatch.retry import Retry

WorkerStatus = Literal["idle", "busy", "stopping", "stopped"]


class _Pulled(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class Parent(_Pulled, frozen=True, kw_only=True):
    """The job before this one in its chain, and what it gave."""

    id: str
    raw_result: msgspec.Raw | None = msgspec.field(default=None, name="result")

    @property
    def result(self) -> Any:
        """As the Python values that were given; None if there is none."""
        return None if self.raw_result is None else values.decode(bytes(self.raw_result), "result")


class Claimed(_Pulled, frozen=True, kw_only=True):
    """One attempt of a job, held by a lease. Instants are epoch ms by the host's clock.

    `attempt` counts dispatches, `attempts` the charged failures so far. Whoever has the lease may settle this attempt.
    """

    id: str
    incarnation: str
    raw_args: msgspec.Raw = msgspec.field(name="args")
    scheduled_for: int
    attempt: int
    attempts: int = 0
    lease: str
    lease_until: int
    lease_ms: int
    queue: str
    instance_name: str
    function_path: str | None = None
    workflow: str | None = None
    pool: str | None = None
    priority: int = 0
    retry: Retry | None = None
    timeout_ms: int | None = None
    expires_at: int | None = None
    shard_key: str | None = None
    labels: Sequence[str] = ()
    schedule: dict[str, Any] | None = None
    parent: Parent | None = None
    then: bool = False
    """Whether others follow when it succeeds."""

    @property
    def args(self) -> Any:
        """The args as the Python values that were given."""
        return values.decode(bytes(self.raw_args))

    def __repr__(self) -> str:
        return f"Claimed({self.webhook_id!r}, attempt={self.attempt})"  # not the lease

    @property
    def webhook_id(self) -> str:
        """The same over all attempts of this job: what the receiver kit calls so."""
        return f"{self.id}:{self.incarnation}"


class Settlement(_Pulled, frozen=True, kw_only=True):
    """What became of the job when an attempt was settled."""

    settled: bool
    state: Literal["done", "retrying", "dead", "cancelled"]
    next_attempt_at: int | None = None
    reason: str | None = None


WorkerId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,128}\Z")]


class WorkerInfo(_Pulled, frozen=True, kw_only=True):
    """Who claims: `id` is new at each start of a process, the rest is for people."""

    id: WorkerId
    name: str | None = None
    hostname: str | None = None
    pid: int | None = None


class WorkerJob(_Pulled, frozen=True, kw_only=True):
    """A job in a worker's hands."""

    id: str
    function_path: str | None = None
    workflow: str | None = None
    attempt: int
    started_at: int


class WorkerSnapshot(WorkerInfo, frozen=True, kw_only=True):
    """A worker as it says it is. Instants are epoch ms."""

    queues: list[str] | Literal["*"]
    exclude: list[str] = []
    concurrency: int
    status: WorkerStatus
    jobs: list[WorkerJob] = []
    started_at: int
    heartbeat_at: int
