"""The overview: is it healthy, and if not why; how much waits, runs and is dead; what is due."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tocsin.actors.http.dashboard import charts
from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.page import Page
from tocsin.actors.scheduler.model.records import PoolStatus, Record, Status
from tocsin.errors import InvalidInputError, StoreUnavailable

SHOWN: Final = 8
"""Pools, and jobs of a list."""
OWNER_S: Final = 1.0
"""The page waits so long for what only the owner of the instance knows."""
EXPLAINED: Final = 3
"""Jobs of the list that are asked why they wait."""
HELP: Final[Mapping[str, tuple[str, str, str, Mapping[str, str]]]] = {
    "DEAD_LETTERS": ("Dead letters", "/dead", "dead_groups", {}),
    "DEAD_GROWING": ("Dead letters", "/dead", "dead_groups", {}),
    "JOBS_DYING": ("Dead letters", "/dead", "dead_groups", {}),
    "QUEUE_LATE": ("Queues", "/queues", "queues", {}),
    "ATTEMPTS_LOST": ("Workers", "/workers", "workers", {}),
    "JOBS_LATE": ("Jobs that are due", "/jobs", "list", {"state": "waiting"}),
    "JOBS_STUCK": ("Jobs that are due", "/jobs", "list", {"state": "waiting"}),
    "SUSPECTS_WAITING": ("Jobs that are due", "/jobs", "list", {"state": "waiting"}),
    "LEASES_OVER": ("Jobs that run", "/jobs", "list", {"state": "running"}),
}
"""The page that helps with a reason of health: its words, its path, what it takes, and its filters."""


@dataclass(frozen=True, slots=True)
class Soon:
    """The first jobs of a list, or why none are shown."""

    records: Sequence[Record] = ()
    why: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why the first of each queue and pool does not start, by its id."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of the page; `charts` are None to whom HTTP would not tell, and without an owner."""

    status: Status
    pools: Sequence[PoolStatus]
    more_pools: int
    due: Soon
    next: Soon
    charts: charts.Charts | None
    help: Mapping[str, tuple[str, str]]
    """The words and the address of the page that helps, by the code of a reason."""

    @property
    def verdict(self) -> str:
        """The colour of the verdict: an instance that is paused is as somebody wants it, and yet not at work."""
        if not self.status.known and self.status.health == "green":
            return "none"
        return "amber" if self.status.paused and self.status.health == "green" else self.status.health

    @property
    def lanes_share(self) -> float:
        return share(self.status.lanes.in_flight, self.status.lanes.limit)

    def share(self, pool: PoolStatus) -> float:
        return share(pool.in_flight, pool.max_concurrency)


def share(part: int, whole: int) -> float:
    """Return per cent, at most 100."""
    return min(100.0, 100 * part / whole) if whole else (100.0 if part else 0.0)


async def show(asked: Asked) -> Overview:
    status = await asked.status()
    assert status is not None, "the page needs the leave that this needs"
    owned = status.cluster is None or status.cluster.owner is not None
    due = await _first(asked, "waiting")
    pools = sorted(status.pools, key=lambda one: (not one.paused, -one.queued, -one.in_flight, one.name))
    return Overview(
        status,
        pools[:SHOWN],
        max(0, len(pools) - SHOWN),
        await _explained(asked, due) if owned else due,
        await _first(asked, "pending"),
        await _charts(asked) if owned else None,
        await _help(asked, status),
    )


async def _charts(asked: Asked) -> charts.Charts | None:
    """Return the last hour, which the owner has in its memory; None to whom it is not told, or while none is reached.
    The store tells the rest."""
    if not await asked.may("activity"):
        return None
    try:
        async with asyncio.timeout(OWNER_S):
            return charts.of(await asked.port.reads.activity(charts.MINUTES))
    except (StoreUnavailable, TimeoutError):
        return None


async def _help(asked: Asked, status: Status) -> Mapping[str, tuple[str, str]]:
    """Return the pages that help with what is wrong, as far as the caller may see them."""
    found = {}
    for code in {one.code for one in status.reasons} & HELP.keys():
        words, path, action, filters = HELP[code]
        if await asked.may(action):
            found[code] = words, asked.url(path, **filters)
    return found


async def _explained(asked: Asked, soon: Soon) -> Soon:
    """Add why jobs wait: of the first of each queue and pool, as the others stand behind it."""
    reasons: dict[str, str] = {}
    lines = {(one.queue, one.origin, one.pool): one.id for one in reversed(soon.records)}
    for id in list(reversed(lines.values()))[:EXPLAINED]:
        if await asked.may("why", id) and (found := await asked.port.reads.why(id)):
            reasons[id] = found[0].message
    return replace(soon, reasons=reasons)


async def _first(asked: Asked, state: str) -> Soon:
    if not await asked.may("list"):
        return Soon(why="You may not list jobs.")
    try:
        page = await asked.port.reads.list(
            cursor=None, limit=SHOWN, order="due", pool=None, state=state, label=None, queue=None, path=None
        )
    except InvalidInputError as error:  # so many lines that they cannot be merged
        return Soon(why=f"{error.message[:1].upper()}{error.message[1:]}.")
    return Soon(page.records)


PLACES: Final = (Page(name="overview", path="", title="Overview", action="status", show=show),)
