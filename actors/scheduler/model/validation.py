"""Validate the arguments of callers at the call: every refusal names the argument, the value and the limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model.crockford import Minting as Minting
from tocsin.actors.scheduler.model.crockford import mint_id as mint_id
from tocsin.actors.scheduler.model.extras import EXTRAS, extras_of, new_group_in
from tocsin.actors.scheduler.model.followers import Follower, check_then, extras_before, with_blob
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import INLINE_ARGS, LARGEST_MS, JobRow
from tocsin.actors.scheduler.model.timing import NO_ID, TIMING, timed
from tocsin.dispatch import values
from tocsin.dispatch.durations import duration_ms as duration_ms
from tocsin.dispatch.instants import SMALLEST_MS as SMALLEST_MS
from tocsin.dispatch.instants import epoch_ms as epoch_ms
from tocsin.dispatch.instants import instant_ms as instant_ms
from tocsin.dispatch.instants import show
from tocsin.dispatch.retry import OlderRetry, Retry
from tocsin.dispatch.surrogates import UNPAIRED, is_whole
from tocsin.dispatch.values import MAX_DEPTH
from tocsin.dispatch.words import meant, word
from tocsin.errors import InvalidInputError, InvalidScheduleIdError, PayloadTooLargeError, RequestError, TocsinError

MAX_ARGS: Final = 256 * 1024
MAX_LABELS: Final = 20
MAX_BATCH: Final = 1_000
MAX_BATCH_BYTES: Final = 7 * 1024 * 1024
MAX_BATCH_PATHS: Final = 2_000
"""Different function paths in a batch, those of chains too: each is a row."""
"""Of args and names in one call: with what else is written of each job it still fits one commit (8 MiB)."""
MAX_BATCH_LABELS: Final = 5_000
"""In a call, all jobs together: each is a row."""
LONGEST_PLACE: Final = 500
MAX_TARGET: Final = 512
MAX_LEASE: Final = 200
TIMEOUT_MS: Final = (1_000, 3_600_000)
DELAY_MS: Final = (0, 900_000_000_000_000)
"""Of a delay over HTTP: what it ends at is an instant that can be stored until the year 5138."""
PRIORITY: Final = (-9, 9)
MAX_CONCURRENCY: Final = (1, 10_000)
CAP: Final = (0, 10_000)
"""Of a pool as operators set it: 0 holds all its jobs."""
LEASE_MS: Final = (1_000, 3_600_000)
KEEP_RESULT_MS: Final = (1_000, 7 * 86_400_000)
CLAIM_MAX: Final = (1, 100)
"""Jobs that a worker gets in one answer."""
CLAIM_WAIT_MS: Final = (0, 300_000)
QUEUES_MAX: Final = 100
"""Queues that one claim may name, or leave out."""
PID: Final = (0, 2**63 - 1)
RATE_PER_SECOND: Final = (1, 1_000)
PAGE_LIMIT: Final = (1, 1_000)
INSTANCE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}", re.ASCII)
ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}", re.ASCII)
NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}", re.ASCII)
CONFLICTS: Final = ("error", "keep", "replace")

_NESTING = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


# ---- Time ----------------------------------------------------------------------------------------


def delayed(now: int, delay_ms: int, name: str) -> int:
    """Return now plus a delay; refused where no row can hold that instant."""
    due = now + delay_ms
    if due > LARGEST_MS:
        raise InvalidInputError(f"{name} of {show(delay_ms)} ms ends after the largest instant, {LARGEST_MS} ms")
    return due


# ---- Names and numbers ---------------------------------------------------------------------------
# `field` is the name of the argument inside; a refusal says the caller's word for it.


def instance_name(value: object) -> str:
    if not isinstance(value, str) or not INSTANCE.fullmatch(value):
        raise InvalidInputError(
            f"an instance name must match {INSTANCE.pattern} (1 to 128 characters), not {show(value)}"
        )
    return exact(value)


def schedule_id(value: object) -> str:
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise InvalidScheduleIdError(f"id must match {ID.pattern} (1 to 64 characters), not {show(value)}")
    if value.startswith("__"):
        raise InvalidScheduleIdError(f"ids that start with __ are the system's: {show(value)}")
    return exact(value)


def lease_token(value: object) -> str:
    """Return the token, which must be a text of a possible length."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_LEASE:
        raise InvalidInputError(
            "lease must be the text that came with the claimed job, or with the callback as tocsin-lease"
        )
    return value


def plain_name(value: object, field: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidInputError(f"{word(field)} must be 1 to 128 characters of [A-Za-z0-9_.:-], not {show(value)}")
    return exact(value)


def exact(value: str) -> str:
    """Return a text of a class of the caller's as the plain text it is: rows hold no other."""
    return value if type(value) is str else str.__str__(value)


def integer(value: object, field: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{word(field)} must be an integer, not {show(value)}")
    if not least <= value <= most:
        raise InvalidInputError(f"{word(field)} must be {least}..{most}, not {show(value)}")
    return value


def queues_of(value: object, field: str) -> tuple[str, ...]:
    """Check names of queues: one, or a list."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence):
        raise InvalidInputError(f"{field} must be the name of a queue or a list of names, not {show(value)}")
    if len(names) > QUEUES_MAX:
        raise InvalidInputError(f"{field}: {len(names)} given, at most {QUEUES_MAX} allowed")
    return tuple(plain_name(name, f"{field}[{n}]") for n, name in enumerate(names))


def labels_of(value: object, field: str = "labels") -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInputError(f"{word(field)} must be a list of texts, not {show(value)}")
    if len(value) > MAX_LABELS:
        raise InvalidInputError(f"{word(field)}: {len(value)} given, at most {MAX_LABELS} allowed")
    return tuple(dict.fromkeys(plain_name(label, f"{field}[{n}]") for n, label in enumerate(value)))


def target(value: object, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{word(field)} must be a text that is not empty, not {show(value)}")
    if len(value) > MAX_TARGET:
        raise InvalidInputError(f"{word(field)} has {len(value)} characters, at most {MAX_TARGET} are allowed")
    return whole_text(value, field)


def whole_text(value: str, field: str) -> str:
    if not (value.isascii() or is_whole(value)):
        raise InvalidInputError(f"{word(field)} {UNPAIRED}: {show(value)}")
    return exact(value)


# ---- Args ----------------------------------------------------------------------------------------


def encode_args(value: object, max_bytes: int = MAX_ARGS, name: str = "args") -> bytes:
    """Encode as JSON text, with tags for what JSON lacks; anything else is refused with its path
    (`args.items[3].when`)."""
    raw = values.encode(value, name)
    if len(raw) > max_bytes:
        raise _too_large(raw, max_bytes, name)
    return raw


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Let refusals in this block say where in the request they are: `then[0]: ...`."""
    try:
        yield
    except RequestError as error:
        raise named(error, place) from None


def named(error: TocsinError, place: str) -> TocsinError:
    """Return the same refusal, which says where in the request it is; another error as it is."""
    return type(error)(f"{place}: {error.message}", **error.details) if isinstance(error, RequestError) else error


def raw(text: bytes) -> msgspec.Raw:
    """Pass stored JSON on as it is."""
    return msgspec.Raw(text or b"null")


def raw_args(raw: bytes, max_bytes: int = MAX_ARGS, name: str = "args") -> bytes:
    """Check JSON text that came over HTTP for size, depth and that it can be read; it is kept byte for byte."""
    if len(raw) > max_bytes:
        raise _too_large(raw, max_bytes, name)
    if (depth := _depth(raw)) > MAX_DEPTH:
        raise InvalidInputError(f"{name} is nested deeper than {MAX_DEPTH} levels: {depth}")
    values.decode(raw, name)
    return raw


def _depth(raw: bytes) -> int:
    """Count how deep JSON text nests, without reading it: strings are passed over."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for token in _NESTING.finditer(raw):
        if token[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in (b"]", b"}"):
            depth -= 1
    return deepest


def _too_large(raw: bytes, max_bytes: int, name: str) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"{name}: {len(raw)} bytes of JSON, the limit is {max_bytes}", limit=max_bytes)


# ---- A whole job ---------------------------------------------------------------------------------


def new_job(
    *,
    function_path: str | None,
    workflow: str | None,
    args: bytes,
    scheduled_for: int,
    enqueued_at: int,
    minted: str,
    options: Mapping[str, Any],
    initiator: tuple[str, str] = ("", ""),
    relative: bool = False,
    knows_now: bool = True,
) -> NewJob:
    """Check everything a caller may give with a job. `options` has keys of OPTIONS; None means not given. `relative`:
    it is due after a delay; whoever does not know the instance's clock (`knows_now`) cannot say if it expires before.
    """
    if (function_path is None) == (workflow is None):
        raise InvalidInputError(f"give exactly one of {word('function_path')} and workflow")
    given = {name: value for name, value in options.items() if value is not None}
    if not given.keys() <= OPTIONS:
        unknown = min(given.keys() - OPTIONS)
        raise InvalidInputError(
            f"unknown option {unknown!r}{meant(unknown, OPTIONS)}: choose from {', '.join(sorted(OPTIONS))}"
        )
    conflict = given.get("on_conflict", "error")
    if conflict not in CONFLICTS:
        raise InvalidInputError(f"{word('on_conflict')} must be one of {', '.join(CONFLICTS)}, not {show(conflict)}")
    chosen, then, fits = "id" in given, given.get("then"), len(args) <= INLINE_ARGS
    on_dead = given.get("on_dead")
    job = JobRow(
        id=schedule_id(given["id"]) if chosen else minted,
        incarnation="",
        scheduled_for=scheduled_for,
        enqueued_at=enqueued_at,
        args=args if fits else b"",
        function_path=None if function_path is None else target(function_path, "function_path"),
        workflow=None if workflow is None else target(workflow, "workflow"),
        **checked_options(given),
        older_retry=isinstance(given.get("retry"), OlderRetry),
        initiator=("", target(given["initiator"], "initiator")) if "initiator" in given else initiator,
    )
    if job.expires_at is not None and job.expires_at <= scheduled_for and (knows_now or not relative):
        limit = f"must be after the due instant ({scheduled_for})"
        raise InvalidInputError(f"{word('expires_at')} {limit}, not {job.expires_at}: the job would never run")
    if fits and not then and not on_dead:
        new = NewJob(job, (), chosen, conflict, relative, group=new_group_in(given))  # as most are
    else:
        whole = with_blob(job, args, check_then(then or (), on_dead or ()), on_dead=tuple(on_dead or ()))
        new = msgspec.structs.replace(
            whole, chosen=chosen, on_conflict=conflict, relative=relative, group=new_group_in(given)
        )
    return new if given.keys().isdisjoint(TIMING) else timed(new, given)


def simple_job(
    path: str | None, args: bytes, due: int, options: Mapping[str, Any], now: int, mint: Callable[[int], str],
    initiator: tuple[str, str], relative: bool = False,
) -> NewJob | None:  # fmt: skip
    """Check a job that has a path, args and perhaps an id: `new_job` in one pass. None for any other, and for any that
    may be wrong: `new_job` says what."""
    job_id: object = None
    for name, value in options.items():
        if value is not None:
            if name != "id":
                return None
            job_id = value
    if type(path) is not str or not 0 < len(path) <= MAX_TARGET or not path.isascii() or path.isspace():
        return None
    if len(args) > INLINE_ARGS:
        return None
    if job_id is None:
        return NewJob(JobRow(mint(now), "", due, now, args, 0, path, initiator=initiator), (), False, "error", relative)
    if type(job_id) is not str or ID.fullmatch(job_id) is None or job_id.startswith("__"):
        return None
    return NewJob(JobRow(job_id, "", due, now, args, 0, path, initiator=initiator), (), True, "error", relative)


def follower(
    *,
    function_path: str | None,
    workflow: str | None,
    args: bytes,
    delay_ms: int,
    minted: str,
    options: Mapping[str, Any],
) -> Follower:
    """Check one job of a `then`. It takes the options of a job, but for an id of the caller's."""
    given = {name: value for name, value in options.items() if value is not None}
    needs_id = (("on_conflict", NO_ID), *((name, NO_ID) for name in sorted(TIMING)))
    for name, why in (("id", "ids of a chain are made here"), *needs_id):
        if name in given:
            raise InvalidInputError(f"{word(name)} cannot be given in then: {why}")
    if new_group_in(given) is not None:
        raise InvalidInputError("group cannot be defined in then: open it first, and name it here")
    on_dead = tuple(given.pop("on_dead", ()))
    followers = check_then(given.pop("then", ()), on_dead)
    new = new_job(
        function_path=function_path, workflow=workflow, args=b"", scheduled_for=0, enqueued_at=0, minted=minted,
        options=given,
    )  # fmt: skip
    row = msgspec.structs.replace(new.job, args=args, extras=new.job.extras or extras_before(followers, on_dead))
    return Follower(row, integer(delay_ms, "after_ms", *DELAY_MS), followers, on_dead)


def keep_result_ms(value: object) -> int:
    """Validate `keep_result`; errors use the Python argument name."""
    ms, (least, most) = duration_ms(value, "keep_result"), KEEP_RESULT_MS
    if not least <= ms <= most:
        raise InvalidInputError(f"keep_result must be 1 s to 7 d ({least}..{most} ms), not {show(value)}")
    return ms


# ---- Options -------------------------------------------------------------------------------------


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the options that are members of rows, and return them by the names of those members. What is not given has
    its default there; what has no check is passed over."""
    if "max_concurrency" in given and "pool" not in given:
        raise InvalidInputError(f"{word('max_concurrency')} is the cap of a pool: give pool as well")
    checked = {name: check(given[name], name) for name, check in _CHECKS.items() if name in given}
    if (extras := extras_of(given)) is not None:
        checked["extras"] = extras
    return checked


def _between(limits: tuple[int, int]) -> Callable[[object, str], int]:
    return lambda value, field: integer(value, field, *limits)


def _retry(value: object, field: str) -> Retry:
    if not isinstance(value, Retry):
        raise InvalidInputError(f"{word(field)} must be a Retry, not {show(value)}")
    return value


_CHECKS: Final[Mapping[str, Callable[[Any, str], object]]] = {
    "pool": plain_name,
    "queue": plain_name,
    "priority": _between(PRIORITY),
    "max_concurrency": _between(MAX_CONCURRENCY),
    "retry": _retry,
    "timeout_ms": _between(TIMEOUT_MS),
    "expires_at": lambda value, field: instant_ms(value, word(field)),
    "shard_key": target,
    "labels": labels_of,
    "keep_result_ms": _between(KEEP_RESULT_MS),
}
OPTIONS: Final = frozenset({*_CHECKS, *EXTRAS, "id", "on_conflict", "initiator", "then", "on_dead", *TIMING})
