"""Read schedules from committed state, outside the actor's turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tocsin.actors.scheduler.model.rows import JobRow, dead_key, job_key
from tocsin.actors.scheduler.model.schedule_records import (
    Occurrence,
    OccurrencePage,
    SchedulePage,
    ScheduleRecord,
    record_of,
)
from tocsin.actors.scheduler.model.schedule_rows import (
    CursorRow,
    DefinitionRow,
    SlotRow,
    cursor_key,
    definition_args_key,
    definition_key,
    slot_prefix,
    split_slot_key,
)
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries.listing import decode_cursor, encode_cursor
from tocsin.storage.api import StoreView, after, row_pages

BYTES_PER_PAGE: Final = 4 * 1024 * 1024
"""How much a page reads of definitions, each with up to 64 KiB of its args."""
SLOTS_AT_ONCE: Final = 1_000
LOOKED_UP: Final = 100
"""How many jobs are read at once: each brings up to 64 KiB of its args, too."""


async def get(view: StoreView, name: str) -> ScheduleRecord | None:
    """Return one schedule; None if there is none of this name."""
    found = await _records(view, [name])
    return found[0] if found else None


async def page(view: StoreView, instance: str, limit: int, cursor: str | None) -> SchedulePage:
    """Return a page of schedules by name. It is shorter than asked for if the definitions are very large."""
    scope = f"schedules/{instance}"
    place = decode_cursor(scope, cursor)
    start = b"cron/" if place is None else definition_key(place[1]) + b"\x00"
    rows = await view.scan(start, after(b"cron/"), limit=limit + 1, max_bytes=BYTES_PER_PAGE)
    shown = rows[:limit]
    names = [key[5:].decode() for key, _ in shown]
    more = bool(shown) and bool(await view.scan(shown[-1][0] + b"\x00", after(b"cron/"), limit=1))
    records = await _records(view, names)
    if not more:
        return SchedulePage(schedules=records, truncated=False)
    return SchedulePage(schedules=records, truncated=True, cursor=encode_cursor(scope, 0, names[-1]))


async def _records(view: StoreView, names: Sequence[str]) -> list[ScheduleRecord]:
    rows = await view.get([key for name in names for key in (definition_key(name), cursor_key(name))])
    found: list[tuple[str, DefinitionRow, CursorRow]] = []
    for name in names:
        definition = query.read(DefinitionRow, definition_key(name), rows.get(definition_key(name)))
        cursor = query.read(CursorRow, cursor_key(name), rows.get(cursor_key(name)))
        if definition is not None and cursor is not None:
            found.append((name, definition, cursor))
    keys = {name: [definition_args_key(name, n) for n in range(row.args_rows)] for name, row, _ in found}
    wanted = [key for some in keys.values() for key in some]
    args = await view.get(wanted) if wanted else {}
    return [record_of(name, row, cursor, [args.get(key, b"") for key in keys[name]]) for name, row, cursor in found]


async def occurrences(view: StoreView, instance: str, name: str, limit: int, cursor: str | None) -> OccurrencePage:
    """Return a page of occurrences, the newest first."""
    scope = f"occurrences/{instance}/{name}"
    place = decode_cursor(scope, cursor)
    prefix = slot_prefix(name)
    end = after(prefix) if place is None else prefix + place[1].encode()
    rows = await view.scan(prefix, end, limit=limit + 1, reverse=True)
    shown = rows[:limit]
    live = await _live(view, name, _job_ids(shown))
    found = [_occurrence(split_slot_key(key), row, live) for key, value in shown if (row := _slot(value)) is not None]
    if len(rows) <= limit:
        return OccurrencePage(occurrences=found, truncated=False)
    last = shown[-1][0][len(prefix) :].decode()
    return OccurrencePage(occurrences=found, truncated=True, cursor=encode_cursor(scope, 0, last))


def _slot(value: bytes) -> SlotRow | None:
    return query.read(SlotRow, b"slot/", value)


async def live_jobs(view: StoreView, name: str) -> list[tuple[str, str]]:
    """Return id and incarnation of the schedule's occurrences that wait, run or retry. Those of a schedule that was
    made meanwhile under the same name are left out."""
    found: list[tuple[str, str, str]] = []
    prefix = slot_prefix(name)
    async for rows in row_pages(view, prefix, after(prefix), SLOTS_AT_ONCE):
        found += [(job_id, *of) for job_id, of in (await _live(view, name, _job_ids(rows))).items()]
    definition = query.read(DefinitionRow, key := definition_key(name), (await view.get([key])).get(key))
    return [(job_id, job) for job_id, job, uid in found if definition is None or uid != definition.uid]


def _job_ids(rows: Sequence[tuple[bytes, bytes]]) -> list[str]:
    return [row.job_id for _, value in rows if (row := _slot(value)) is not None and row.job_id]


async def _live(view: StoreView, name: str, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the incarnation, and the uid of the schedule, of those jobs that are occurrences of it: any caller may
    take the id of an occurrence that has ended."""
    found: dict[str, tuple[str, str]] = {}
    for start in range(0, len(ids), LOOKED_UP):
        some = ids[start : start + LOOKED_UP]
        rows = await view.get([key for job_id in some for key in (job_key(job_id), dead_key(job_id))])
        for job_id in some:
            job = query.read(JobRow, job_key(job_id), rows.get(job_key(job_id)))
            of = None if job is None or dead_key(job_id) in rows else job.schedule
            if job is not None and of is not None and of.name == name:
                found[job_id] = (job.incarnation, of.uid)
    return found


def _occurrence(slot: int, row: SlotRow, live: Collection[str | None]) -> Occurrence:
    newest_due = row.due if row.until is None else row.until + (row.due - slot)  # with the same jitter
    return Occurrence(
        slot=slot,
        state=row.state,
        due=row.due,
        decided_at=row.at,
        lateness_ms=max(row.at - newest_due, 0),
        job_id=row.job_id,
        live=row.job_id in live,
        reason=row.reason,
        until=row.until,
        count=row.count if row.until is not None else None,
        first_slot=row.first_slot,
        coalesced=row.coalesced if row.first_slot is not None else None,
        triggered=row.request is not None,
        backfill_id=row.backfill,
    )
