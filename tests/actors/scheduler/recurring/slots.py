"""What tests of schedules share: reading what became of their slots."""

from __future__ import annotations

from collections import Counter

from tests.actors.scheduler.simulated_host import SimulatedHost
from tocsin.actors.scheduler.model.rows import decode
from tocsin.actors.scheduler.model.schedule_records import Occurrence
from tocsin.actors.scheduler.model.schedule_rows import CursorRow, cursor_key
from tocsin.dispatch.testing import Delivery

MINUTE = 60_000
HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_800_000_000_000
"""When each run begins."""


async def occurrences(sim: SimulatedHost, name: str) -> list[Occurrence]:
    """All that are kept, the oldest first."""
    return list((await sim.jobs.schedules.occurrences(name, limit=1000)).occurrences)[::-1]


def accounted(found: list[Occurrence]) -> Counter[str]:
    """How many slots ended in each way."""
    counts: Counter[str] = Counter()
    for one in found:
        counts[one.state] += 1 if one.until is None else one.count or 0
    return counts


def slots_of(deliveries: list[Delivery]) -> list[int]:
    return [one.body["schedule"]["slot"] for one in deliveries]


def arrived(sim: SimulatedHost, delivery: Delivery) -> int:
    """When, on the wall clock; of a job that came once."""
    return next(at for at, job in sim.arrivals if job == delivery.id) + START


def cursor_of(sim: SimulatedHost, name: str) -> CursorRow:
    value = sim.disk.maps["scheduler/t"].get(cursor_key(name))
    assert value is not None
    return decode(CursorRow, b"", value)


async def all_occurrences(sim: SimulatedHost) -> list[Occurrence]:
    """Return every occurrence of the schedule `x`, the oldest first."""
    found: list[Occurrence] = []
    cursor: str | None = None
    while True:
        page = await sim.jobs.schedules.occurrences("x", limit=1000, cursor=cursor)
        found += page.occurrences
        if not page.truncated:
            return found[::-1]
        cursor = page.cursor
