"""Clock changes of the time to come that schedules meet: slots that the clock skips or shows twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from tocsin.actors.cron.preview import oddity
from tocsin.actors.cron.zones import Zone
from tocsin.actors.rehearsal.report import ClockChange
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rows import BadRow, decode
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, DefinitionRow, cursor_key
from tocsin.actors.scheduler.schedules.series import rule_of
from tocsin.errors import TocsinError
from tocsin.storage.api import after
from tocsin.storage.memory import MemoryDisk

STEP_S: Final = 3_600
AROUND_MS: Final = 26 * 3_600_000
"""Before and after a change; no clock was ever changed by more."""
MOST: Final = 3
"""So many slots of one schedule are named at one change."""
ALL: Final = 2**62


def clock_changes(disk: MemoryDisk, instance: str, start: int, until: int) -> list[ClockChange]:
    """Return the odd slots of the active schedules of an instance, in the order of their names."""
    rows = disk.maps[str(actor_of(instance))]
    found: list[ClockChange] = []
    for key, value in rows.range(b"cron/", after(b"cron/"), ALL, False):
        name = key.decode().partition("/")[2]
        progress = rows.get(cursor_key(name))
        try:
            row = decode(DefinitionRow, key, value)
            cursor = None if progress is None else decode(CursorRow, cursor_key(name), progress)
            if row.cron is None or cursor is None or cursor.paused or cursor.next_slot is None:
                continue
            odd = list(_odd(row.cron, row.timezone, start, until))
        except (BadRow, TocsinError):
            continue  # the scheduler sets such a row aside, or shows the error with its schedule
        found += [
            ClockChange(instance=instance, schedule=name, at=at, timezone=row.timezone, note=note) for at, note in odd
        ]
    return found


@lru_cache(1024)
def _odd(cron: str, timezone: str, start: int, until: int) -> tuple[tuple[int, str], ...]:
    """Return odd slots of a rule within the time, and what is odd about them."""
    rule = rule_of(cron, timezone)
    found: dict[int, str] = {}
    for change in _changes(timezone, start // 1000, until // 1000):
        at, named = rule.next_ms(max(start, change * 1000 - AROUND_MS)), 0
        while at is not None and at <= min(until, change * 1000 + AROUND_MS) and named < MOST:
            if (note := oddity(rule, at)) is not None and at not in found:
                found[at] = note
                named += 1
            at = rule.next_ms(at)
    return tuple(sorted(found.items()))


@lru_cache(256)
def _changes(timezone: str, start: int, until: int) -> tuple[int, ...]:
    return tuple(_changes_of(Zone(timezone), start, until))


def _changes_of(zone: Zone, start: int, until: int) -> Iterator[int]:
    """Yield about when the offset of a zone changes, to an hour."""
    before = zone.offset(start)
    for instant in range(start + STEP_S, until + STEP_S, STEP_S):
        offset = zone.offset(instant)
        if offset != before:
            yield instant
            before = offset
