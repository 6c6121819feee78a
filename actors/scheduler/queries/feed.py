"""Frames of the live feed, made of committed rows. Whatever a frame tells is durable, and newer than the change that
asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.feed_frames import Change, FeedCounts, Gone, job_of
from tocsin.actors.scheduler.model.records import Status
from tocsin.actors.scheduler.model.rows import META_COUNTERS
from tocsin.actors.scheduler.queries import candidates
from tocsin.actors.scheduler.queries.candidates import Chunks, Filter
from tocsin.actors.scheduler.queries.jobs import read
from tocsin.actors.scheduler.queries.listing import load_without_args
from tocsin.errors import InvalidInputError
from tocsin.storage.api import StoreView

JOBS_OF_A_SNAPSHOT: Final = 100


async def change(view: StoreView, touched: Mapping[str, str | None], now: int, *, seq: str) -> Change | None:
    """Make the frame of jobs that changed; None if nothing is to be told."""
    found, (row,) = await load_without_args(view, list(touched), [META_COUNTERS])
    jobs = [job_of(one, now) for one in found]
    there = {one.id for one in jobs}
    # One that is gone and does not say how was told of before: a lease of it has ended.
    gone = [Gone(job_id, how) for job_id, how in touched.items() if how is not None and job_id not in there]
    if not jobs and not gone:
        return None
    return Change(type="change", seq=seq, jobs=jobs, gone=gone, counts=_counts(row))


async def snapshot(view: StoreView, now: int, *, seq: str, status: Status) -> Change:
    """Make the frame that a watcher begins with: the first live jobs, and the status."""
    try:
        ids, more = await _first(await candidates.by_due(view, now, Filter(), None))
    except InvalidInputError:  # of more lines than are merged
        ids, more = await _first(await candidates.by_id(view, now, Filter(), None))
    found, _ = await load_without_args(view, ids)
    jobs = [job_of(one, now) for one in found if one.dead is None]
    return Change(type="snapshot", seq=seq, jobs=jobs, gone=(), status=status, truncated=more)


async def _first(chunks: Chunks) -> tuple[list[str], bool]:
    """Return the ids of the first jobs, and whether there are more."""
    ids: dict[str, None] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            ids.update((job_id, None) for _, job_id in chunk.places)
            if len(ids) > JOBS_OF_A_SNAPSHOT:
                break
    return list(ids)[:JOBS_OF_A_SNAPSHOT], len(ids) > JOBS_OF_A_SNAPSHOT


def _counts(row: bytes | None) -> FeedCounts:
    found = read(Counters, META_COUNTERS, row) or Counters()
    return FeedCounts(found.waiting, found.leased, found.dead)
