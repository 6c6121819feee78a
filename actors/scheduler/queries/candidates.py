"""Find the jobs that a list may show, through the index that its filters allow: ids in the list's order, in chunks.

Every filter is checked again on the job itself. This module reads keys and summaries, at about 1 µs each. A job costs
25 µs and its args, so a list reads many more keys than jobs.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.line_names import queue_in
from tocsin.actors.scheduler.model.line_names import whole as whole_line
from tocsin.actors.scheduler.model.records import Record
from tocsin.actors.scheduler.model.rows import (
    DUE_DIGITS,
    META_COUNTERS,
    LeaseRow,
    LinesRow,
    ParkedRow,
    bucket_prefix,
    job_key,
    split_lease_key,
    split_line_tail,
    split_lines_key,
)
from tocsin.actors.scheduler.queries.jobs import read, whole
from tocsin.actors.scheduler.queries.queue_stats import is_counted
from tocsin.actors.scheduler.state import labels
from tocsin.actors.scheduler.state.path_counts import path_key
from tocsin.errors import InvalidInputError
from tocsin.storage.api import Range, Row, StoreView, after, row_pages

CHUNK: Final = 100
"""Jobs loaded at once: with inline args of 64 KiB each, well inside the bytes of one read."""
PAGE: Final = 5_000
INDEX_ROWS: Final = 100_000
"""The most rows of an index that a page reads: about 0.2 s."""
LINES_MERGED: Final = 1_000
BUCKETS_MERGED: Final = 1_000
"""Of more than these, which only shard keys that have turns can have, all are read and sorted."""
SORTED: Final = 1_000
"""How many jobs of a label are sorted by due instant at once: as many as a page may show."""
Place = tuple[int, str]
"""Sort key of a list: the instant (0 in lists by id), and the id."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to show. A member that is None matches every job."""

    pool: str | None = None
    state: str | None = None
    label: str | None = None
    path: str | None = None
    queue: str | None = None
    reason: str | None = None

    def passes(self, record: Record) -> bool:
        return (
            (self.pool is None or record.pool == self.pool)
            and (self.state is None or record.state == self.state)
            and (self.label is None or self.label in record.labels)
            and (self.path is None or self.path in (record.function_path, record.workflow))
            and (self.queue is None or record.queue == self.queue)
            and (self.reason is None or record.reason == self.reason)
        )

    def may_be_due(self, due: int, now: int) -> bool:
        """Return whether a job that is due at this instant may be in the state asked for."""
        return self.state in (None, "running") or (self.state == "waiting") == (due <= now)

    def takes_letter(self, letter: ParkedRow | None) -> bool:
        """Return whether the index entry of a dead letter passes, as far as the entry says."""
        return letter is not None and (
            self.pool in (None, letter.pool)
            and self.reason in (None, letter.reason)
            and self.path in (None, letter.path)
        )

    def takes_lease(self, lease: LeaseRow | None) -> bool:
        """Return whether the job of this lease passes, as far as the lease says."""
        return lease is not None and (
            not lease.orphan and self.pool in (None, lease.pool) and self.queue in (None, lease.queue)
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """Jobs that may be shown, in order, and the last place that was read."""

    places: Sequence[Place]
    last: Place
    looked: int
    """How many rows of an index were read for this chunk."""


Chunks = AsyncGenerator[Chunk, None]


async def _chunked(pages: AsyncIterator[tuple[list[Place], Place, int]]) -> Chunks:
    """Cut pages of an index into chunks."""
    async for places, last, looked in pages:
        for start in range(0, max(len(places), 1), CHUNK):
            some = places[start : start + CHUNK]
            ends = start + CHUNK >= len(places)
            yield Chunk(some, last if ends else some[-1], looked if ends else 0)


async def _index(
    view: StoreView, start: bytes, end: bytes, wanted: Callable[[Row], Place | None], last_of: Callable[[bytes], Place]
) -> AsyncIterator[tuple[list[Place], Place, int]]:
    """Read an index in growing pages: the places wanted, the last place read, and how many rows were read."""
    limit = CHUNK
    while rows := await view.scan(start, end, limit=limit):
        yield [place for row in rows if (place := wanted(row)) is not None], last_of(rows[-1][0]), len(rows)
        start, limit = rows[-1][0] + b"\x00", min(limit * 4, PAGE)


# ---- By id ---------------------------------------------------------------------------------------


async def by_id(view: StoreView, now: int, wanted: Filter, place: Place | None) -> Chunks:
    """Return chunks of live jobs in id order."""
    behind = place[1] if place else ""
    if wanted.label is not None and await labels.are_filled(view):
        return _of_label(view, now, wanted, behind)
    if wanted.state == "running":
        return _of_leases(view, wanted, behind)
    if wanted.pool is not None or wanted.queue is not None or wanted.state is not None:
        found = await _gathered(view, now, wanted)
        if found is not None:
            return _these(sorted((0, job_id) for job_id in found if job_id > behind))
    return _of_jobs(view, behind)


def _of_label(view: StoreView, now: int, wanted: Filter, behind: str) -> Chunks:
    prefix = labels.live_prefix(wanted.label or "")

    def one_of(row: Row) -> Place | None:
        due = _instant(row[1])
        return _id_of(row[0]) if due is None or wanted.may_be_due(due, now) else None

    start = prefix + behind.encode() + b"\x00" if behind else prefix
    return _chunked(_index(view, start, after(prefix), one_of, _id_of))


def _of_leases(view: StoreView, wanted: Filter, behind: str) -> Chunks:
    def one_of(row: Row) -> Place | None:
        return (0, split_lease_key(row[0])[0]) if wanted.takes_lease(read(LeaseRow, *row)) else None

    start = after(b"lease/%b/" % behind.encode()) if behind else b"lease/"
    return _chunked(_index(view, start, after(b"lease/"), one_of, lambda key: (0, split_lease_key(key)[0])))


def _of_jobs(view: StoreView, behind: str) -> Chunks:
    """Walk all jobs, dead ones included."""

    async def pages() -> AsyncIterator[tuple[list[Place], Place, int]]:
        start = job_key(behind) + b"\x00" if behind else b"job/"
        async for rows in row_pages(view, start, after(b"job/"), CHUNK):
            yield [_id_of(key) for key, _ in rows], _id_of(rows[-1][0]), 0

    return _chunked(pages())


async def _these(places: list[Place]) -> Chunks:
    for start in range(0, len(places), CHUNK):
        some = places[start : start + CHUNK]
        yield Chunk(some, some[-1], len(some))


async def count_of_path(view: StoreView, path: str) -> int | None:
    """Return how many live jobs run this path, those that follow others included; None if that is not counted yet.
    Every job would pay for an index by path."""
    key = path_key(path)
    said = (await view.get([key])).get(key, b"0")
    return int(said) if said.isdigit() and await is_counted(view) else None


async def _gathered(view: StoreView, now: int, wanted: Filter) -> set[str] | None:
    """Collect the ids in the lines and leases that the filters leave. None if they are so many that a walk over all
    jobs is as fast."""
    counters = read(Counters, META_COUNTERS, (await view.get([META_COUNTERS])).get(META_COUNTERS)) or Counters()
    most = min((counters.waiting + counters.leased) // 4, INDEX_ROWS)
    buckets = [(bucket_prefix(*name, priority), count) for name, priority, count in await _buckets(view, wanted)]
    if wanted.state is None and sum(count for _, count in buckets) > most:
        return None
    found: set[str] = set()
    for prefix, _ in buckets:
        start, end = _bounds(prefix, now, wanted)
        async for rows in row_pages(view, start, end, PAGE):
            found.update(split_line_tail(key)[1] for key, _ in rows)
            if len(found) > most:
                return None
    if wanted.state is None:
        leases = await whole(view, b"lease/")
        found.update(split_lease_key(key)[0] for key, row in leases if wanted.takes_lease(read(LeaseRow, key, row)))
    return found


# ---- By the instant of their next attempt --------------------------------------------------------


async def by_due(view: StoreView, now: int, wanted: Filter, place: Place | None) -> Chunks:
    """Return chunks of live jobs by the instant of their next attempt. Lines are merged; past 1,000 lines the list
    needs a pool, a queue or a label."""
    if wanted.label is not None and await labels.are_filled(view):
        return _sorted(view, now, wanted, place)
    return _of_lines(view, now, wanted, place)


async def _sorted(view: StoreView, now: int, wanted: Filter, place: Place | None) -> Chunks:
    """Sort the live jobs of a label, 1,000 at a time; each time all rows of the label are read. Rows are compared as
    bytes, which sort as (due, id) does."""
    prefix, border = labels.live_prefix(wanted.label or ""), b"%015d/" % (now + 1)
    low = border if wanted.state == "pending" else b""
    high = border if wanted.state == "waiting" else b":"
    behind = b"%015d/%b" % (place[0], place[1].encode()) if place else b""
    more = True
    while more:
        best: list[bytes] = []
        more = False
        async for rows in _rows_of_label(view, prefix):
            entries = [value + b"/" + key[len(prefix) :] for key, value in rows]
            best += [entry for entry in entries if entry > behind and low <= entry < high]
            if len(best) > SORTED:
                best.sort()
                del best[SORTED:]
                more = True
        places = [(int(due), job_id.decode()) for due, _, job_id in (entry.partition(b"/") for entry in sorted(best))]
        async for chunk in _these(places):
            yield chunk
        if best:
            behind = max(best)


async def _rows_of_label(view: StoreView, prefix: bytes) -> AsyncIterator[Sequence[Row]]:
    looked = 0
    async for rows in row_pages(view, prefix, after(prefix), PAGE):
        looked += len(rows)
        if looked > INDEX_ROWS:
            raise InvalidInputError(
                f"order=due sorts at most {INDEX_ROWS} jobs of a label and there are more: use order=id"
            )
        yield [row for row in rows if len(row[1]) == DUE_DIGITS and row[1].isdigit()]


async def _of_lines(view: StoreView, now: int, wanted: Filter, place: Place | None) -> Chunks:
    """Merge lines and leases. Each chunk is read from one snapshot of both, so a job that starts meanwhile is in one of
    them."""
    while True:
        buckets = [bucket_prefix(*name, priority) for name, priority, _ in await _buckets(view, wanted, LINES_MERGED)]
        if len(buckets) > BUCKETS_MERGED:  # of shard keys, most of which have few jobs
            async for sorted_chunk in _sorted_lines(view, buckets, now, place, wanted):
                yield sorted_chunk
            return
        chunk, more = await _chunk(view, buckets, now, place, wanted)
        if chunk:
            yield Chunk(chunk, chunk[-1], 0)
            place = chunk[-1]
        if not more:
            return


async def _sorted_lines(
    view: StoreView, buckets: Sequence[bytes], now: int, place: Place | None, wanted: Filter
) -> Chunks:
    """Sort jobs of many buckets and of leases, 1,000 at a time; each time the rows of all of them are read."""
    more = True
    while more:
        leases = await whole(view, b"lease/") if wanted.state in (None, "running") else []
        best = [entry for entry in _running(leases, wanted) if place is None or entry > place]
        looked, more = len(leases), False
        for start in range(0, len(buckets), CHUNK):
            ranges: list[Range] = []
            for prefix in buckets[start : start + CHUNK]:
                low, high = _bounds(prefix, now, wanted)
                low = max(low, prefix + b"%015d/%b\x00" % (place[0], place[1].encode())) if place else low
                ranges.append((low, max(low, high), SORTED))
            found = await view.scan_many(ranges)
            best += [split_line_tail(key) for rows in found for key, _ in rows]
            looked += sum(map(len, found))
            more = more or any(len(rows) == SORTED for rows in found)
            if looked > INDEX_ROWS:
                raise InvalidInputError(f"order=due sorts at most {INDEX_ROWS} jobs with turns: use order=id")
            if len(best) > 2 * SORTED:
                best, more = heapq.nsmallest(SORTED, best), True
        more = more or len(best) > SORTED
        best = sorted(set(best))[:SORTED]
        for first in range(0, len(best), CHUNK):
            some = best[first : first + CHUNK]
            yield Chunk(some, some[-1], 0)
        if not best:
            return
        place = best[-1]


async def _chunk(
    view: StoreView, buckets: Sequence[bytes], now: int, place: Place | None, wanted: Filter
) -> tuple[list[Place], bool]:
    """Read the next entries of all buckets and leases, as far as they are known completely; say whether there are
    more."""
    each = CHUNK // max(len(buckets), 1) + 2
    with_leases = wanted.state in (None, "running")
    ranges: list[Range] = [(b"lease/", after(b"lease/"), PAGE if with_leases else 1)]
    for prefix in buckets:
        start, end = _bounds(prefix, now, wanted)
        behind = prefix + b"%015d/%b\x00" % (place[0], place[1].encode()) if place else prefix
        ranges.append((max(start, behind), max(end, behind, start), each))
    leases, *waiting = await view.scan_many(ranges)
    if len(leases) == PAGE:
        raise InvalidInputError(f"order=due looks at most at {PAGE} running jobs: use order=id")
    found = {entry for entry in _running(leases, wanted) if with_leases and (place is None or entry > place)}
    horizon: Place | None = None
    for rows in waiting:
        entries = [split_line_tail(key) for key, _ in rows]
        found.update(entries)
        if len(rows) == each and (horizon is None or entries[-1] < horizon):
            horizon = entries[-1]  # behind it, this bucket may hold more than was read
    chunk = sorted(entry for entry in found if horizon is None or entry <= horizon)
    return chunk, horizon is not None


def _running(leases: Sequence[Row], wanted: Filter) -> Iterator[Place]:
    for key, value in leases:
        lease = read(LeaseRow, key, value)
        if lease is not None and wanted.takes_lease(lease):
            yield lease.at.next_at, split_lease_key(key)[0]


# ---- Dead ones -----------------------------------------------------------------------------------


async def dead(view: StoreView, wanted: Filter, place: Place | None, since: int) -> Chunks:
    """Return chunks of dead letters by the instant at which they were parked."""
    prefix = b"parked/"
    if wanted.label is not None and await labels.are_filled(view):
        prefix = labels.dead_prefix(wanted.label)
    start = prefix + (b"%015d/%b\x00" % (place[0], place[1].encode()) if place else b"%015d/" % since)

    def one_of(row: Row) -> Place | None:
        return split_line_tail(row[0]) if wanted.takes_letter(read(ParkedRow, *row)) else None

    return _chunked(_index(view, start, after(prefix), one_of, split_line_tail))


# ---- Keys ----------------------------------------------------------------------------------------


async def _buckets(view: StoreView, wanted: Filter, most: int | None = None) -> list[tuple[tuple[str, str], int, int]]:
    """Return the buckets that hold waiting jobs of the pool and queue asked for: line, priority, how many.

    InvalidInputError for more than `most` lines.
    """
    if wanted.state == "running":
        return []
    prefix = b"lines/%b/" % wanted.pool.encode() if wanted.pool is not None else b"lines/"
    lines = [row for row in await whole(view, prefix) if wanted.queue is None or _is_of(row[0], wanted.queue)]
    if most is not None and len(lines) > most and len({_in_one_order(key) for key, _ in lines}) > most:
        raise InvalidInputError(
            f"order=due merges at most {most} lines with waiting jobs and there are more: "
            "ask for one pool or queue, or use order=id"
        )
    return [
        (split_lines_key(key), priority, count)
        for key, value in lines
        if (row := read(LinesRow, key, value)) is not None
        for priority, (count, _) in row.buckets.items()
    ]


def _in_one_order(key: bytes) -> tuple[str, str]:
    """Return what the lines of shard keys that have turns have in common."""
    pool, line = split_lines_key(key)
    return pool, whole_line(line)


def _is_of(key: bytes, queue: str) -> bool:
    return queue_in(split_lines_key(key)[1]) == queue


def _bounds(prefix: bytes, now: int, wanted: Filter) -> tuple[bytes, bytes]:
    """Return the range of a bucket that the filter leaves: what is due by now, what is not yet due, or all of it."""
    border = prefix + b"%015d/" % (now + 1)
    if wanted.state == "waiting":
        return prefix, border
    return (border, after(prefix)) if wanted.state == "pending" else (prefix, after(prefix))


def _id_of(key: bytes) -> Place:
    return 0, key.rsplit(b"/", 1)[1].decode()


def _instant(value: bytes) -> int | None:
    return int(value) if value.isdigit() else None
