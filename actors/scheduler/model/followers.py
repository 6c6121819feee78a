"""`then` and `on_dead`: the jobs that follow one when it is done, or dead, as they are stored with it, behind its args.

Every id is given when the chain is submitted, so it is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model.extras import any_extras
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import INLINE_ARGS, JobRow, Row, decode
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError, PayloadTooLargeError

MAX_FOLLOWERS: Final = 20
"""Jobs that one job may start when it is done, and as many when it is dead."""
MAX_CHAIN: Final = 100
"""Jobs in `then` and `on_dead`, nested ones counted."""
MAX_LEVELS: Final = 50
_ELSE: Final = "let the last one submit the rest"
MAX_THEN: Final = 256 * 1024
"""Bytes of a stored `then`, and of a stored `on_dead`."""


class Follower(Row, frozen=True, array_like=True, tag=1):
    """A job that is started by the success of another, or by its death: everything but its due instant. All its args
    are in `job.args`."""

    job: JobRow
    delay_ms: int = 0
    then: tuple[Follower, ...] = ()
    on_dead: tuple[Follower, ...] = ()


class Followers(Row, frozen=True, array_like=True, tag=1):
    """The chained jobs stored behind the args of a job with `then`."""

    jobs: tuple[Follower, ...]


def targets(followers: Sequence[Follower]) -> Iterator[str]:
    """Yield what they are to run, nested ones too."""
    for one in followers:
        yield one.job.target
        yield from targets(one.then)
        yield from targets(one.on_dead)


def jobs_of(followers: Sequence[Follower]) -> Iterator[JobRow]:
    """Yield the jobs that follow, nested ones too."""
    for one in followers:
        yield one.job
        yield from jobs_of(one.then)
        yield from jobs_of(one.on_dead)


def check_then(followers: Sequence[Follower], on_dead: Sequence[Follower] = ()) -> tuple[Follower, ...]:
    """Refuse more than a commit could start, or a row could hold; return the followers."""
    check_chain(followers, on_dead)
    return tuple(followers)


def check_chain(then: Sequence[Any], on_dead: Sequence[Any] = ()) -> None:
    """Refuse the same of jobs as they came, before anything is done for each: they have a `then` and an `on_dead`, or
    None."""
    level, levels, counted = [*then, *on_dead], 0, 0
    while level:
        levels, counted = levels + 1, counted + len(level)
        if levels > MAX_LEVELS:
            raise InvalidInputError(f"then is nested deeper than {MAX_LEVELS} levels")
        level = [below for one in level for below in (*(one.then or ()), *(one.on_dead or ()))]
    for name, started in (("then", then), (word("on_dead"), on_dead)):
        if len(started) > MAX_FOLLOWERS:
            raise InvalidInputError(f"{name} starts {len(started)} jobs, at most {MAX_FOLLOWERS} are allowed: {_ELSE}")
    if counted > MAX_CHAIN:
        raise InvalidInputError(f"the chain has {counted} jobs, at most {MAX_CHAIN} are allowed: {_ELSE}")


def with_blob(
    job: JobRow,
    args: bytes,
    followers: tuple[Follower, ...],
    parent_result: bytes = b"",
    on_dead: tuple[Follower, ...] = (),
) -> NewJob:
    """Make a job with everything that is stored as its args, cut into the pieces that rows hold."""
    then, dying = encoded(followers, "then"), encoded(on_dead, word("on_dead"))
    whole = args + then + dying + parent_result
    rest = [whole[n : n + INLINE_ARGS] for n in range(INLINE_ARGS, len(whole), INLINE_ARGS)]
    extras = job.extras or extras_before(followers, on_dead)
    if dying and extras is not None:
        extras = msgspec.structs.replace(extras, on_dead_size=len(dying))
    row = msgspec.structs.replace(
        job,
        args=whole[:INLINE_ARGS],
        args_rows=len(rest),
        args_size=len(args) if then or dying or parent_result else None,
        then_size=len(then),
        chained=(*targets(followers), *targets(on_dead)),
        extras=extras,
    )
    return NewJob(row, rest)


def encoded(followers: tuple[Follower, ...], name: str) -> bytes:
    """Encode what is to follow; b"" if nothing is. `name` is the argument that gave it."""
    text = msgspec.msgpack.encode(Followers(followers)) if followers else b""
    if len(text) > MAX_THEN:
        raise PayloadTooLargeError(f"{name}: {len(text)} bytes with its args, at most {MAX_THEN}", limit=MAX_THEN)
    return text


def extras_before(then: Sequence[Follower], on_dead: Sequence[Follower]) -> JobExtras | None:
    """Return extras that say nothing if an older tocsin would misread what follows; None for most."""
    return JobExtras() if on_dead else any_extras(jobs_of(then))


def followers_of(job: JobRow, whole: bytes) -> tuple[Follower, ...]:
    """Read what is to follow a job when it is done; raises BadRow."""
    then = parts_of(job, whole).then
    return decode(Followers, b"then of " + job.id.encode(), then).jobs if then else ()


def on_dead_of(job: JobRow, whole: bytes) -> tuple[Follower, ...]:
    """Read what is to follow the death of a job; raises BadRow."""
    dying = parts_of(job, whole).on_dead
    return decode(Followers, b"onDead of " + job.id.encode(), dying).jobs if dying else ()


def without_ids(followers: tuple[Follower, ...]) -> bytes:
    """Encode what follows the occurrences of a schedule: without ids, which each occurrence gives."""
    return msgspec.msgpack.encode(Followers(renamed(followers, repeat("")))) if followers else b""


def with_ids(then: bytes, mint: Iterator[str]) -> tuple[Follower, ...]:
    """Read what follows one occurrence, with ids of its own; raises BadRow."""
    return renamed(decode(Followers, b"then", then).jobs, mint) if then else ()


def renamed(followers: Sequence[Follower], mint: Iterator[str]) -> tuple[Follower, ...]:
    """Give the same chain other ids: those of an occurrence, whose schedule has one chain for all of them."""
    return tuple(
        Follower(
            msgspec.structs.replace(one.job, id=next(mint)),
            one.delay_ms,
            renamed(one.then, mint),
            renamed(one.on_dead, mint),
        )
        for one in followers
    )


def same_but_ids(stored: bytes, job: JobRow, asked: bytes, new: JobRow) -> bool:
    """Tell whether two jobs have the same args and the same chain; ids of a chain are new each time it is submitted."""
    if not new.chained:
        return stored == asked
    both = ((job, stored), (new, asked))
    chains = [
        (renamed(followers_of(one, whole), repeat("")), renamed(on_dead_of(one, whole), repeat("")))
        for one, whole in both
    ]
    return parts_of(job, stored).args == parts_of(new, asked).args and chains[0] == chains[1]
