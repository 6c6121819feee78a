"""Rebuild what is summarised (lines, counters) from what is there, after an unreadable row was set aside.

Walks every row, so it runs only then: at activation, before the first event; and in a repair (`mending`). A job that
stands nowhere any more, because its lease or place could not be read, goes back to its line at its own due time.
One that stands in two places keeps the one that comes first: its lease, its line, its dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from tocsin.actors.scheduler.labels import dead_rows, live_rows
from tocsin.actors.scheduler.lines import Lines
from tocsin.actors.scheduler.lost import NO_JOB
from tocsin.actors.scheduler.rows import (
    AtRow,
    BadRow,
    DeadRow,
    JobRow,
    LinesRow,
    ParkedRow,
    at_key,
    bad_key,
    dead_key,
    encode,
    job_key,
    line_key,
    lines_key,
)
from tocsin.actors.scheduler.shapes import Shape, read_row
from tocsin.actors.scheduler.suspects import place_in, queue_of

if TYPE_CHECKING:
    from tocsin.actors.scheduler.book import Book

Places = dict[tuple[str, str], dict[int, tuple[int, int]]]


@dataclass(slots=True)
class Rebuilt:
    """What was found: readable jobs (without their args), and which of them are dead letters."""

    jobs: dict[str, JobRow] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    dead: dict[str, DeadRow] = field(default_factory=dict)


async def rebuild(book: Book) -> Rebuilt:
    """Memory and summaries anew; history, answers, redrives and timers are not looked at."""
    found = Rebuilt()
    for shape in await _read(book, b"job"):
        found.jobs[shape.names[0]] = msgspec.structs.replace(shape.row, args=b"")
    _orphan(book, found.jobs)
    at = {shape.names[0]: shape.row for shape in await _read(book, b"at")}
    places, moved = await _places(book, found, at)
    await _letters(book, found, moved)
    _leftovers(book, found, at)
    await _replace_lines(book, places)
    orphans = sum(lease.orphan for _, lease in book.leases.values())
    book.counters = msgspec.structs.replace(
        book.counters,
        waiting=len(found.waiting),
        leased=len(book.leases) - orphans,
        orphaned=orphans,
        dead=len(found.dead),
    )
    living = [job for job_id, job in found.jobs.items() if job_id not in found.dead]
    await book.paths.replace(living)
    await book.labels.replace(_labels(book, found, at | moved))
    for job_id, place in moved.items():
        book.enter_line(found.jobs[job_id], place)
    for job_id, job in found.jobs.items():
        if job_id not in found.waiting and job_id not in moved and not _is_held(book, found, job_id):
            book.enter_line(job, at.get(job_id, AtRow(job.scheduled_for)))
    return found


def _labels(book: Book, found: Rebuilt, at: Mapping[str, AtRow]) -> dict[bytes, bytes]:
    right: dict[bytes, bytes] = {}
    for job_id, job in found.jobs.items():
        if (letter := found.dead.get(job_id)) is not None:
            right.update(dead_rows(job, letter))
            continue
        token = book.lease_of(job_id)
        place = at.get(job_id) if token is None else book.leases[token][1].at
        right.update(live_rows(job, job.scheduled_for if place is None else place.next_at))
    return right


def _is_held(book: Book, found: Rebuilt, job_id: str) -> bool:
    return job_id in found.dead or book.lease_of(job_id) is not None


async def _read(book: Book, family: bytes) -> list[Shape]:
    """The readable rows of a family; the others are set aside."""
    shapes: list[Shape] = []
    for key, value in await book.all_rows(family + b"/"):
        try:
            shape = read_row(key, value)
        except BadRow as error:
            book.set_aside(key, value, str(error))
            continue
        if shape is not None:
            shapes.append(shape)
    return shapes


def _orphan(book: Book, jobs: dict[str, JobRow]) -> None:
    """An attempt without a job, or beside a later attempt of it, holds its slot until it ends and settles nothing."""
    for tokens in list(book.by_id.values()):
        mine = [token for token in tokens if not book.leases[token][1].orphan]
        mine.sort(key=lambda token: (book.leases[token][1].at.attempt, book.leases[token][1].started))
        kept = None
        for token in reversed(mine):
            job_id, lease = book.leases[token]
            job = jobs.get(job_id)
            if kept is None and job is not None and job.incarnation == lease.incarnation:
                kept = token
            else:
                book.change_lease(token, orphan=True)


async def _places(book: Book, found: Rebuilt, at: dict[str, AtRow]) -> tuple[Places, dict[str, AtRow]]:
    """Who waits where, and who is to be moved: the row says where the job stands, unless the job says more."""
    places: Places = {}
    keys: dict[str, list[bytes]] = {}
    for shape in await _read(book, b"line"):
        job_id, key = shape.names[4], b"line/" + "/".join(shape.names).encode()
        if job_id not in found.jobs:
            _set_aside(book, key, NO_JOB)
        elif book.lease_of(job_id) is not None:
            _set_aside(book, key)
        else:
            keys.setdefault(job_id, []).append(key)
    moved: dict[str, AtRow] = {}
    for job_id, stands in keys.items():
        job = found.jobs[job_id]
        place = at.get(job_id) or _as_the_line_says(job, stands)
        queue = queue_of(job, place)
        right = line_key(job.pool, queue, job.priority, place.next_at, job_id)
        for key in stands:
            if key != right and right in stands:
                _set_aside(book, key)
            elif key != right:
                book.storage.delete(key)  # it goes where it belongs, so nothing is lost
        if right not in stands:
            moved[job_id] = place
            continue
        found.waiting.add(job_id)
        if job_id not in at:
            book.write_at(job, place)
        streams = places.setdefault((job.pool, queue), {})
        count, first = streams.get(job.priority, (0, place.next_at))
        streams[job.priority] = (count + 1, min(first, place.next_at))
    return places, moved


def _as_the_line_says(job: JobRow, stands: Iterable[bytes]) -> AtRow:
    """The job's own place if it stands there; else the earliest of those it stands at, for its own word is lost."""
    own = line_key(job.pool, job.queue, job.priority, job.scheduled_for, job.id)
    if own in stands:
        return AtRow(job.scheduled_for)
    due, queue = min((int(parts[4]), parts[2].decode()) for parts in (key.split(b"/") for key in stands))
    return place_in(queue, due)


async def _letters(book: Book, found: Rebuilt, moved: dict[str, AtRow]) -> None:
    """Who is dead. A letter that cannot be read is written anew from its entry in `parked/`, so it stays dead."""
    for shape in await _read(book, b"dead"):
        job_id = shape.names[0]
        if job_id not in found.jobs or job_id in found.waiting or job_id in moved or book.lease_of(job_id) is not None:
            book.storage.put(bad_key(dead_key(job_id)), encode(shape.row))
            book.storage.delete(dead_key(job_id))
            own = bad_key(job_key(job_id))
            if job_id not in found.jobs and await book.storage.get(own) is None:
                book.storage.put(own, NO_JOB)
        else:
            found.dead[job_id] = shape.row
    for shape in await _read(book, b"parked"):
        job_id, entry = shape.names[1], shape.row
        lost = job_id in found.jobs and job_id not in found.waiting and job_id not in moved
        if lost and not _is_held(book, found, job_id) and isinstance(entry, ParkedRow):
            letter = DeadRow(entry.reason, int(shape.names[0]), AtRow(found.jobs[job_id].scheduled_for))
            book.storage.put(dead_key(job_id), encode(letter))
            found.dead[job_id] = letter


def _leftovers(book: Book, found: Rebuilt, at: dict[str, AtRow]) -> None:
    """Words on the place of a job that does not wait: read later, they would be wrong."""
    for job_id, row in at.items():
        if job_id not in found.jobs or _is_held(book, found, job_id):
            book.storage.put(bad_key(at_key(job_id)), encode(row))
            book.storage.delete(at_key(job_id))


def _set_aside(book: Book, key: bytes, value: bytes = b"") -> None:
    book.storage.put(bad_key(key), value)
    book.storage.delete(key)


async def _replace_lines(book: Book, places: Places) -> None:
    old = book.lines
    book.lines = Lines()
    book.lines.pools, book.lines.holders, book.lines.paused = old.pools, old.holders, old.paused
    for shape in await _read(book, b"lines"):
        if (shape.names[0], shape.names[1]) not in places:
            book.storage.delete(lines_key(*shape.names))
    for name, streams in places.items():
        book.lines.load(name, LinesRow(streams))
        book.lines.touched.add(name)
