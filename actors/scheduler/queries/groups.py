"""Read groups and their members from committed state, outside the actor's turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.actors.scheduler.model.damage import args_fault
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord, record_of
from tocsin.actors.scheduler.model.groups import (
    GroupJobsRow,
    GroupRow,
    group_jobs_key,
    group_key,
    member_key,
    member_prefix,
)
from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.records import Page, Record
from tocsin.actors.scheduler.model.rows import JobRow, args_key, at_key, dead_key, job_key
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries.listing import decode_cursor, encode_cursor
from tocsin.actors.scheduler.state.groups import uid_of
from tocsin.storage.api import StoreView, after

AT_ONCE: Final = 50
"""How many jobs are read at once: each brings its args, too."""


async def get(view: StoreView, name: str) -> GroupRecord | None:
    """Return one group; None if there is none of this name."""
    key, jobs = group_key(name), group_jobs_key(name)
    rows = await view.get([key, jobs])
    row = query.read(GroupRow, key, rows.get(key))
    return None if row is None else record_of(name, row, query.read(GroupJobsRow, jobs, rows.get(jobs)))


async def page(view: StoreView, instance: str, limit: int, cursor: str | None) -> GroupPage:
    """Return a page of groups by name."""
    scope = f"groups/{instance}"
    place = decode_cursor(scope, cursor)
    start = b"group/" if place is None else group_key(place[1]) + b"\x00"
    rows = await view.scan(start, after(b"group/"), limit=limit + 1)
    names = [key[6:].decode() for key, _ in rows[:limit]]
    jobs = await view.get([group_jobs_key(name) for name in names]) if names else {}
    found: list[GroupRecord] = []
    for name, (key, value) in zip(names, rows, strict=False):
        if (row := query.read(GroupRow, key, value)) is not None:
            of = group_jobs_key(name)
            found.append(record_of(name, row, query.read(GroupJobsRow, of, jobs.get(of))))
    if len(rows) <= limit:
        return GroupPage(found, False)
    return GroupPage(found, True, encode_cursor(scope, 0, names[-1]))


async def members(view: StoreView, instance: str, name: str, limit: int, cursor: str | None, now: int) -> Page:
    """Return a page of the members of a group that live or are dead, by id; empty if there is no such group."""
    key = group_key(name)
    row = query.read(GroupRow, key, (await view.get([key])).get(key))
    if row is None:
        return Page(records=[], truncated=False)
    scope, prefix = f"groups/{instance}/{name}/{row.uid}", member_prefix(row.uid)
    place = decode_cursor(scope, cursor)
    start = prefix if place is None else member_key(row.uid, place[1]) + b"\x00"
    rows = await view.scan(start, after(prefix), limit=limit + 1)
    ids = [key[len(prefix) :].decode() for key, _ in rows[:limit]]
    records: list[Record] = []
    for n in range(0, len(ids), AT_ONCE):
        records += await _records(view, row.uid, ids[n : n + AT_ONCE], now)
    if len(rows) <= limit:
        return Page(records=records, truncated=False)
    return Page(records=records, truncated=True, cursor=encode_cursor(scope, 0, ids[-1]))


async def _records(view: StoreView, uid: str, ids: Sequence[str], now: int) -> list[Record]:
    """Read these jobs as they stand together."""
    ranges = []
    for job_id in ids:
        leases = b"lease/%b/" % job_id.encode()
        args = args_key(job_id, 0), after(b"args/%b/" % job_id.encode()), 100
        places = [query.one(key) for key in (at_key(job_id), dead_key(job_id))]
        ranges += [query.one(job_key(job_id)), *places, (leases, after(leases), 100), args]
    found = await view.scan_many(ranges)
    records: list[Record] = []
    for n in range(0, len(found), 5):
        job_rows, at_rows, dead_rows, lease_rows, args_rows = found[n : n + 5]
        job = query.read(JobRow, b"job", job_rows[0][1]) if job_rows else None
        if job is not None and uid_of(job) == uid:
            whole = job.args + b"".join(value for _, value in args_rows)
            one = Found(job, args=whole, damaged=args_fault(job, whole) is not None)
            query.attach(one, dict([*at_rows, *dead_rows]), lease_rows)
            records.append(one.record(now))
    return records
