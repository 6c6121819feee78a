"""Rebuild what is summarised (lines, counters) from what is there, after an unreadable row was set aside.

Walks every row, so it runs only then: at activation, before the first event. A job that stands nowhere any more,
because its lease or place could not be read, goes back to its line at its own due time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tocsin.actors.scheduler.lines import Lines
from tocsin.actors.scheduler.rows import (
    AtRow,
    Counters,
    JobRow,
    LinesRow,
    at_key,
    bad_key,
    split_line_tail,
    split_lines_key,
)

if TYPE_CHECKING:
    from tocsin.actors.scheduler.book import Book

Places = dict[tuple[str, str], dict[int, tuple[int, int]]]


async def rebuild(book: Book) -> None:
    """Memory and summaries anew; history, answers and redrives are not looked at."""
    jobs = await _jobs(book)
    waiting, places = await _places(book, jobs)
    dead = {key[5:].decode() for key, _ in await book.all_rows(b"dead/")}
    await _replace_lines(book, places)
    orphans = sum(lease.orphan for _, lease in book.leases.values())
    old = book.counters
    book.counters = Counters(
        waiting=len(waiting),
        leased=len(book.leases) - orphans,
        orphaned=orphans,
        dead=len(dead),
        done=old.done,
        expired=old.expired,
        retired=old.retired,
    )
    for job_id, job in jobs.items():
        if job_id not in waiting and job_id not in dead and book.lease_of(job_id) is None:
            book.enter_line(job, AtRow(job.scheduled_for))


async def _jobs(book: Book) -> dict[str, JobRow]:
    rows = await book.all_rows(b"job/")
    read = ((key, book.read(JobRow, key, value)) for key, value in rows)
    return {key[4:].decode(): job for key, job in read if job is not None}


async def _places(book: Book, jobs: dict[str, JobRow]) -> tuple[Counter[str], Places]:
    """Who waits where. A place whose job is gone, runs, or stands elsewhere already is set aside."""
    waiting: Counter[str] = Counter()
    places: Places = {}
    for key, _ in await book.all_rows(b"line/"):
        parts = key.split(b"/")
        try:
            pool, queue, priority = parts[1].decode(), parts[2].decode(), 9 - int(parts[3])
            due, job_id = split_line_tail(key)
        except (ValueError, IndexError):
            _set_aside(book, key)
            continue
        if job_id not in jobs or waiting[job_id] or book.lease_of(job_id) is not None:
            _set_aside(book, key)
            continue
        waiting[job_id] += 1
        if due != jobs[job_id].scheduled_for and not await book.storage.get(at_key(job_id)):
            book.write_at(jobs[job_id], AtRow(due))
        streams = places.setdefault((pool, queue), {})
        count, first = streams.get(priority, (0, due))
        streams[priority] = (count + 1, min(first, due))
    return +waiting, places


def _set_aside(book: Book, key: bytes) -> None:
    book.storage.put(bad_key(key), b"")
    book.storage.delete(key)


async def _replace_lines(book: Book, places: Places) -> None:
    old = book.lines
    book.lines = Lines()
    book.lines.pools, book.lines.holders, book.lines.paused = old.pools, old.holders, old.paused
    for key, _ in await book.all_rows(b"lines/"):
        if split_lines_key(key) not in places:
            book.storage.delete(key)
    for name, streams in places.items():
        book.lines.load(name, LinesRow(streams))
        book.lines.touched.add(name)
