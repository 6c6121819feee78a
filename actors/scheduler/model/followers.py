"""`then`: the jobs that follow one when it is done, as they are stored with it, behind its args.

Every id is given when the chain is submitted, so it is known beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from tocsin.actors.scheduler.model.extras import any_extras
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import INLINE_ARGS, JobRow, Row, decode
from tocsin.errors import InvalidInputError, PayloadTooLargeError

MAX_FOLLOWERS: Final = 20
"""Jobs that one job may start when it is done."""
MAX_CHAIN: Final = 100
"""Jobs in `then`, nested ones counted."""
MAX_LEVELS: Final = 50
_ELSE: Final = "let the last one submit the rest"
MAX_THEN: Final = 256 * 1024
"""Bytes of a stored `then`."""


class Follower(Row, frozen=True, array_like=True, tag=1):
    """A job that is started by the success of another: everything but its due instant. All its args are in
    `job.args`."""

    job: JobRow
    delay_ms: int = 0
    then: tuple[Follower, ...] = ()


class Followers(Row, frozen=True, array_like=True, tag=1):
    """The chained jobs stored behind the args of a job with `then`."""

    jobs: tuple[Follower, ...]


def targets(followers: Sequence[Follower]) -> Iterator[str]:
    """Yield what they are to run, nested ones too."""
    for one in followers:
        yield one.job.target
        yield from targets(one.then)


def jobs_of(followers: Sequence[Follower]) -> Iterator[JobRow]:
    """Yield the jobs that follow, nested ones too."""
    for one in followers:
        yield one.job
        yield from jobs_of(one.then)


def check_then(followers: Sequence[Follower]) -> tuple[Follower, ...]:
    """Refuse more than a commit could start, or a row could hold."""
    check_chain(followers)
    return tuple(followers)


def check_chain(then: Sequence[Any]) -> None:
    """Refuse the same of jobs as they came, before anything is done for each: they have a `then`, or None."""
    level, levels, counted = list(then), 0, 0
    while level:
        levels, counted = levels + 1, counted + len(level)
        if levels > MAX_LEVELS:
            raise InvalidInputError(f"then is nested deeper than {MAX_LEVELS} levels")
        level = [below for one in level for below in one.then or ()]
    if len(then) > MAX_FOLLOWERS:
        raise InvalidInputError(f"then starts {len(then)} jobs, at most {MAX_FOLLOWERS} are allowed: {_ELSE}")
    if counted > MAX_CHAIN:
        raise InvalidInputError(f"the chain has {counted} jobs, at most {MAX_CHAIN} are allowed: {_ELSE}")


def with_blob(job: JobRow, args: bytes, followers: tuple[Follower, ...], parent_result: bytes = b"") -> NewJob:
    """Make a job with everything that is stored as its args, cut into the pieces that rows hold."""
    then = msgspec.msgpack.encode(Followers(followers)) if followers else b""
    if len(then) > MAX_THEN:
        raise PayloadTooLargeError(f"then: {len(then)} bytes with its args, at most {MAX_THEN}", limit=MAX_THEN)
    whole = args + then + parent_result
    rest = [whole[n : n + INLINE_ARGS] for n in range(INLINE_ARGS, len(whole), INLINE_ARGS)]
    row = msgspec.structs.replace(
        job,
        args=whole[:INLINE_ARGS],
        args_rows=len(rest),
        args_size=len(args) if then or parent_result else None,
        then_size=len(then),
        chained=tuple(targets(followers)),
        extras=job.extras or any_extras(jobs_of(followers)),
    )
    return NewJob(row, rest)


def followers_of(job: JobRow, whole: bytes) -> tuple[Follower, ...]:
    """Read what is to follow a job; raises BadRow."""
    then = parts_of(job, whole).then
    return decode(Followers, b"then of " + job.id.encode(), then).jobs if then else ()


def without_ids(followers: tuple[Follower, ...]) -> bytes:
    """Encode what follows the occurrences of a schedule: without ids, which each occurrence gives."""
    return msgspec.msgpack.encode(Followers(renamed(followers, repeat("")))) if followers else b""


def with_ids(then: bytes, mint: Iterator[str]) -> tuple[Follower, ...]:
    """Read what follows one occurrence, with ids of its own; raises BadRow."""
    return renamed(decode(Followers, b"then", then).jobs, mint) if then else ()


def renamed(followers: Sequence[Follower], mint: Iterator[str]) -> tuple[Follower, ...]:
    """Give the same chain other ids: those of an occurrence, whose schedule has one chain for all of them."""
    return tuple(
        Follower(msgspec.structs.replace(one.job, id=next(mint)), one.delay_ms, renamed(one.then, mint))
        for one in followers
    )


def same_but_ids(stored: bytes, job: JobRow, asked: bytes, new: JobRow) -> bool:
    """Tell whether two jobs have the same args and the same chain; ids of a chain are new each time it is submitted."""
    if not new.then_size:
        return stored == asked
    chains = (renamed(followers_of(one, whole), repeat("")) for one, whole in ((job, stored), (new, asked)))
    return parts_of(job, stored).args == parts_of(new, asked).args and next(chains) == next(chains)
