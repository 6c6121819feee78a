"""Bodies of requests that make jobs: one, a batch, those that follow, and the options that schedules have too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, get_type_hints

import msgspec

from tocsin.actors.http import shapes
from tocsin.actors.http.shapes import Schema, shape
from tocsin.actors.http.wire import Request, Scalar, whole
from tocsin.actors.http.wire_pools import RateRequest
from tocsin.actors.scheduler.model.followers import check_chain
from tocsin.actors.scheduler.model.validation import MAX_BATCH
from tocsin.dispatch.instants import show
from tocsin.dispatch.retry import OlderRetry, Retry
from tocsin.dispatch.trace_context import Trace, parse
from tocsin.errors import InvalidInputError

NO_ARGS: Final = msgspec.Raw(b"{}")
"""Args left out are an empty object, as in the older system."""


def _no_args() -> msgspec.Raw:
    return NO_ARGS


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


class OptionsRequest(Request, frozen=True, kw_only=True):
    """The target, and the options that jobs and schedules have."""

    rules: ClassVar[tuple[Schema, ...]] = (
        shapes.exactly_one("string", "functionPath", "workflow"),
        shapes.needs("maxConcurrency", "pool", "string"),
        shapes.needs("rate", "pool", "string"),
    )
    no_options: ClassVar[frozenset[str]] = frozenset({"instance_name", "args", "then", "on_dead"})

    function_path: Annotated[Scalar, shape(shapes.TARGET, "What the receiver is to run. This or workflow.")] = None
    workflow: Annotated[Scalar, shape(shapes.TARGET, "What the receiver is to start, instead of functionPath.")] = None
    args: Annotated[
        msgspec.Raw, shape({"default": {}}, "Any JSON of at most 256 KiB and 64 levels; kept byte for byte.")
    ] = msgspec.field(default_factory=_no_args)
    queue: Annotated[
        Scalar, shape(shapes.NAME, "Nobody is called back: a worker pulls it from this queue (POST /queues/…/claim).")
    ] = None
    pool: Annotated[Scalar, shape(shapes.NAME, "Start only when this pool has a free slot.")] = None
    max_concurrency: Annotated[
        Scalar, shape(shapes.MAX_CONCURRENCY, "The cap of the pool, until an operator has set it. Needs pool.")
    ] = None
    rate: Annotated[
        RateRequest | None, shape(shapes.RATE_OF_JOB, "The rate of the pool, until an operator has set it. Needs pool.")
    ] = None
    priority: Annotated[Scalar, shape(shapes.PRIORITY, "9 is most urgent; a step is worth 30 s of waiting.")] = None
    retry: RetryRequest | None = None
    timeout_ms: Annotated[
        Scalar,
        shape(shapes.TIMEOUT, "The deadline of each attempt, ms; left out: the instance's or the server's, or 60 s."),
    ] = None
    shard_key: Annotated[Scalar, shape(shapes.TARGET, "Given to the receiver as it is.")] = None
    labels: Annotated[list[Scalar] | Scalar, shape(shapes.LABELS, "Names to find it by.")] = None
    origin: Annotated[
        Scalar, shape(shapes.ORIGIN, "The named origin of the server that is called back, instead of its own.")
    ] = None
    url: Annotated[
        Scalar, shape(shapes.URL, "A URL of the server's list that is called back, instead of an origin.")
    ] = None
    then: Annotated[
        list[FollowingRequest] | None,
        shape(
            shapes.THEN,
            "Jobs that start when this one is done, in the same commit; nested ones make a chain. A schedule "
            "has at most 16 KiB of them.",
        ),
    ] = None
    on_dead: Annotated[
        list[FollowingRequest] | None,
        shape(
            shapes.THEN,
            "Jobs that start when this one dies, in the same commit. Each is told why (`parent.dead`). A schedule has "
            "at most 16 KiB of them.",
        ),
    ] = None

    @property
    def target(self) -> str | None:
        """Return the function path or workflow; None where it is no text (the port refuses that)."""
        named = self.function_path if self.function_path is not None else self.workflow
        return named if isinstance(named, str) else None

    def targets(self) -> Iterator[str | None]:
        """Yield the targets of this job and of all that follow."""
        yield self.target
        for one in (*(self.then or ()), *(self.on_dead or ())):
            yield from one.targets()
        if isinstance(group := getattr(self, "group", None), GroupRequest):
            yield from group.targets()

    def check_instance(self, addressed: str) -> None:
        super().check_instance(addressed)
        if self.then or self.on_dead:
            check_following(self.then, self.on_dead, addressed)
        if isinstance(group := getattr(self, "group", None), GroupRequest):
            group.check_instance(addressed)

    def options(self) -> dict[str, Any]:
        """Return all members but those that are `no_options`, by their names inside, for the checks."""
        names, values, wholes, nothing = _plan(type(self))
        found = values(self)
        if found == nothing:  # as of most
            return {}
        given = {name: value for name, value in zip(names, found, strict=True) if value is not msgspec.UNSET}
        for name in wholes & given.keys():
            given[name] = whole(given[name])
        if self.retry is not None:
            given["retry"] = self.retry.retry()
        if self.rate is not None:
            given["rate"] = self.rate.rate()
        return given


@cache
def _plan(
    kind: type[OptionsRequest],
) -> tuple[tuple[str, ...], Callable[[object], tuple[Any, ...]], frozenset[str], tuple[None, ...]]:
    """Return the names of its options, what reads them all, those that are whole numbers, and what there is to read
    where none is given."""
    names = tuple(name for name in kind.__struct_fields__ if name not in kind.no_options)
    hints = get_type_hints(kind, include_extras=True)
    shapes_of = {name: getattr(hints[name], "__metadata__", [msgspec.Meta()])[0].extra_json_schema for name in names}
    wholes = {name for name, said in shapes_of.items() if said and said[shapes.IS].get("type") == "integer"}
    return names, attrgetter(*names), frozenset(wholes), (None,) * len(names)


class FollowingRequest(OptionsRequest, frozen=True, kw_only=True):
    """A job that is started when another is done. `null` is the same as left out, but for `args`, which are kept byte
    for byte."""

    no_options: ClassVar[frozenset[str]] = OptionsRequest.no_options | {
        "function_path", "workflow", "delay_ms", "scheduled_for", "traceparent", "tracestate",
    }  # fmt: skip

    delay_ms: Annotated[Scalar, shape(shapes.DELAY, "When it is due: ms from now, or from what it follows.")] = None
    expires_at: Annotated[
        Scalar, shape(shapes.INSTANT, "If it still waits at this instant (epoch ms) it is dropped, never sent.")
    ] = None
    keep_result_ms: Annotated[
        Scalar, shape(shapes.KEEP_RESULT, "For how long GET /result can tell what it came to, ms.")
    ] = None
    group: Annotated[Scalar, shape(shapes.NAME, "The group in which it counts; it is there before this starts.")] = None


class GroupRequest(Request, frozen=True, kw_only=True):
    """A group, and what is to follow it."""

    name: Annotated[Scalar, shape(shapes.NAME, "The group.", needed=True)] = None
    size: Annotated[
        Scalar, shape(shapes.GROUP_SIZE, "It is complete with so many members; left out: when it is sealed.")
    ] = None
    then: Annotated[
        list[FollowingRequest] | None,
        shape(shapes.THEN, "Jobs that start when all members have ended and none is dead. They are told the counts."),
    ] = None
    on_dead: Annotated[
        list[FollowingRequest] | None,
        shape(shapes.THEN, "Jobs that start, once, when all members have ended and some are dead."),
    ] = None

    def targets(self) -> Iterator[str | None]:
        """Yield the targets of all that follow."""
        for one in (*(self.then or ()), *(self.on_dead or ())):
            yield from one.targets()

    def check_instance(self, addressed: str) -> None:
        super().check_instance(addressed)
        check_following(self.then, self.on_dead, addressed)


class GroupDeedRequest(Request, frozen=True, kw_only=True):
    """Nothing but the instance: the path names the group."""


def check_following(
    then: Sequence[FollowingRequest] | None, on_dead: Sequence[FollowingRequest] | None, addressed: str
) -> None:
    """Check how many and how deep first: what comes later goes down one call a level."""
    check_chain(then or (), on_dead or ())
    for one in (*(then or ()), *(on_dead or ())):
        one.check_instance(addressed)


class ScheduleRequest(FollowingRequest, frozen=True, kw_only=True):
    """One job. `null` is the same as left out, but for `args`, which are kept byte for byte."""

    rules: ClassVar[tuple[Schema, ...]] = (
        *FollowingRequest.rules,
        shapes.exactly_one_of(scheduledFor="integer", delayMs="integer", debounceMs="integer"),
        shapes.needs("maxWaitMs", "debounceMs", "integer"),
        shapes.needs("onThrottle", "throttleMs", "integer"),
        shapes.needs("debounceMs", "id", "string"),
        shapes.needs("throttleMs", "id", "string"),
        shapes.not_both("debounceMs", "throttleMs"),
        shapes.not_both("debounceMs", "group"),
        shapes.only_with("onThrottle", [None, "refuse"], "group", []),
        shapes.only_with("debounceMs", None, "onConflict", ["replace"]),
        shapes.only_with("onThrottle", [None, "refuse"], "onConflict", ["replace"]),
    )

    scheduled_for: Annotated[
        Scalar, shape(shapes.INSTANT, "When it is due, epoch ms; one that is past is due at once. This or delayMs.")
    ] = None
    group: Annotated[
        GroupRequest | Scalar,
        shape(shapes.GROUP, "The group in which it counts: a name, or what makes the group with its first job."),
    ] = None  # type: ignore[assignment]
    id: Annotated[Scalar, shape(shapes.JOB_ID, "Your own id, free while no job, live or dead, holds it.")] = None
    on_conflict: Annotated[
        Scalar,
        shape(
            shapes.CONFLICT,
            "If the id is taken: 409; keep the live job that is there; or replace it, if it does not run yet.",
        ),
    ] = None
    debounce_ms: Annotated[
        Scalar,
        shape(
            shapes.PUT_OFF,
            "When it is due: ms from now, and each further call of its id puts it off again, with its own args. Goes "
            "with onConflict replace. This, scheduledFor or delayMs.",
        ),
    ] = None
    max_wait_ms: Annotated[
        Scalar, shape(shapes.PUT_OFF, "It is put off no further than so many ms from the first call.")
    ] = None
    throttle_ms: Annotated[
        Scalar, shape(shapes.PUT_OFF, "From when it is due, no further job of its id is accepted for so many ms.")
    ] = None
    on_throttle: Annotated[
        Scalar,
        shape(
            shapes.ON_THROTTLE, "Further calls are refused (429), or merged: the newest is due when the period ends."
        ),
    ] = None
    traceparent: Annotated[
        Scalar, shape(shapes.TRACE, "The trace that its attempts belong to (W3C), in place of the header's.")
    ] = None
    tracestate: Annotated[Scalar, shape(shapes.TRACE, "What goes with traceparent.")] = None

    @property
    def trace(self) -> Trace | None:
        """Return the trace that the job names. One that is not valid is none, as the standard says."""
        for name, value in (("traceparent", self.traceparent), ("tracestate", self.tracestate)):
            if value is not None and not isinstance(value, str):
                raise InvalidInputError(f"{name} must be a text, not {show(value)}")
        return parse(self.traceparent, self.tracestate)


class BatchRequest(Request, frozen=True, kw_only=True):
    """Each job is parsed by itself, so that a wrong one spoils none of the others."""

    jobs: Annotated[
        list[msgspec.Raw],
        msgspec.Meta(max_length=MAX_BATCH),
        shape(shapes.JOBS, "Those that are accepted become one commit.", needed=True),
    ]
