"""Check the invariants between the rows of schedules, from one snapshot of committed state."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from tocsin.actors.scheduler.model.backfill_rows import BACKFILL, Backfilling, BackfillRow
from tocsin.actors.scheduler.model.damage import json_fault, pieces_fault
from tocsin.actors.scheduler.model.rows import JobRow, R, dead_key, split_timer_key
from tocsin.actors.scheduler.model.schedule_rows import (
    FORGET,
    TIMER,
    CursorRow,
    DefinitionRow,
    SlotRow,
    definition_args_key,
    slot_key,
)
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.storage.api import StoreView, after, each_row

TIMERS = (TIMER, FORGET, BACKFILL)
PAGE = 1_000


async def check_schedules(view: StoreView) -> list[tuple[str, str]]:
    """Return every broken invariant: the schedule and the message."""
    live = await _live(view)
    timers = await _timers(view)
    slots = await _slots(view)
    definitions = {name: row async for name, row in _rows(view, "cron", DefinitionRow)}
    found: list[tuple[str, str]] = []
    cursors: set[str] = set()
    running = await _running(view)
    async for name, cursor in _rows(view, "cronat", CursorRow):
        cursors.add(name)
        definition = definitions.get(name)
        if (definition is None) != (cursor.forget_at is not None):
            found.append((name, f"schedule {name} has a cursor that says deleted: {cursor.forget_at is not None}"))
        if definition is not None and cursor.live != live[name, definition.uid]:
            found.append((name, f"schedule {name} says {cursor.live} live, there are {live[name, definition.uid]}"))
        if cursor.kept != slots[name]:
            found.append((name, f"schedule {name} says it keeps {cursor.kept} slots, there are {slots[name]}"))
        wanted = Counter({(TIMER, cursor.rings_at): cursor.rings_at is not None})
        wanted[FORGET, cursor.forget_at] += cursor.forget_at is not None
        doing = cursor.backfill or Backfilling()
        wanted[BACKFILL, doing.rings_at] += doing.rings_at is not None
        if +wanted != timers.get(name, Counter()):
            found.append((name, f"schedule {name} has the timers {timers.get(name)}, not {+wanted}"))
        found += [(name, words) for words in await _held_back(view, name, cursor)]
        found += [(name, words) for words in _backfills(name, cursor, definition, running.pop(name, ()))]
    found += [(name, f"schedule {name} has no cursor") for name in definitions.keys() - cursors]
    found += [(name, f"a timer of {name}, which is no schedule") for name in timers.keys() - cursors]
    found += [(name, f"slots of {name}, which is no schedule") for name in slots.keys() - cursors]
    found += [(name, f"backfills of {name}, which is no schedule, go on: {ids}") for name, ids in running.items()]
    return found


async def damaged_args(view: StoreView) -> list[tuple[str, str]]:
    """Return the schedules with damaged args, whose occurrences would die."""
    found: list[tuple[str, str]] = []
    async for name, row in _rows(view, "cron", DefinitionRow):
        keys = [definition_args_key(name, n) for n in range(row.args_rows)]
        pieces = await view.get(keys) if keys else {}
        whole = row.args + b"".join(pieces.get(key, b"") for key in keys)
        fault = pieces_fault(row.args_rows, whole) or json_fault(whole)
        if fault is not None:
            found.append((name, f"the args of schedule {name} are damaged: {fault}"))
    return found


async def _held_back(view: StoreView, name: str, cursor: CursorRow) -> list[str]:
    if cursor.queued is None:
        return [] if cursor.stands is None else [f"schedule {name} has slots that nobody stands for: {cursor.stands}"]
    key = slot_key(name, cursor.queued)
    row = query.read(SlotRow, key, (await view.get([key])).get(key))
    if row is None or row.state != "queued":
        return [f"schedule {name} holds back {cursor.queued}, whose slot says {row and row.state}"]
    if not cursor.live and cursor.rings_at is None:
        return [f"schedule {name} holds back {cursor.queued}, and nothing of it is live"]
    return []


async def _running(view: StoreView) -> dict[str, tuple[str, ...]]:
    """Return the backfills that have not ended, by schedule."""
    found: dict[str, tuple[str, ...]] = {}
    async for key, row in _rows(view, "backfill", BackfillRow):
        if row.state == "running":
            name, _, backfill_id = key.partition("/")
            found[name] = (*found.get(name, ()), backfill_id)
    return found


def _backfills(name: str, cursor: CursorRow, definition: DefinitionRow | None, running: Sequence[str]) -> Iterator[str]:
    doing = cursor.backfill or Backfilling()
    if sorted(doing.ids) != sorted(running):
        yield f"schedule {name} names the backfills {doing.ids}, there go on {running}"
    held = cursor.queued is not None or (cursor.live > 0 and definition is not None and definition.overlap != "allow")
    if doing.ids and doing.rings_at is None and not held:
        yield f"schedule {name} has backfills that nothing is in the way of, and no timer for them"


async def _live(view: StoreView) -> Counter[tuple[str, str]]:
    """Return the occurrences that wait, run or retry, by schedule and its uid."""
    found: Counter[tuple[str, str]] = Counter()
    async for _, job in _rows(view, "job", JobRow):
        if job.schedule is not None and not await view.get([dead_key(job.id)]):
            found[job.schedule.name, job.schedule.uid] += 1
    return found


async def _timers(view: StoreView) -> dict[str, Counter[tuple[str, int | None]]]:
    found: dict[str, Counter[tuple[str, int | None]]] = {}
    async for key, _ in each_row(view, b"timer/", after(b"timer/"), PAGE):
        try:
            ms, kind, name = split_timer_key(key)
        except ValueError:  # of another shape, which is a fault of its own
            continue
        if kind in TIMERS:
            found.setdefault(name, Counter())[kind, ms] += 1
    return found


async def _slots(view: StoreView) -> Counter[str]:
    found: Counter[str] = Counter()
    async for key, _ in each_row(view, b"slot/", after(b"slot/"), PAGE):
        found[key.split(b"/")[1].decode()] += 1
    return found


async def _rows(view: StoreView, family: str, kind: type[R]) -> AsyncIterator[tuple[str, R]]:
    prefix = family.encode() + b"/"
    async for key, value in each_row(view, prefix, after(prefix), PAGE):
        row = query.read(kind, key, value)
        if row is not None:
            yield key[len(prefix) :].decode(), row
