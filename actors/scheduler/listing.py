"""Lists of jobs and dead letters, page by page, from committed state, looking at a bounded number of rows.

A cursor is the sort key of the last row looked at, bound to its list and filters by a checksum.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tocsin.actors.scheduler.damage import args_fault
from tocsin.actors.scheduler.lines import ALONE
from tocsin.actors.scheduler.query import Found, attach, read, whole
from tocsin.actors.scheduler.records import Page, Record
from tocsin.actors.scheduler.rows import (
    JobRow,
    LeaseRow,
    LinesRow,
    args_key,
    at_key,
    dead_key,
    job_key,
    parked_key,
    split_lease_key,
    split_line_tail,
    split_lines_key,
    stream_prefix,
)
from tocsin.errors import InvalidInputError
from tocsin.storage.api import Range, Row, StoreView, after

ROWS_PER_PAGE = 5_000
LINES_MERGED = 1_000
BYTES_PER_PAGE = 8 * 1024 * 1024
CHUNK = 100
"""Jobs loaded at once: with inline args of 64 KiB each, well inside the bytes of one read."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs to show; None does not ask."""

    pool: str | None = None
    state: str | None = None
    label: str | None = None
    path: str | None = None
    queue: str | None = None

    def passes(self, record: Record) -> bool:
        return (
            (self.pool is None or record.pool == self.pool)
            and (self.state is None or record.state == self.state)
            and (self.label is None or self.label in record.labels)
            and (self.path is None or self.path in (record.function_path, record.workflow))
            and (self.queue is None or record.queue == self.queue)
        )


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """Where a list goes on: behind (`at`, `id`)."""

    scope: bytes
    """Which list and filters gave it out, hashed."""
    at: int
    id: str


def encode_cursor(scope: str, at: int, job_id: str) -> str:
    body = msgspec.msgpack.encode(Cursor(_check(scope.encode()), at, job_id))
    return base64.urlsafe_b64encode(_check(body) + body).decode().rstrip("=")


def decode_cursor(scope: str, text: str | None) -> tuple[int, str] | None:
    """Raises InvalidInputError for one that was made up, damaged, or given out by another list."""
    if text is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        cursor = msgspec.msgpack.decode(raw[4:], type=Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise InvalidInputError("cursor is not one this list gave out: start again without it") from None
    if raw[:4] != _check(raw[4:]) or cursor.scope != _check(scope.encode()):
        raise InvalidInputError("cursor belongs to another list or other filters: start again without it")
    return cursor.at, cursor.id


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=4, person=b"tocsin-cursor").digest()


# ---- Jobs ----------------------------------------------------------------------------------------


async def list_by_id(view: StoreView, instance: str, now: int, limit: int, cursor: str | None, wanted: Filter) -> Page:
    """Live jobs in id order."""
    scope = f"id/{instance}/{wanted}"
    place = decode_cursor(scope, cursor)
    pager = _Pager(scope, limit)
    start = job_key(place[1]) + b"\x00" if place else b"job/"
    while not pager.full:
        rows = await view.scan(start, after(b"job/"), limit=CHUNK)
        if not rows:
            return pager.page(more=False)
        ids = [key[4:].decode() for key, _ in rows]
        for found in await load(view, ids):
            pager.look(0, found.job.id)
            if found.dead is None and pager.take(found.record(now), wanted):
                break
        else:
            pager.look(0, ids[-1])
            start = rows[-1][0] + b"\x00"
    return pager.page(more=bool(await view.scan(job_key(pager.last[1]) + b"\x00", after(b"job/"), limit=1)))


async def list_by_due(view: StoreView, instance: str, now: int, limit: int, cursor: str | None, wanted: Filter) -> Page:
    """Live jobs in the order of their next attempt. Merges lines: past 1,000 it needs a pool or queue."""
    scope = f"due/{instance}/{wanted}"
    place = decode_cursor(scope, cursor)
    pager = _Pager(scope, limit)
    chunks = _by_due(view, place, wanted)
    async for chunk in chunks:
        found = {one.job.id: one for one in await load(view, [job_id for _, job_id in chunk])}
        for due, job_id in chunk:
            pager.look(due, job_id)
            one = found.get(job_id)
            if one is not None and one.dead is None and pager.take(one.record(now), wanted):
                break
        if pager.full:
            more = pager.last != chunk[-1] or await anext(chunks, None) is not None
            await chunks.aclose()
            return pager.page(more=more)
    return pager.page(more=False)


async def _by_due(
    view: StoreView, place: tuple[int, str] | None, wanted: Filter
) -> AsyncGenerator[list[tuple[int, str]], None]:
    """(due, id) of all live jobs behind `place`, in order, in chunks. Each chunk is read from one snapshot of lines
    and leases, so a job that starts meanwhile is in the one or in the other."""
    prefix = b"lines/%b/" % wanted.pool.encode() if wanted.pool is not None else b"lines/"
    while True:
        if wanted.queue is None:
            lines = await view.scan(prefix, after(prefix), limit=LINES_MERGED + 1)
        else:
            lines = [row for row in await whole(view, prefix) if _is_of(row[0], wanted.queue)]
        if len(lines) > LINES_MERGED:
            raise InvalidInputError(
                f"order=due merges at most {LINES_MERGED} lines with waiting jobs and there are more: "
                "ask for one pool or queue, or use order=id"
            )
        streams = [
            stream_prefix(*split_lines_key(key), priority)
            for key, value in lines
            if (row := read(LinesRow, key, value)) is not None
            for priority in row.streams
        ]
        chunk, more = await _chunk(view, streams, place, wanted)
        if chunk:
            yield chunk
            place = chunk[-1]
        if not more:
            return


async def _chunk(
    view: StoreView, streams: Sequence[bytes], place: tuple[int, str] | None, wanted: Filter
) -> tuple[list[tuple[int, str]], bool]:
    """The next entries of all streams and leases, as far as they are known completely; whether there are more."""
    each = CHUNK // max(len(streams), 1) + 2
    tail = b"%015d/%b\x00" % (place[0], place[1].encode()) if place else b""
    ranges: list[Range] = [(b"lease/", after(b"lease/"), ROWS_PER_PAGE)]
    ranges += [(prefix + tail, after(prefix), each) for prefix in streams]
    leases, *waiting = await view.scan_many(ranges)
    if len(leases) == ROWS_PER_PAGE:
        raise InvalidInputError(f"order=due looks at most at {ROWS_PER_PAGE} running jobs: use order=id")
    found = {entry for entry in _running(leases, wanted) if place is None or entry > place}
    horizon: tuple[int, str] | None = None
    for rows in waiting:
        entries = [split_line_tail(key) for key, _ in rows]
        found.update(entries)
        if len(rows) == each and (horizon is None or entries[-1] < horizon):
            horizon = entries[-1]  # behind it, this stream may hold more than was read
    chunk = sorted(entry for entry in found if horizon is None or entry <= horizon)
    return chunk, horizon is not None


def _is_of(key: bytes, queue: str) -> bool:
    return split_lines_key(key)[1].removeprefix(ALONE) == queue


def _running(leases: Sequence[Row], wanted: Filter) -> Iterator[tuple[int, str]]:
    for key, value in leases:
        lease = read(LeaseRow, key, value)
        mine = lease is not None and wanted.pool in (None, lease.pool) and wanted.queue in (None, lease.queue)
        if mine and lease is not None and not lease.orphan:
            yield lease.at.next_at, split_lease_key(key)[0]


async def list_dead(
    view: StoreView, instance: str, now: int, limit: int, cursor: str | None, wanted: Filter, since: int
) -> Page:
    """Dead letters, the newest last."""
    scope = f"dead/{instance}/{wanted}/{since}"
    place = decode_cursor(scope, cursor)
    pager = _Pager(scope, limit)
    start = parked_key(*place) + b"\x00" if place else b"parked/%015d/" % since
    while not pager.full:
        rows = await view.scan(start, after(b"parked/"), limit=CHUNK)
        if not rows:
            return pager.page(more=False)
        keys = [split_line_tail(key) for key, _ in rows]
        found = {one.job.id: one for one in await load(view, [job_id for _, job_id in keys])}
        for parked_at, job_id in keys:
            pager.look(parked_at, job_id)
            one = found.get(job_id)
            if one is not None and one.dead is not None and pager.take(one.record(now), wanted):
                break
        else:
            start = rows[-1][0] + b"\x00"
    return pager.page(more=bool(await view.scan(parked_key(*pager.last) + b"\x00", after(b"parked/"), limit=1)))


async def load(view: StoreView, ids: Sequence[str]) -> list[Found]:
    """Those of these jobs that exist, each as it stood at one instant, in the order asked."""
    points = [key for job_id in ids for key in (job_key(job_id), at_key(job_id), dead_key(job_id))]
    ranges: list[Range] = [(key, key + b"\x00", 1) for key in points]
    for job_id in ids:
        prefix = b"lease/%b/" % job_id.encode()
        ranges.append((prefix, after(prefix), 100))
    answer = await view.scan_many(ranges)
    rows = {key: value for found in answer[: len(points)] for key, value in found}
    found: list[Found] = []
    for job_id, leases in zip(ids, answer[len(points) :], strict=True):
        job = read(JobRow, job_key(job_id), rows.get(job_key(job_id)))
        if job is not None:
            one = Found(job, args=job.args)
            attach(one, rows, leases)
            found.append(one)
    await _rest_of_args(view, found)
    return found


async def _rest_of_args(view: StoreView, found: Sequence[Found]) -> None:
    for one in found:
        if one.job.args_rows:
            rows = await view.get([args_key(one.job.id, n) for n in range(one.job.args_rows)])
            one.args = b"".join([one.args, *(rows[key] for key in sorted(rows))])
        one.damaged = args_fault(one.job, one.args) is not None


class _Pager:
    """Gathers a page until it holds `limit` records, or has looked at enough rows or bytes."""

    def __init__(self, scope: str, limit: int) -> None:
        self._scope, self._limit = scope, limit
        self._records: list[Record] = []
        self._looked = self._bytes = 0
        self.last: tuple[int, str] = (0, "")

    @property
    def full(self) -> bool:
        return len(self._records) >= self._limit or self._looked >= ROWS_PER_PAGE or self._bytes >= BYTES_PER_PAGE

    def look(self, at: int, job_id: str) -> None:
        if self.last != (at, job_id):
            self._looked += 1
            self.last = (at, job_id)

    def take(self, record: Record, wanted: Filter) -> bool:
        """True when the page is full."""
        if wanted.passes(record):
            self._records.append(record)
            args = record.raw_args
            self._bytes += 256 + (0 if isinstance(args, msgspec.UnsetType) else len(bytes(args)))
        return self.full

    def page(self, *, more: bool) -> Page:
        if not more:
            return Page(self._records, False)
        return Page(self._records, True, encode_cursor(self._scope, *self.last))
