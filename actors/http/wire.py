"""What requests hold. Scalars stay as they came: the checks that Python callers pass through name field, value
and limit, and hold here too. What is true of each field stands beside it, for the OpenAPI document. Names of the
older system are taken where they mean the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
from tocsin.actors.scheduler.model.followers import check_chain
from tocsin.actors.scheduler.model.reasons import DEAD_REASONS
from tocsin.actors.scheduler.model.validation import MAX_BATCH
from tocsin.dispatch.retry import OlderRetry, Retry
from tocsin.errors import InvalidInputError

Scalar = str | int | float | bool | None

NO_ARGS: Final = msgspec.Raw(b"{}")
"""Args left out are an empty object, as in the older system."""

ABSENT: Final = msgspec.Raw(b"null")


def whole(value: Scalar) -> Scalar:
    """JSON knows only numbers: 5.0 and 5e0 are the integer 5, and some clients write large ones so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _no_args() -> msgspec.Raw:
    return NO_ARGS


def _absent() -> msgspec.Raw:
    return ABSENT


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Any body. `rules` say what its members have to do with each other."""

    rules: ClassVar[tuple[Schema, ...]] = ()

    instance_name: Annotated[
        Scalar, shape(shapes.INSTANCE_NAME, "May repeat the instance that the path addresses; another is refused.")
    ] = None

    def check_instance(self, addressed: str) -> None:
        if self.instance_name is not None and self.instance_name != addressed:
            raise InvalidInputError(
                f"instanceName must be the instance that the path addresses, {addressed!r}; address another one "
                "under /i/{instance}"
            )


class IdRequest(Request, frozen=True, kw_only=True):
    """Names one job."""

    id: Annotated[Scalar, shape(shapes.JOB_ID, "The job.", needed=True)] = None

    def required_id(self) -> str:
        """As given; the handle checks its shape."""
        if self.id is None or self.id == "":
            raise InvalidInputError("id is missing")
        return self.id  # type: ignore[return-value]


class RetryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The retry ladder: the n-th delay is baseMs * 2^(n-1) (exponential) or baseMs * n (linear), at most maxMs."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.not_both("maxRetries", "maxAttempts"),)

    max_retries: Annotated[
        Scalar, shape({**shapes.RETRIES, "default": 5}, "Attempts after the first one, before the job is dead.")
    ] = None
    max_attempts: Annotated[Scalar, shape(shapes.RETRIES, "The older name of maxRetries.")] = None
    backoff: Annotated[Scalar, shape(shapes.BACKOFF, "How delays grow.")] = None
    base_ms: Annotated[Scalar, shape({**shapes.WAIT, "default": 30_000}, "The first delay, ms.")] = None
    max_ms: Annotated[Scalar, shape({**shapes.WAIT, "default": 3_600_000}, "The longest delay, ms.")] = None
    jitter: Annotated[
        Scalar, shape({**shapes.JITTER, "default": 0}, "Up to this share of a delay is added by chance.")
    ] = None

    def retry(self) -> Retry:
        if self.max_retries is not None and self.max_attempts is not None:
            raise InvalidInputError("retry.maxAttempts is the older name of retry.maxRetries: give one of them")
        given: dict[str, Any] = {
            "max_retries": whole(self.max_retries if self.max_attempts is None else self.max_attempts),
            "backoff": self.backoff,
            "base_ms": self.base_ms,
            "max_ms": self.max_ms,
            "jitter": self.jitter,
        }
        kind = Retry if self.max_attempts is None else OlderRetry
        return kind(**{name: value for name, value in given.items() if value is not None})


class FollowingRequest(Request, frozen=True, kw_only=True):
    """A job that is started when another is done. `null` is the same as left out, but for `args`, which are kept byte
    for byte."""

    rules: ClassVar[tuple[Schema, ...]] = (
        shapes.exactly_one("string", "functionPath", "workflow"),
        shapes.needs("maxConcurrency", "pool", "string"),
    )

    function_path: Annotated[Scalar, shape(shapes.TARGET, "What the receiver is to run. This or workflow.")] = None
    workflow: Annotated[Scalar, shape(shapes.TARGET, "What the receiver is to start, instead of functionPath.")] = None
    args: Annotated[
        msgspec.Raw, shape({"default": {}}, "Any JSON of at most 256 KiB and 64 levels; kept byte for byte.")
    ] = msgspec.field(default_factory=_no_args)
    delay_ms: Annotated[Scalar, shape(shapes.DELAY, "When it is due: ms from now, or from what it follows.")] = None
    queue: Annotated[
        Scalar, shape(shapes.NAME, "Nobody is called back: a worker pulls it from this queue (POST /queues/…/claim).")
    ] = None
    pool: Annotated[Scalar, shape(shapes.NAME, "Start only when this pool has a free slot.")] = None
    max_concurrency: Annotated[
        Scalar, shape(shapes.MAX_CONCURRENCY, "The cap of the pool, until an operator has set it. Needs pool.")
    ] = None
    priority: Annotated[Scalar, shape(shapes.PRIORITY, "9 is most urgent; a step is worth 30 s of waiting.")] = None
    retry: RetryRequest | None = None
    timeout_ms: Annotated[
        Scalar,
        shape(shapes.TIMEOUT, "The deadline of each attempt, ms; left out: the instance's or the server's, or 60 s."),
    ] = None
    expires_at: Annotated[
        Scalar, shape(shapes.INSTANT, "If it still waits at this instant (epoch ms) it is dropped, never sent.")
    ] = None
    shard_key: Annotated[Scalar, shape(shapes.TARGET, "Given to the receiver as it is.")] = None
    labels: Annotated[list[Scalar] | Scalar, shape(shapes.LABELS, "Names to find it by.")] = None
    keep_result_ms: Annotated[
        Scalar, shape(shapes.KEEP_RESULT, "For how long GET /result can tell what it came to, ms.")
    ] = None
    then: Annotated[
        list[FollowingRequest] | None,
        shape(shapes.THEN, "Jobs that start when this one is done, in the same commit; nested ones make a chain."),
    ] = None

    @property
    def target(self) -> str | None:
        """The function path or workflow; None where it is no text (the handle refuses that)."""
        named = self.function_path if self.function_path is not None else self.workflow
        return named if isinstance(named, str) else None

    def targets(self) -> Iterator[str | None]:
        """Of this job and all that follow."""
        yield self.target
        for one in self.then or ():
            yield from one.targets()

    def check_instance(self, addressed: str) -> None:
        super().check_instance(addressed)
        check_following(self.then, addressed)

    def options(self) -> dict[str, Any]:
        """For `Scheduler.new_job`, but for what follows."""
        return {
            "queue": self.queue,
            "pool": self.pool,
            "max_concurrency": whole(self.max_concurrency),
            "priority": whole(self.priority),
            "retry": None if self.retry is None else self.retry.retry(),
            "timeout_ms": whole(self.timeout_ms),
            "expires_at": whole(self.expires_at),
            "shard_key": self.shard_key,
            "labels": self.labels,
            "keep_result_ms": whole(self.keep_result_ms),
        }


def check_following(then: Sequence[FollowingRequest] | None, addressed: str) -> None:
    """How many and how deep first: what comes later goes down one call a level."""
    check_chain(then or ())
    for one in then or ():
        one.check_instance(addressed)


class ScheduleRequest(FollowingRequest, frozen=True, kw_only=True):
    """One job. `null` is the same as left out, but for `args`, which are kept byte for byte."""

    rules: ClassVar[tuple[Schema, ...]] = (
        *FollowingRequest.rules,
        shapes.exactly_one("integer", "scheduledFor", "delayMs"),
    )

    scheduled_for: Annotated[
        Scalar, shape(shapes.INSTANT, "When it is due, epoch ms; one that is past is due at once. This or delayMs.")
    ] = None
    id: Annotated[Scalar, shape(shapes.JOB_ID, "Your own id, free while no job, live or dead, holds it.")] = None
    on_conflict: Annotated[
        Scalar,
        shape(
            shapes.CONFLICT,
            "If the id is taken: 409; keep the live job that is there; or replace it, if it does not run yet.",
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        return {**super().options(), "id": self.id, "on_conflict": self.on_conflict}


class BatchRequest(Request, frozen=True, kw_only=True):
    """Each job is parsed by itself, so that a wrong one spoils none of the others."""

    jobs: Annotated[
        list[msgspec.Raw],
        msgspec.Meta(max_length=MAX_BATCH),
        shape(shapes.JOBS, "Those that are accepted become one commit.", needed=True),
    ]


class RescheduleRequest(IdRequest, frozen=True, kw_only=True):
    """Which job, and when it is due instead."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.exactly_one("integer", "scheduledFor", "delayMs"),)

    scheduled_for: Annotated[Scalar, shape(shapes.INSTANT, "The new instant, epoch ms. This or delayMs.")] = None
    delay_ms: Annotated[Scalar, shape(shapes.DELAY, "The new instant, ms from now, instead of scheduledFor.")] = None


class CancelAllRequest(Request, frozen=True, kw_only=True):
    """Which jobs: those that fit all filters, or `all: true` and no filter."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.filters_or_all(pool="string", label="string", functionPath="string"),)

    pool: Annotated[str | None, shape(shapes.NAME, "Of this pool.")] = None
    label: Annotated[str | None, shape(shapes.NAME, "With this label.")] = None
    function_path: Annotated[str | None, shape(shapes.TEXT, "With this function path, or workflow.")] = None
    all: Annotated[bool | None, shape(shapes.FLAG, "Every job.")] = None
    dry_run: Annotated[bool | None, shape(shapes.FLAG, "Only count them.")] = None


class RetryAllRequest(Request, frozen=True, kw_only=True):
    """Which dead letters: those that fit all filters, or `all: true` and no filter."""

    rules: ClassVar[tuple[Schema, ...]] = (
        shapes.filters_or_all(pool="string", reason="string", functionPath="string", since="integer"),
    )

    pool: Annotated[str | None, shape(shapes.NAME, "Of this pool.")] = None
    reason: Annotated[str | None, shape(shapes.one_of(DEAD_REASONS), "Dead for this reason.")] = None
    function_path: Annotated[str | None, shape(shapes.TEXT, "With this function path, or workflow.")] = None
    since: Annotated[Scalar, shape(shapes.INSTANT, "Parked at this instant or later, epoch ms.")] = None
    all: Annotated[bool | None, shape(shapes.FLAG, "Every dead letter.")] = None
    rate_per_second: Annotated[Scalar, shape(shapes.RATE, "How many a second.")] = None
    dry_run: Annotated[bool | None, shape(shapes.FLAG, "Only count them.")] = None


class LeaseRequest(IdRequest, frozen=True, kw_only=True):
    """Names one attempt of a job."""

    lease: Annotated[
        Scalar,
        shape(
            shapes.LEASE, "The text that came with the claimed job, or with the callback as tocsin-lease.", needed=True
        ),
    ] = None

    def required_lease(self) -> str:
        if self.lease is None or self.lease == "":
            raise InvalidInputError(
                "lease is missing: it came with the claimed job, or with the callback as tocsin-lease"
            )
        return self.lease  # type: ignore[return-value]  # the handle checks its shape


class CompleteRequest(LeaseRequest, frozen=True, kw_only=True):
    """How an attempt ended."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.done_or_failed(),)

    ok: Annotated[bool | None, shape({**shapes.FLAG, "default": True}, "False: it failed.")] = None
    error: Annotated[
        str | None, shape(shapes.TEXT, f"What failed; the first {shapes.ERROR_KEPT} characters are kept.")
    ] = None
    retryable: Annotated[bool | None, shape({**shapes.FLAG, "default": True}, "False: no retry, the job is dead.")] = (
        None
    )
    delay_ms: Annotated[
        Scalar, shape(shapes.DELAY, "When to try again, ms from now, instead of the ladder's next step.")
    ] = None
    result: Annotated[
        msgspec.Raw,
        shape(shapes.ANY, "Any JSON of at most 64 KiB: for what follows, and GET /result. 2 KiB stay in the history."),
    ] = msgspec.field(default_factory=_absent)
    charge: Annotated[
        bool | None,
        shape({**shapes.FLAG, "default": True}, "False: no failure of the job, until it is a day past due."),
    ] = None


class ExtendRequest(LeaseRequest, frozen=True, kw_only=True):
    """For how long, from now."""

    lease_ms: Annotated[Scalar, shape(shapes.LEASE_LENGTH, "Hold the lease for so long from now, ms.", needed=True)] = (
        None
    )

    def required_lease_ms(self) -> int:
        if self.lease_ms is None:
            raise InvalidInputError("leaseMs is missing: for how long the lease is to be held from now, ms")
        return whole(self.lease_ms)  # type: ignore[return-value]  # the handle checks its range


class PoolRequest(Request, frozen=True, kw_only=True):
    """What to set of a pool: its cap, whether it is paused, or both."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.at_least_one(maxConcurrency="integer", paused="boolean"),)

    name: Annotated[Scalar, shape(shapes.NAME, "The pool.", needed=True)] = None
    max_concurrency: Annotated[
        Scalar, shape(shapes.CAP, "How many of its jobs may run at once; 0 holds all. Jobs no longer change it.")
    ] = None
    paused: Annotated[Scalar, shape(shapes.FLAG, "True: start none of its jobs.")] = None


class InstanceRequest(Request, frozen=True, kw_only=True):
    """Whether the instance fires, how long its callbacks may take, or both."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.at_least_one(paused="boolean", timeoutMs="integer"),)

    paused: Annotated[Scalar, shape(shapes.FLAG, "True: start nothing of this instance.")] = None
    timeout_ms: Annotated[
        Scalar,
        shape(
            shapes.TIMEOUT_OR_NONE,
            "The deadline of callbacks whose jobs have none of their own, ms; 0: the server's again.",
        ),
    ] = None
