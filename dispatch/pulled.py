"""Data between a scheduler and those who pull its work: a claimed job, its settlement, a worker.

In JSON the members are camelCase; optional ones are left out. Instants are epoch ms, on the clock of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tocsin.dispatch import values
from tocsin.dispatch.job_options import ShownMembers
from tocsin.dispatch.plain import Plain
from tocsin.dispatch.words import camel
from tocsin.errors import InvalidInputError

EVERY_QUEUE: Final = "*"
MAX_RESULT: Final = 64 * 1024
"""Bytes of JSON that a job may come to."""


class _Value(Plain, msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


def raw_member(name: str) -> str:
    """Return the name in JSON: `raw_args` is `args`, text as it was given that is decoded when it is asked for."""
    return camel(name.removeprefix("raw_"))


class Parent(_Value, frozen=True, kw_only=True, rename=raw_member, omit_defaults=True):
    """The job that this one follows: what it came to, if it said, or of what it died. `group`: it is no job, but the
    group of this id, whose result tells how its members ended."""

    id: str
    raw_result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    raw_dead: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    group: bool = False

    def __repr__(self) -> str:
        return f"Parent({self.id!r})"  # a result may be large, or private

    @property
    def result(self) -> Any:
        if isinstance(self.raw_result, msgspec.UnsetType):
            return None
        return values.decode(bytes(self.raw_result), "parent.result")

    @property
    def dead(self) -> Mapping[str, Any] | None:
        """Return why it died: `reason`, `parkedAt`, `attempts` and, if there are some, `message`, `status`, `code` and
        `response`, the beginning of the last answer. None if it succeeded."""
        if isinstance(self.raw_dead, msgspec.UnsetType):
            return None
        found: Mapping[str, Any] = msgspec.json.decode(bytes(self.raw_dead))
        return found


class Slot(_Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of which schedule a job is an occurrence, and for which slot. `first_slot` and `coalesced` if it stands for
    earlier slots too."""

    name: str
    slot: int
    first_slot: int | None = None
    coalesced: int | None = None


class _Attempt(ShownMembers, frozen=True, rename=raw_member, omit_defaults=True):
    """Which attempt of which job a claimed job is: what stands before the options."""

    id: str
    incarnation: str
    raw_args: msgspec.Raw
    scheduled_for: int
    attempt: int
    attempts: int
    lease: str
    lease_until: int
    lease_ms: int
    queue: str
    instance_name: str
    function_path: str | None = None
    workflow: str | None = None


class Claimed(_Attempt, frozen=True, kw_only=True, rename=raw_member, omit_defaults=True):
    """A job that a worker has until `lease_until`: it settles it, or extends the lease (a token), before.

    `attempt` counts starts and never repeats for an incarnation; `attempts` counts charged failures before this start.
    """

    expires_at: int | None = None
    schedule: Slot | None = None
    parent: Parent | None = None
    then: bool = False
    """True if its success starts other jobs."""
    traceparent: str | None = None
    """The trace in which it was scheduled, with a span of this attempt (W3C); and ..."""
    tracestate: str | None = None
    """... what came with it for systems of other vendors."""

    def __repr__(self) -> str:
        return f"Claimed({self.webhook_id!r}, attempt={self.attempt})"  # whoever has the lease may settle it

    @property
    def args(self) -> Any:
        """Return the args as the Python values that were given."""
        return values.decode(bytes(self.raw_args))

    @property
    def webhook_id(self) -> str:
        """Return what effects are deduplicated by: the same over all attempts, another when the id is used again."""
        return f"{self.id}:{self.incarnation}"


class Settlement(_Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The state of a job after its attempt was settled. `state`: `done`; `retrying`, at `next_attempt_at`; `dead`, for
    `reason`; `cancelled`, while the attempt ran; `expired`, before it could be tried again."""

    settled: bool
    state: str
    next_attempt_at: int | None = None
    reason: str | None = None


def check_end(
    *, ok: bool, error: object, retryable: bool, delay: object, charge: bool, result: object, in_json: bool = False
) -> None:
    """Raise an InvalidInputError for a success with a reason or a failure with a result: which it is cannot be told."""
    of_failures = {
        "error": error is not None,
        "retryable": not retryable,
        "charge": not charge,
        "delayMs" if in_json else "delay": delay is not None,
    }
    failed = "ok: false" if in_json else "ok=False"
    if ok and (given := [name for name, is_given in of_failures.items() if is_given]):
        raise InvalidInputError(f"{given[0]} goes with {failed}: without that the attempt is done")
    if not ok and result is not None:
        raise InvalidInputError(f"result goes with success, and {failed} says that it failed: why is said in error")


class WorkerInfo(_Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who claims. `id`: 1 to 128 characters of [A-Za-z0-9_.:-], another one for every start of a process."""

    id: str
    name: str | None = None
    hostname: str | None = None
    pid: int | None = None


class WorkerJob(_Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job that a worker runs now."""

    id: str
    attempt: int
    started_at: int
    function_path: str | None = None
    workflow: str | None = None


class WorkerSnapshot(WorkerInfo, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A worker as it says it is. `status`: `idle`, `busy`, `stopping`, `stopped`; instants on the worker's clock."""

    queues: Sequence[str] | str
    concurrency: int
    status: str
    started_at: int
    heartbeat_at: int
    exclude: Sequence[str] = ()
    jobs: Sequence[WorkerJob] = ()
