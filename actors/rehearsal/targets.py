"""Named origins that jobs go to, and those that follow them: a rehearsal has all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat

from tocsin.actors.scheduler.model.followers import followers_of, jobs_of, on_dead_of, with_ids
from tocsin.actors.scheduler.model.rows import BadRow, JobRow, args_key


def origins_of(job: JobRow, rows: Mapping[bytes, bytes | None]) -> set[str]:
    """Return the origins that a job names, and whatever follows it; `rows` has the rest of its args. A job without
    extras names none, and neither does what follows it."""
    return set() if job.extras is None else _named((job, *_following(job, rows)))


def origins_after(then: bytes) -> set[str]:
    """Return the origins that jobs name which follow the occurrences of a schedule."""
    try:
        return _named(jobs_of(with_ids(then, repeat(""))))
    except BadRow:
        return set()


def _following(job: JobRow, rows: Mapping[bytes, bytes | None]) -> Iterator[JobRow]:
    whole = b"".join([job.args, *(rows.get(args_key(job.id, n)) or b"" for n in range(job.args_rows))])
    try:
        yield from jobs_of(followers_of(job, whole))
        yield from jobs_of(on_dead_of(job, whole))
    except BadRow:
        return  # the scheduler parks it before it is sent


def _named(jobs: Iterable[JobRow]) -> set[str]:
    return {one.extras.origin for one in jobs if one.extras is not None and one.extras.origin}
