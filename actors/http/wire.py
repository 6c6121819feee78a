"""What requests hold. Scalars stay as they came: the checks that Python callers pass through name field, value
and limit, and hold here too. Names of the older system are taken where they mean the same."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from tocsin.actors.scheduler.arguments import MAX_BATCH
from tocsin.dispatch.retry import Retry
from tocsin.errors import InvalidInputError

Scalar = str | int | float | bool | None

NO_ARGS: Final = msgspec.Raw(b"{}")
"""Args left out are an empty object, as in the older system."""

ABSENT: Final = msgspec.Raw(b"null")


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Any body. `instanceName` may repeat the instance that is addressed anyway."""

    instance_name: Scalar = None

    def check_instance(self, addressed: str) -> None:
        if self.instance_name is not None and self.instance_name != addressed:
            raise InvalidInputError(
                f"instanceName must be the instance that the path addresses, {addressed!r}; address another one "
                "under /i/{instance}"
            )


class IdRequest(Request, frozen=True, kw_only=True):
    """`{id}`."""

    id: Scalar = None

    def required_id(self) -> str:
        """As given; the handle checks its shape."""
        if self.id is None or self.id == "":
            raise InvalidInputError("id is missing")
        return self.id  # type: ignore[return-value]


class RetryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """`maxAttempts` is the older name of `maxRetries`."""

    max_retries: Scalar = None
    max_attempts: Scalar = None
    backoff: Scalar = None
    base_ms: Scalar = None
    max_ms: Scalar = None
    jitter: Scalar = None

    def retry(self) -> Retry:
        if self.max_retries is not None and self.max_attempts is not None:
            raise InvalidInputError("retry.maxAttempts is the older name of retry.maxRetries: give one of them")
        given: dict[str, Any] = {
            "max_retries": self.max_retries if self.max_attempts is None else self.max_attempts,
            "backoff": self.backoff,
            "base_ms": self.base_ms,
            "max_ms": self.max_ms,
            "jitter": self.jitter,
        }
        return Retry(**{name: value for name, value in given.items() if value is not None})


class ScheduleRequest(Request, frozen=True, kw_only=True):
    """One job. `null` is the same as left out, but for `args`, which are kept byte for byte."""

    function_path: Scalar = None
    workflow: Scalar = None
    args: msgspec.Raw = NO_ARGS
    scheduled_for: Scalar = None
    delay_ms: Scalar = None
    id: Scalar = None
    on_conflict: Scalar = None
    pool: Scalar = None
    max_concurrency: Scalar = None
    priority: Scalar = None
    retry: RetryRequest | None = None
    timeout_ms: Scalar = None
    expires_at: Scalar = None
    shard_key: Scalar = None
    labels: list[Scalar] | Scalar = None
    queue: msgspec.Raw = ABSENT
    then: msgspec.Raw = ABSENT

    def check_known(self) -> None:
        """Refuse what the contract has and this version has not."""
        for name, value in (("queue", self.queue), ("then", self.then)):
            if bytes(value) != b"null":
                raise InvalidInputError(f"{name} is not in this version of tocsin yet: leave it out")

    @property
    def target(self) -> str | None:
        """The function path or workflow; None where it is no text (the handle refuses that)."""
        named = self.function_path if self.function_path is not None else self.workflow
        return named if isinstance(named, str) else None

    def options(self) -> dict[str, Any]:
        """For `Scheduler.new_job`."""
        return {
            "id": self.id,
            "on_conflict": self.on_conflict,
            "pool": self.pool,
            "max_concurrency": self.max_concurrency,
            "priority": self.priority,
            "retry": None if self.retry is None else self.retry.retry(),
            "timeout_ms": self.timeout_ms,
            "expires_at": self.expires_at,
            "shard_key": self.shard_key,
            "labels": self.labels,
        }


class BatchRequest(Request, frozen=True, kw_only=True):
    """Each job is parsed by itself, so that a wrong one spoils none of the others."""

    jobs: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_BATCH)]


class RescheduleRequest(IdRequest, frozen=True, kw_only=True):
    """`{id, scheduledFor or delayMs}`."""

    scheduled_for: Scalar = None
    delay_ms: Scalar = None


class CancelAllRequest(Request, frozen=True, kw_only=True):
    """`{pool?, label?, functionPath?}` or `{all: true}`, `dryRun?`."""

    pool: str | None = None
    label: str | None = None
    function_path: str | None = None
    all: bool | None = None
    dry_run: bool | None = None


class RetryAllRequest(Request, frozen=True, kw_only=True):
    """`{pool?, reason?, functionPath?, since?}` or `{all: true}`, `ratePerSecond?`, `dryRun?`."""

    pool: str | None = None
    reason: str | None = None
    function_path: str | None = None
    since: Scalar = None
    all: bool | None = None
    rate_per_second: Scalar = None
    dry_run: bool | None = None


class LeaseRequest(IdRequest, frozen=True, kw_only=True):
    """`{id, lease}`."""

    lease: Scalar = None

    def required_lease(self) -> str:
        if self.lease is None or self.lease == "":
            raise InvalidInputError("lease is missing: it came with the callback as tocsin-lease")
        return self.lease  # type: ignore[return-value]  # the handle checks its shape


class CompleteRequest(LeaseRequest, frozen=True, kw_only=True):
    """`{id, lease, ok?, error?, retryable?, delayMs?, result?}`."""

    ok: bool | None = None
    error: str | None = None
    retryable: bool | None = None
    delay_ms: Scalar = None
    result: msgspec.Raw = ABSENT


class ExtendRequest(LeaseRequest, frozen=True, kw_only=True):
    """`{id, lease, leaseMs}`."""

    lease_ms: Scalar = None


class PoolRequest(Request, frozen=True, kw_only=True):
    """`{name, maxConcurrency?, paused?}`."""

    name: Scalar = None
    max_concurrency: Scalar = None
    paused: Scalar = None


class InstanceRequest(Request, frozen=True, kw_only=True):
    """`{paused}`."""

    paused: Scalar = None
