"""Repair the rows of schedules of a stopped scheduler: write counts and timers anew, from the rows they derive from.

Nothing that says something is deleted; a definition that has lost its cursor goes on behind the newest of its slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from tocsin.actors.runtime.overlay import ActorStorage
from tocsin.actors.scheduler.model.backfill_rows import BACKFILL, Backfilling, BackfillRow, backfill_key
from tocsin.actors.scheduler.model.rows import JobRow, R, Row, decode, encode, split_timer_key, timer_key
from tocsin.actors.scheduler.model.schedule_rows import (
    FORGET,
    TIMER,
    CursorRow,
    DefinitionRow,
    SlotRow,
    cursor_key,
    jitter_of,
    slot_key,
    split_slot_key,
)
from tocsin.storage.api import after, each_row

PAGE = 1_000


async def repair_schedules(storage: ActorStorage, jobs: Mapping[str, JobRow], dead: Mapping[str, Row]) -> None:
    """Repair the schedules. `jobs` and `dead` are repaired already; unreadable rows were set aside."""
    live: Counter[tuple[str, str]] = Counter()
    for job_id, job in jobs.items():
        if job.schedule is not None and job_id not in dead:
            live[job.schedule.name, job.schedule.uid] += 1
    definitions = dict(await _all(storage, b"cron/", DefinitionRow))
    cursors = dict(await _all(storage, b"cronat/", CursorRow))
    slots = await _slots(storage)
    for name in slots.keys() - definitions.keys() - cursors.keys():
        cursors[name] = CursorRow(1, slots[name][1])  # both are lost: its history is kept as that of a deleted one
    needed: set[bytes] = set()
    running = await _running(storage, definitions)
    for name, definition in definitions.items():
        cursor = cursors.get(name)
        kept, newest = slots.get(name, (0, 0))
        if cursor is None:
            last = max(newest, definition.created_at)
            cursor = CursorRow(1, last, rings_at=last)
        count = live[name, definition.uid]
        rings_at = cursor.next_slot if cursor.rings_at is None else cursor.rings_at
        if cursor.paused or cursor.error is not None:
            rings_at = None
        if cursor.queued is not None:
            held = await _is_held(storage, name, cursor.queued, for_good=not count and rings_at is None)
            if not held:
                kept += _end_those_it_stands_for(storage, name, definition, cursor)
                cursor = msgspec.structs.replace(cursor, queued=None, stands=None)
            if held and not count:
                rings_at = cursor.last  # nothing of it lives, so it starts when it is looked at
        doing = _backfilling(cursor, running.get(name, ()), count)
        new = msgspec.structs.replace(cursor, live=count, kept=kept, rings_at=rings_at, forget_at=None, backfill=doing)
        _write(storage, name, cursors.get(name), new)
        if doing is not None and doing.rings_at is not None:
            needed.add(timer_key(doing.rings_at, BACKFILL, name))
        if new.rings_at is not None:
            needed.add(timer_key(new.rings_at, TIMER, name))
    for name, cursor in cursors.items():
        if name not in definitions:
            # Its definition is gone: deleted, or lost. Its history stays until it is forgotten.
            forget_at = cursor.forget_at if cursor.forget_at is not None else cursor.last + 30 * 86_400_000
            kept, _ = slots.get(name, (0, 0))
            gone = msgspec.structs.replace(
                cursor,
                live=0,
                kept=kept,
                queued=None,
                stands=None,
                rings_at=None,
                next_slot=None,
                forget_at=forget_at,
                backfill=None,
            )
            _write(storage, name, cursor, gone)
            needed.add(timer_key(forget_at, FORGET, name))
    await _repair_timers(storage, needed)


async def _running(storage: ActorStorage, definitions: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the backfills that go on, by schedule. Those of one that is gone are stopped."""
    found: dict[str, list[str]] = {}
    for key, row in await _all(storage, b"backfill/", BackfillRow):
        name, _, backfill_id = key.partition("/")
        if row.state == "running" and name in definitions:
            found.setdefault(name, []).append(backfill_id)
        elif row.state == "running":
            stopped = msgspec.structs.replace(row, state="stopped", error="its schedule is gone")
            storage.put(backfill_key(name, backfill_id), encode(stopped))
    return found


def _backfilling(cursor: CursorRow, running: Sequence[str], live: int) -> Backfilling | None:
    """Return how far the schedule is with its backfills. They are looked at as soon as it runs, unless they wait."""
    doing = cursor.backfill or Backfilling()
    ids = (*(one for one in doing.ids if one in running), *(one for one in running if one not in doing.ids))
    rings_at = doing.rings_at if doing.rings_at is not None else cursor.last
    doing = Backfilling(ids, rings_at if ids else None, doing.live_slot if live else None)
    return None if doing == Backfilling() else doing


def _write(storage: ActorStorage, name: str, old: CursorRow | None, new: CursorRow) -> None:
    if new != old:
        storage.put(cursor_key(name), encode(new))


async def _is_held(storage: ActorStorage, name: str, slot: int, *, for_good: bool) -> bool:
    """Return whether the occurrence's row is held back too. `for_good`: end it, since nothing would start it."""
    key = slot_key(name, slot)
    value = await storage.get(key)
    row = None if value is None else decode(SlotRow, key, value)
    if row is None or row.state != "queued":
        return False
    if for_good:
        storage.put(key, encode(msgspec.structs.replace(row, state="skipped", reason="mended")))
    return not for_good


def _end_those_it_stands_for(storage: ActorStorage, name: str, definition: DefinitionRow, cursor: CursorRow) -> int:
    """End the occurrences that no job will stand for; return the number of their rows."""
    pieces = [piece for piece in cursor.stands or () if piece[2] != 0]
    for first, last, count in pieces:
        due = first + jitter_of(name, definition.jitter_ms)
        until = None if last == first else last
        row = SlotRow("skipped", cursor.last, due, reason="mended", until=until, count=count)
        storage.put(slot_key(name, first), encode(row))
    return len(pieces)


async def _repair_timers(storage: ActorStorage, needed: set[bytes]) -> None:
    for key, _ in await _rows(storage, b"timer/"):
        _, kind, _ = split_timer_key(key)
        if kind in (TIMER, FORGET, BACKFILL) and key not in needed:
            storage.delete(key)
        needed.discard(key)
    for key in sorted(needed):
        storage.put(key, b"")


async def _slots(storage: ActorStorage) -> dict[str, tuple[int, int]]:
    """Return the number of rows and the newest slot of each schedule."""
    found: dict[str, tuple[int, int]] = {}
    for key, _ in await _rows(storage, b"slot/"):
        name = key.split(b"/")[1].decode()
        found[name] = (found.get(name, (0, 0))[0] + 1, split_slot_key(key))
    return found


async def _all(storage: ActorStorage, prefix: bytes, kind: type[R]) -> list[tuple[str, R]]:
    return [(key[len(prefix) :].decode(), decode(kind, key, value)) for key, value in await _rows(storage, prefix)]


async def _rows(storage: ActorStorage, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return [row async for row in each_row(storage, prefix, after(prefix), PAGE)]
