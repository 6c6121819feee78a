"""Find what stands in front of a job: those that go before it in its line, and the attempts that have the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.line_names import line_of
from tocsin.actors.scheduler.model.rows import LeaseRow, LinesRow, bucket_prefix, lines_key, split_lease_key
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.state.ready_heap import PRIORITY_MS
from tocsin.storage.api import Range, StoreView, after

COUNTED: Final = 1_000
LEASES_READ: Final = 1_000


async def in_front(view: StoreView, found: Found, now: int) -> int:
    """Count the due jobs of its line that start before this one, up to 1,000."""
    job, due, pool, line = found.job, found.place.next_at, found.job.pool, line_of(found.job, found.place)
    key = lines_key(pool, line)
    row = query.read(LinesRow, key, (await view.get([key])).get(key))
    ranges: list[Range] = []
    for priority in () if row is None else row.buckets:
        prefix = bucket_prefix(pool, line, priority)
        # Start order is (due - priority * 30 s, id).
        same_turn = max(due + (priority - job.priority) * PRIORITY_MS, 0)
        end = min(prefix + b"%015d/%b" % (same_turn, job.id.encode()), prefix + b"%015d/" % (now + 1))
        ranges.append((prefix, max(end, prefix), COUNTED))
    return min(sum(len(rows) for rows in await view.scan_many(ranges)), COUNTED) if ranges else 0


async def in_lanes(view: StoreView, origin: str) -> Sequence[tuple[str, int]]:
    """Return the jobs whose callbacks are on their way to an origin, and since when, the longest first; of 1,000
    leases."""
    rows = await view.scan(b"lease/", after(b"lease/"), limit=LEASES_READ)
    found = [
        (split_lease_key(key)[0], lease.started)
        for key, value in rows
        if (lease := query.read(LeaseRow, key, value)) is not None and lease.kind == "fired" and lease.origin == origin
    ]
    return sorted(found, key=lambda one: (one[1], one[0]))
