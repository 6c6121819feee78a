"""List jobs and dead letters from committed state, in pages, each reading a bounded number of rows.

A cursor is the sort key of the last row read, bound to its list and filters by a checksum.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from tocsin.actors.scheduler.model.damage import args_fault
from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.records import Page, Record
from tocsin.actors.scheduler.model.rows import JobRow, args_key, at_key, dead_key, job_key
from tocsin.actors.scheduler.queries import candidates
from tocsin.actors.scheduler.queries.candidates import INDEX_ROWS, Filter
from tocsin.actors.scheduler.queries.jobs import attach, read
from tocsin.actors.scheduler.queries.jobs import one as exactly
from tocsin.actors.scheduler.state.path_counts import path_key
from tocsin.errors import InvalidInputError
from tocsin.storage.api import Range, StoreView, after

ROWS_PER_PAGE = 5_000
BYTES_PER_PAGE = 8 * 1024 * 1024


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """The position where a list continues: behind (`at`, `id`)."""

    scope: bytes
    """A hash of the list and the filters that gave out the cursor."""
    at: int
    id: str


def encode_cursor(scope: str, at: int, job_id: str) -> str:
    body = msgspec.msgpack.encode(Cursor(_check(scope.encode()), at, job_id))
    return base64.urlsafe_b64encode(_check(body) + body).decode().rstrip("=")


def decode_cursor(scope: str, text: str | None) -> tuple[int, str] | None:
    """Decode a cursor. InvalidInputError if it was made up, damaged, or given out by another list."""
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


async def list_live(
    view: StoreView, instance: str, now: int, limit: int, cursor: str | None, wanted: Filter, order: str = "id"
) -> Page:
    """List live jobs by id, or (`due`) by their next attempt."""
    scope = f"{order}/{instance}/{wanted}"
    walk = candidates.by_due if order == "due" else candidates.by_id
    place = decode_cursor(scope, cursor)
    of_path = None if wanted.path is None else await candidates.count_of_path(view, wanted.path)
    if of_path == 0:
        return Page([], False)
    chunks = await walk(view, now, wanted, place)
    pager = _Pager(scope, limit, of_path if place is None else None)
    return await _page(view, chunks, pager, now, wanted, dead=False)


async def list_dead(
    view: StoreView, instance: str, now: int, limit: int, cursor: str | None, wanted: Filter, since: int
) -> Page:
    """List dead letters, the newest last."""
    scope = f"dead/{instance}/{wanted}/{since}"
    chunks = await candidates.dead(view, wanted, decode_cursor(scope, cursor), since)
    return await _page(view, chunks, _Pager(scope, limit), now, wanted, dead=True)


async def _page(
    view: StoreView, chunks: candidates.Chunks, pager: _Pager, now: int, wanted: Filter, *, dead: bool
) -> Page:
    """Fill a page with the candidates that still are what the list asks for."""
    async with aclosing(chunks):
        async for chunk in chunks:
            ids = [job_id for _, job_id in chunk.places]
            found = {one.job.id: one for one in await load(view, ids)} if ids else {}
            for place in chunk.places:
                pager.look(place)
                one = found.get(place[1])
                if one is not None and (one.dead is not None) == dead and pager.take(one, now, wanted):
                    break
            else:
                pager.pass_by(chunk.last, chunk.looked)
            if pager.may_have_all and await _are_all(view, pager.taken, wanted.path):
                return pager.page(more=False)
            if pager.full:
                ends = pager.last in (chunk.last, *chunk.places[-1:])
                more = not ends or await anext(chunks, None) is not None
                return pager.page(more=more)
    return pager.page(more=False)


async def _are_all(view: StoreView, taken: Sequence[JobRow], path: str | None) -> bool:
    """Return whether no live job but these runs this path: they are as many as its count says, and all of them still
    live, in one snapshot."""
    count = path_key(path or "")
    keys = [key for job in taken for key in (job_key(job.id), dead_key(job.id))]
    rows = {
        key: value for found in await view.scan_many([exactly(key) for key in [count, *keys]]) for key, value in found
    }
    jobs = [read(JobRow, job_key(job.id), rows.get(job_key(job.id))) for job in taken]
    return (
        rows.get(count) == b"%d" % len(taken)
        and all(now is not None and now.incarnation == job.incarnation for now, job in zip(jobs, taken, strict=True))
        and not any(dead_key(job.id) in rows for job in taken)
    )


async def load(view: StoreView, ids: Sequence[str]) -> list[Found]:
    """Read those of these jobs that exist, each as it stood at one instant, in the order asked."""
    found, _ = await load_without_args(view, ids)
    await _rest_of_args(view, found)
    return found


async def load_without_args(
    view: StoreView, ids: Sequence[str], also: Sequence[bytes] = ()
) -> tuple[list[Found], list[bytes | None]]:
    """Read those of these jobs that exist, without what continues in other rows; and other rows of the same instant."""
    points = [key for job_id in ids for key in (job_key(job_id), at_key(job_id), dead_key(job_id))]
    ranges: list[Range] = [(key, key + b"\x00", 1) for key in (*also, *points)]
    for job_id in ids:
        prefix = b"lease/%b/" % job_id.encode()
        ranges.append((prefix, after(prefix), 100))
    answer = await view.scan_many(ranges)
    others, answer = [one[0][1] if one else None for one in answer[: len(also)]], answer[len(also) :]
    rows = {key: value for found in answer[: len(points)] for key, value in found}
    found: list[Found] = []
    for job_id, leases in zip(ids, answer[len(points) :], strict=True):
        job = read(JobRow, job_key(job_id), rows.get(job_key(job_id)))
        if job is not None:
            one = Found(job, args=job.args)
            attach(one, rows, leases)
            found.append(one)
    return found, others


async def _rest_of_args(view: StoreView, found: Sequence[Found]) -> None:
    for one in found:
        if one.job.args_rows:
            rows = await view.get([args_key(one.job.id, n) for n in range(one.job.args_rows)])
            one.args = b"".join([one.args, *(rows[key] for key in sorted(rows))])
        one.damaged = args_fault(one.job, one.args) is not None


class _Pager:
    """A page being filled, until it holds `limit` records or enough rows or bytes were read. `of_path`: how many live
    jobs its filter by path can match, where that is known and this is the first page."""

    def __init__(self, scope: str, limit: int, of_path: int | None = None) -> None:
        self._scope, self._limit, self._of_path = scope, limit, of_path
        self.taken: list[JobRow] = []
        self._records: list[Record] = []
        self._looked = self._index_rows = self._bytes = 0
        self.last: tuple[int, str] = (0, "")

    @property
    def full(self) -> bool:
        return (
            len(self._records) >= self._limit
            or self._looked >= ROWS_PER_PAGE
            or self._index_rows >= INDEX_ROWS
            or self._bytes >= BYTES_PER_PAGE
        )

    def look(self, place: tuple[int, str]) -> None:
        if self.last != place:
            self._looked += 1
            self.last = place

    def pass_by(self, place: tuple[int, str], rows: int) -> None:
        """Count rows of an index that were read up to this place, whether or not they name jobs that may be shown."""
        self._index_rows += rows
        self.last = place

    @property
    def may_have_all(self) -> bool:
        """Return whether it holds as many jobs as its path was counted to have, so that there may be no others."""
        return self._of_path is not None and len(self.taken) >= self._of_path

    def take(self, found: Found, now: int, wanted: Filter) -> bool:
        """Add the record of a job if it passes. Return whether the page is full."""
        record = found.record(now)
        if wanted.passes(record):
            if self._of_path is not None:
                self.taken.append(found.job)
            self._records.append(record)
            args = record.raw_args
            self._bytes += 256 + (0 if isinstance(args, msgspec.UnsetType) else len(bytes(args)))
        return self.full

    def page(self, *, more: bool) -> Page:
        if not more:
            return Page(self._records, False)
        return Page(self._records, True, encode_cursor(self._scope, *self.last))
