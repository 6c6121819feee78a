"""Say from committed state what a job and its attempts came to."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from tocsin.actors.scheduler.model.damage import stored
from tocsin.actors.scheduler.model.records import Attempt, Outcome
from tocsin.actors.scheduler.model.rows import DAY_MS, HistRow, ResultRow, hist_day, result_key
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.errors import NotFoundError
from tocsin.storage.api import StoreView, after

HISTORY_DAYS = 31


async def of(view: StoreView, job_id: str, now: int) -> Outcome:
    """Return how the job ended or stands. NotFoundError if nothing is known of it, or its result is not kept."""
    record = await query.get(view, job_id, now)
    if record is not None and record.keep_result_ms is None:
        raise NotFoundError(
            f"job {job_id!r} did not ask for its result to be kept: submit it with keep_result (over HTTP keepResultMs)"
        )
    if record is not None:
        if record.state != "dead":
            return Outcome(job_id, record.state)
        error = record.last_error
        if error is None:
            return Outcome(job_id, "dead", error=record.reason, ended_at=record.parked_at)
        return Outcome(
            job_id, "dead", error=f"{record.reason}: {error.message}", ended_at=record.parked_at,
            code=error.code, status=error.status, raw_data=error.raw_data,
        )  # fmt: skip
    key = result_key(job_id)
    row = query.read(ResultRow, key, (await view.get([key])).get(key))
    if row is None or row.until <= now:
        raise NotFoundError(
            f"nothing is known of job {job_id!r}: it never was, did not ask for its result to be kept, or ended "
            "too long ago"
        )
    kept, damaged = _kept(row.result)
    return Outcome(
        job_id, row.state, kept, ended_at=row.ended, kept_until=row.until, result_damaged=damaged,
        no_result=row.no_result,
    )  # fmt: skip


async def history(view: StoreView, job_id: str, now: int) -> list[Attempt]:
    """Return the attempts of every incarnation of the id that are still kept, the oldest first."""
    today = now // DAY_MS
    days = range(today - HISTORY_DAYS, today + 2)
    ranges = [(prefix, after(prefix), 1_000) for day in days for prefix in [hist_day(day) + job_id.encode() + b"/"]]
    found = [
        row
        for rows in await view.scan_many(ranges)
        for key, value in rows
        if (row := query.read(HistRow, key, value)) is not None
    ]
    found.sort(key=lambda row: (row.ended, row.attempt))
    return [
        Attempt(
            row.attempt, row.outcome, row.started, row.ended, max(row.started - row.due, 0), row.status, row.message,
            *_kept(row.result), row.code, stored(row.data),
        )
        for row in found
    ]  # fmt: skip


def _kept(result: bytes | None) -> tuple[msgspec.Raw | msgspec.UnsetType, bool]:
    """Return a stored result, and whether it was damaged."""
    raw = stored(result)
    return raw, result is not None and raw is UNSET
