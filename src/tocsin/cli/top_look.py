"""A look at a server: what `tocsin top` shows at one instant, asked for all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tocsin.actors.client.client import Client
    from tocsin.actors.scheduler.model.activity import Activity, ActivityMinute
    from tocsin.actors.scheduler.model.records import Instance, Queue, Record, Status, WorkerPage, WorkerRecord

T = TypeVar("T")
LOOKED_AT: Final = 20
"""Instances whose health is asked for at each look: those that hold most."""
LISTED: Final = 1_000
DEATHS_OF_MS: Final = 3_600_000
DEATHS: Final = 20
MINUTE_S: Final = 60.0
RANK: Final = {"red": 0, "amber": 1, "green": 2}


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second, over the last minute; and quantiles of the present one, or of the one before, ms."""

    accepted: float = 0.0
    done: float = 0.0
    failed: float = 0.0
    died: float = 0.0
    late_p95_ms: int | None = None
    took_p95_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InstanceLine:
    """One of several instances; `status` if it was looked at."""

    name: str
    backlog: int
    in_flight: int
    dead: int
    paused: bool
    status: Status | None = None

    @property
    def health(self) -> str:
        """Return its colour, "" if it was not looked at."""
        return self.status.health if self.status is not None else ""


@dataclass(frozen=True, slots=True)
class Look:
    """One server at one instant, and one of its instances."""

    at: int
    name: str
    status: Status
    rates: Rates
    instances: Sequence[InstanceLine] = ()
    """The worst first; none if they may not be listed."""
    queues: Sequence[Queue] = ()
    workers: Sequence[WorkerRecord] = ()
    deaths: Sequence[Record] = field(default=())
    """The latest first."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        rates = {
            "acceptedPerSecond": round(self.rates.accepted, 3),
            "donePerSecond": round(self.rates.done, 3),
            "failedPerSecond": round(self.rates.failed, 3),
            "diedPerSecond": round(self.rates.died, 3),
            "lateP95Ms": self.rates.late_p95_ms,
            "tookP95Ms": self.rates.took_p95_ms,
        }
        listed = [
            {"name": one.name, "health": one.health or None, "backlog": one.backlog, "inFlight": one.in_flight,
             "dead": one.dead, "paused": one.paused}
            for one in self.instances
        ]  # fmt: skip
        return {
            "at": self.at,
            "instance": self.name,
            "status": self.status.to_dict(),
            "rates": rates,
            "instances": listed,
            "queues": [one.to_dict() for one in self.queues],
            "workers": [one.to_dict() for one in self.workers],
            "deaths": [
                {
                    "id": one.id,
                    "path": one.function_path or one.workflow,
                    "reason": one.reason,
                    "parkedAt": one.parked_at,
                }
                for one in self.deaths
            ],
        }


async def look_at(client: Client, name: str | None, now_ms: int) -> Look:
    """Look at an instance; None: at the one in most trouble. Errors are those of the client."""
    listed = await _instances(client)
    if name is None:
        name = listed[0].name if listed else "default"
    jobs = client.scheduler(name)
    known = next((one.status for one in listed if one.name == name), None)
    status, activity, queues, workers, deaths = await asyncio.gather(
        _given(known) if known is not None else jobs.status(),
        jobs.activity(minutes=2),
        jobs.queues(),
        jobs.workers(limit=LISTED),
        jobs.dead(since=now_ms - DEATHS_OF_MS, limit=LISTED),
    )
    return Look(
        at=now_ms, name=name, status=status, rates=rates_of(activity), instances=listed,
        queues=sorted(queues, key=_urgency), workers=_worst_first(workers),
        deaths=[*deaths.records][: -DEATHS - 1 : -1],
    )  # fmt: skip


async def _given(value: T) -> T:
    return value


async def _instances(client: Client) -> list[InstanceLine]:
    """Return the instances, the worst first; none if this token may not list them."""
    from tocsin.errors import ForbiddenError

    try:
        page = await client.instances(limit=LISTED)
    except ForbiddenError:
        return []
    fullest = sorted(page.instances, key=lambda one: -(one.backlog + one.in_flight + one.dead))
    asked: list[Awaitable[Status]] = [client.scheduler(one.name).status() for one in fullest[:LOOKED_AT]]
    found = dict(zip([one.name for one in fullest], await asyncio.gather(*asked), strict=False))
    lines = [_line(one, found.get(one.name)) for one in page.instances]
    return sorted(lines, key=trouble)


def _line(one: Instance, status: Status | None) -> InstanceLine:
    return InstanceLine(one.name, one.backlog, one.in_flight, one.dead, one.paused, status)


def trouble(one: InstanceLine) -> tuple[Any, ...]:
    """Return what sorts the worst first: health, then for how long due jobs wait, then dead and waiting jobs."""
    late = (one.status.oldest_due_ms or 0) if one.status is not None else 0
    return RANK.get(one.health, 3), -late, -one.dead, -one.backlog, one.name


def _urgency(one: Queue) -> tuple[int, int, str]:
    return -(one.oldest_due_ms or 0), -one.waiting, one.name


def _worst_first(page: WorkerPage) -> list[WorkerRecord]:
    return sorted(page.workers, key=lambda one: (not one.lost, one.status == "idle", one.id))


def rates_of(activity: Activity) -> Rates:
    """Return rates over the last sixty seconds: the present minute, and of the one before as much as is missing."""
    if not activity.minutes:
        return Rates()
    present = activity.minutes[-1]
    before = activity.minutes[-2] if len(activity.minutes) > 1 else None
    passed = min(max((activity.now - present.at) / 1000, 0.0), MINUTE_S)
    watched = min(max((activity.now - activity.since) / 1000, 1.0), MINUTE_S)

    def rate(name: str) -> float:
        earlier = 0 if before is None else getattr(before, name) * (MINUTE_S - passed) / MINUTE_S
        return float(getattr(present, name) + earlier) / watched

    return Rates(
        rate("accepted"), rate("done"), rate("failed"), rate("died"),
        _latest("late_p95_ms", present, before), _latest("took_p95_ms", present, before),
    )  # fmt: skip


def _latest(name: str, present: ActivityMinute, before: ActivityMinute | None) -> int | None:
    found: int | None = getattr(present, name)
    return found if found is not None or before is None else getattr(before, name)
