"""What requests about schedules hold. As in `wire`, scalars stay as they came, and the checks of Python hold."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
from tocsin.actors.http.wire import NO_ARGS, FollowingRequest, Request, RetryRequest, Scalar, check_following, whole


class DefinitionRequest(Request, frozen=True, kw_only=True):
    """One schedule. `null` is the same as left out, but for `args`, kept byte for byte, and `catchUpLimit`. What is
    left out has its default, but for `paused`, which stays as it is."""

    rules: ClassVar[tuple[Schema, ...]] = (
        shapes.exactly_one_of(cron="string", everyMs="integer", at="integer"),
        shapes.exactly_one("string", "functionPath", "workflow"),
        shapes.needs("maxConcurrency", "pool", "string"),
    )

    cron: Annotated[Scalar, shape(shapes.CRON, "Five fields, or six with seconds first. This, everyMs or at.")] = None
    every_ms: Annotated[Scalar, shape(shapes.EVERY, "So often, ms, from when the rule was put. Instead of cron.")] = (
        None
    )
    at: Annotated[Scalar, shape(shapes.INSTANT, "Once at this instant, epoch ms. Instead of cron.")] = None
    timezone: Annotated[Scalar, shape(shapes.TIMEZONE, "An IANA name: whose clock cron is read on.")] = None
    function_path: Annotated[Scalar, shape(shapes.TARGET, "What the receiver is to run. This or workflow.")] = None
    workflow: Annotated[Scalar, shape(shapes.TARGET, "What the receiver is to start, instead of functionPath.")] = None
    args: Annotated[
        msgspec.Raw, shape({"default": {}}, "Any JSON of at most 256 KiB and 64 levels; kept byte for byte.")
    ] = msgspec.field(default_factory=lambda: NO_ARGS)
    pool: Annotated[Scalar, shape(shapes.NAME, "Occurrences start only when this pool has a free slot.")] = None
    max_concurrency: Annotated[
        Scalar, shape(shapes.MAX_CONCURRENCY, "The cap of the pool, until an operator has set it. Needs pool.")
    ] = None
    priority: Annotated[Scalar, shape(shapes.PRIORITY, "9 is most urgent; a step is worth 30 s of waiting.")] = None
    labels: Annotated[list[Scalar] | Scalar, shape(shapes.LABELS, "Names to find its occurrences by.")] = None
    shard_key: Annotated[Scalar, shape(shapes.TARGET, "Given to the receiver as it is.")] = None
    retry: RetryRequest | None = None
    timeout_ms: Annotated[Scalar, shape(shapes.TIMEOUT, "The deadline of each callback, ms.")] = None
    expires_after_ms: Annotated[
        Scalar, shape(shapes.EVERY, "An occurrence that still waits so long after it was due is dropped, ms.")
    ] = None
    misfire: Annotated[
        Scalar,
        shape(
            shapes.MISFIRE,
            "Slots seen later than graceMs: skip them; one job for the newest; or a job for all of the newest "
            "catchUpLimit.",
        ),
    ] = None
    grace_ms: Annotated[Scalar, shape(shapes.GRACE, "From when on a slot is late, ms.")] = None
    catch_up_limit: Annotated[
        Scalar | msgspec.UnsetType, shape(shapes.CATCH_UP, "For misfire all: at most so many; null is no limit.")
    ] = msgspec.UNSET
    overlap: Annotated[
        Scalar,
        shape(
            shapes.OVERLAP,
            "A slot that comes while an occurrence runs or retries: skip it; hold one back until that ends; or allow.",
        ),
    ] = None
    jitter_ms: Annotated[
        Scalar, shape(shapes.JITTER_MS, "Every slot starts later by an offset below this, ms, the same each time.")
    ] = None
    paused: Annotated[Scalar, shape(shapes.FLAG, "True: its slots pass as skipped. Left out: as it is.")] = None
    revision: Annotated[
        Scalar, shape(shapes.REVISION, "The one that was read, 0 for none; 409 if it is not the latest any more.")
    ] = None
    queue: Annotated[Scalar, shape(shapes.NAME, "Occurrences are pulled from this queue, not called back.")] = None
    then: Annotated[
        list[FollowingRequest] | None, shape(shapes.THEN, "What starts when an occurrence is done; 16 KiB at most.")
    ] = None

    @property
    def target(self) -> str | None:
        """The function path or workflow; None where it is no text (the handle refuses that)."""
        named = self.function_path if self.function_path is not None else self.workflow
        return named if isinstance(named, str) else None

    def check_instance(self, addressed: str) -> None:
        super().check_instance(addressed)
        check_following(self.then, addressed)

    def definition(self) -> dict[str, Any]:
        """For `Schedules.new_schedule`."""
        given = {
            "cron": self.cron,
            "every_ms": whole(self.every_ms),
            "at": whole(self.at),
            "timezone": self.timezone,
            "function_path": self.function_path,
            "workflow": self.workflow,
            "pool": self.pool,
            "max_concurrency": whole(self.max_concurrency),
            "priority": whole(self.priority),
            "labels": self.labels,
            "shard_key": self.shard_key,
            "retry": None if self.retry is None else self.retry.retry(),
            "timeout_ms": whole(self.timeout_ms),
            "expires_after_ms": whole(self.expires_after_ms),
            "misfire": self.misfire,
            "grace_ms": whole(self.grace_ms),
            "overlap": self.overlap,
            "jitter_ms": whole(self.jitter_ms),
            "queue": self.queue,
        }
        if self.catch_up_limit is not msgspec.UNSET:
            given["catch_up_limit"] = whole(self.catch_up_limit)
        return given


class RevisionRequest(Request, frozen=True, kw_only=True):
    """Nothing, or which revision is meant."""

    revision: Annotated[
        Scalar, shape(shapes.REVISION, "The one that was read; 409 if it is not the latest any more.")
    ] = None


class TriggerRequest(Request, frozen=True, kw_only=True):
    """Nothing, or a key that makes this happen once."""

    request_key: Annotated[
        Scalar, shape(shapes.REQUEST_KEY, "The same key again answers the same occurrence, and makes none.")
    ] = None
