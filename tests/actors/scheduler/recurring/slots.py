"""What tests of schedules share: reading what became of their slots."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.actors.scheduler.simulated_host import OK, SimulatedHost
from tocsin.actors.scheduler.model.schedule_records import Occurrence
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer

MINUTE = 60_000
HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_800_000_000_000
"""When each run begins."""


async def after(seconds: float, answer: Answer = OK) -> Answer:
    await asyncio.sleep(seconds)
    return answer


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
