"""Bodies of requests. Scalars stay as they came: the checks that Python callers pass through name field, value
and limit, and hold here too. What is true of each field stands beside it, for the OpenAPI document. Names of the
older system are taken where they mean the same."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
from tocsin.actors.scheduler.model.reasons import DEAD_REASONS
from tocsin.dispatch.failure import Failure
from tocsin.errors import InvalidInputError

Scalar = str | int | float | bool | None

ABSENT: Final = msgspec.Raw(b"null")


def whole(value: Scalar) -> Scalar:
    """Return 5.0 and 5e0 as the integer 5: JSON knows only numbers, and some clients write large ones so."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
        """Return the id as given; the port checks its shape."""
        if self.id is None or self.id == "":
            raise InvalidInputError("id is missing")
        return self.id  # type: ignore[return-value]


class SealRequest(Request, frozen=True, kw_only=True):
    """Seals an instance that moves."""

    move: Annotated[str, shape(shapes.NAME, "The name of the move; the same again changes nothing.", needed=True)]
    to: Annotated[str, shape(shapes.PRINTABLE, "Where to, for people.", needed=True)]
    closed: Annotated[bool | None, shape({"type": "boolean"}, "True: nothing of the instance changes any more.")] = None


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


class LettersRequest(Request, frozen=True, kw_only=True):
    """Which dead letters: those that fit all filters, or `all: true` and no filter."""

    rules: ClassVar[tuple[Schema, ...]] = (
        shapes.filters_or_all(pool="string", reason="string", functionPath="string", since="integer", ids="array"),
    )

    pool: Annotated[str | None, shape(shapes.NAME, "Of this pool.")] = None
    reason: Annotated[str | None, shape(shapes.one_of(DEAD_REASONS), "Dead for this reason.")] = None
    function_path: Annotated[str | None, shape(shapes.TEXT, "With this function path, or workflow.")] = None
    since: Annotated[Scalar, shape(shapes.INSTANT, "Parked at this instant or later, epoch ms.")] = None
    ids: Annotated[list[str] | None, shape(shapes.JOB_IDS, "Only these.")] = None
    all: Annotated[bool | None, shape(shapes.FLAG, "Every dead letter.")] = None
    dry_run: Annotated[bool | None, shape(shapes.FLAG, "Only count them.")] = None


class RetryAllRequest(LettersRequest, frozen=True, kw_only=True):
    """Which dead letters are retried, and how fast."""

    rate_per_second: Annotated[Scalar, shape(shapes.RATE, "How many a second.")] = None


class DeadCancelAllRequest(LettersRequest, frozen=True, kw_only=True):
    """Which dead letters are removed."""


class UndoRequest(Request, frozen=True, kw_only=True):
    """Names one action."""

    action_id: Annotated[Scalar, shape(shapes.JOB_ID, "The action, as the audit log names it.", needed=True)] = None

    def required_action(self) -> str:
        """Return the id as given; the port checks its shape."""
        if self.action_id is None or self.action_id == "":
            raise InvalidInputError("actionId is missing")
        return self.action_id  # type: ignore[return-value]


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
        return self.lease  # type: ignore[return-value]  # the port checks its shape


class FailureSaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error that says what failed to programs, too."""

    message: str
    code: Scalar = None
    status: Scalar = None
    data: msgspec.Raw = msgspec.field(default_factory=_absent)

    def failure(self) -> Failure:
        """Return it as the port takes it, and checks it."""
        data = bytes(self.data)
        return Failure(self.message, self.code, whole(self.status), None if data == b"null" else data)  # type: ignore[arg-type]


class CompleteRequest(LeaseRequest, frozen=True, kw_only=True):
    """How an attempt ended."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.done_or_failed(),)

    ok: Annotated[bool | None, shape({**shapes.FLAG, "default": True}, "False: it failed.")] = None
    error: Annotated[
        str | FailureSaid | None,
        shape(
            {"oneOf": [shapes.TEXT, shapes.FAILURE, shapes.NULL]},
            f"What failed, in words, of which the first {shapes.ERROR_KEPT} characters are kept; or with a code for "
            "programs and data.",
        ),
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
        return whole(self.lease_ms)  # type: ignore[return-value]  # the port checks its range


class InstanceRequest(Request, frozen=True, kw_only=True):
    """Settings of an instance: whether it fires, its deadline of callbacks, or both."""

    rules: ClassVar[tuple[Schema, ...]] = (shapes.at_least_one(paused="boolean", timeoutMs="integer"),)

    paused: Annotated[Scalar, shape(shapes.FLAG, "True: start nothing of this instance.")] = None
    timeout_ms: Annotated[
        Scalar,
        shape(
            shapes.TIMEOUT_OR_NONE,
            "The deadline of callbacks whose jobs have none of their own, ms; 0: the server's again.",
        ),
    ] = None
