"""Count what all schedulers of a store hold, for whoever watches the whole host, from committed rows.

Between two looks only those schedulers are read again whose rows have changed. A look reads a bounded number of them,
with the store's readers for lists: no turn and no commit waits for it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tocsin.actors.scheduler.inflight.activity import Activities
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.line_names import queue_in
from tocsin.actors.scheduler.model.moving import rests
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rate_rows import RateRow
from tocsin.actors.scheduler.model.rows import INSTANCE, META_COUNTERS
from tocsin.actors.scheduler.queries.instances import names
from tocsin.actors.scheduler.queries.jobs import buckets_of, due_in, instance_row, one, read
from tocsin.actors.scheduler.queries.standing import Buckets
from tocsin.storage.api import StoreProvider, StoreView, after

READ_AT_ONCE: Final = 1_000
"""So many schedulers are read in one look."""
LINES_READ: Final = 1_000
"""Of one scheduler; of one with more lines the rest is not told apart."""
DUE_COUNTED: Final = 10_000
DUE_LOOKED_AT: Final = 200
SHOWN: Final = 20
"""So many instances, queues and pools are named, those with the most waiting jobs; the others are one."""
OTHERS: Final = "(other)"
"""No name has parentheses."""
CALLBACKS: Final = "(callbacks)"


@dataclass(frozen=True, slots=True)
class Held:
    """The jobs of one scheduler."""

    waiting: int
    running: int
    dead: int
    paused: bool
    buckets: Buckets
    cooling: tuple[int, ...] = ()
    """Until when each of its pools cools, or has cooled."""

    def first_due(self, *, pulled: bool) -> int | None:
        """Return when the first of its callbacks, or of its jobs of queues, was or is due."""
        found = (
            due for (_, queue, _), (count, due) in self.buckets.items() if count and bool(queue_in(queue)) is pulled
        )
        return min(found, default=None)


@dataclass(slots=True)
class HostCounts:
    """The sums over all schedulers without a test clock. `unread`: so many have changed and are still to be read."""

    instances: int = 0
    waiting: int = 0
    running: int = 0
    dead: int = 0
    due: int = 0
    unread: int = 0
    oldest_ms: dict[str, int] = field(default_factory=dict)
    """For how long the first due job has waited: `callback`, `worker`; without paused instances."""
    by_instance: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    by_queue: dict[str, int] = field(default_factory=dict)
    by_pool: dict[str, int] = field(default_factory=dict)
    pools_cooling: int = 0


class Counting:
    """Keeps what each scheduler held when it was read last."""

    def __init__(
        self, activities: Activities, provider: Callable[[], StoreProvider], now_ms: Callable[[], int]
    ) -> None:
        self._activities, self._provider, self._now_ms = activities, provider, now_ms
        self._lock = asyncio.Lock()
        self._known: dict[str, Held] = {}

    async def look(self, left_out: Callable[[str], bool], is_here: Callable[[str], bool]) -> HostCounts:
        """Read what has changed of schedulers that are here, and sum up. StoreError if the store cannot be read."""
        async with self._lock:
            touched = self._activities.touched
            if touched is None:  # the first look, or the first since the host has started
                self._known.clear()
                touched = self._activities.touched = set()
                async for name in names(self._provider(), ""):
                    if is_here(name):
                        touched.add(name)
            for name in list(touched)[:READ_AT_ONCE]:
                touched.discard(name)  # first: a change meanwhile is another one
                try:
                    held = await self._read(name)
                except BaseException:
                    touched.add(name)
                    raise
                if held is None:
                    self._known.pop(name, None)
                else:
                    self._known[name] = held
            shown = {name: held for name, held in self._known.items() if is_here(name) and not left_out(name)}
            return await self._sum(shown, len(touched))

    async def _read(self, name: str) -> Held | None:
        """Read one scheduler; None if there is none any more."""
        wanted = [(b"\x01", b"\xff", 1), one(META_COUNTERS), one(INSTANCE), (b"lines/", after(b"lines/"), LINES_READ)]
        wanted.append((b"rate/", after(b"rate/"), LINES_READ))
        any_row, counted, own, found, rates = await self._view(name).scan_many(wanted)
        if not any_row:
            return None
        counters = read(Counters, META_COUNTERS, counted[0][1] if counted else None) or Counters()
        paused = rests(instance_row(own))
        rows = (read(RateRow, key, value) for key, value in rates)
        cooling = tuple(row.cool_until for row in rows if row is not None and row.cool_until)
        return Held(counters.waiting, counters.leased, counters.dead, paused, buckets_of(found), cooling)

    def _view(self, name: str) -> StoreView:
        return self._provider().view(str(actor_of(name)))

    async def _sum(self, known: dict[str, Held], unread: int) -> HostCounts:
        now = self._now_ms()
        found = HostCounts(instances=len(known), unread=unread)
        queues: Counter[str] = Counter()
        pools: Counter[str] = Counter()
        ripe: list[tuple[int, str]] = []
        for name, held in known.items():
            found.waiting, found.running = found.waiting + held.waiting, found.running + held.running
            found.dead += held.dead
            found.pools_cooling += sum(until > now for until in held.cooling)
            for (pool, queue, _), (count, _) in held.buckets.items():
                queues[queue_in(queue) or CALLBACKS] += count
                if pool:
                    pools[pool] += count
            for kind, pulled in (("callback", False), ("worker", True)):
                due = held.first_due(pulled=pulled)
                if due is None or due > now:
                    continue
                ripe.append((due, name))
                if not held.paused:
                    found.oldest_ms[kind] = max(found.oldest_ms.get(kind, 0), now - due)
        found.by_queue, found.by_pool = _largest(queues), _largest(pools)
        found.by_instance = _busiest(known)
        for name in dict.fromkeys(name for _, name in heapq.nsmallest(DUE_LOOKED_AT, ripe)):
            if found.due < DUE_COUNTED:
                found.due += (await due_in(self._view(name), known[name].buckets, now))[0]
        found.due = min(found.due, DUE_COUNTED)
        return found


def _largest(counts: Counter[str]) -> dict[str, int]:
    """Return the largest counts, and the sum of the others."""
    shown = {name: count for name, count in counts.most_common(SHOWN) if count}
    if rest := counts.total() - sum(shown.values()):
        shown[OTHERS] = rest
    return shown


def _busiest(known: dict[str, Held]) -> dict[str, tuple[int, int, int]]:
    """Return the instances with the most waiting jobs, and the sum of the others."""
    most = heapq.nlargest(SHOWN, known.items(), key=lambda one: (one[1].waiting, one[1].running, one[1].dead))
    shown = {name: (held.waiting, held.running, held.dead) for name, held in most}
    if len(known) > len(shown):
        rest = _sums(held for name, held in known.items() if name not in shown)
        shown[OTHERS] = rest
    return shown


def _sums(some: Iterator[Held]) -> tuple[int, int, int]:
    waiting = running = dead = 0
    for held in some:
        waiting, running, dead = waiting + held.waiting, running + held.running, dead + held.dead
    return waiting, running, dead
