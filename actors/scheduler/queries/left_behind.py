"""Say which due jobs were not begun, and why, from committed state and what the host knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tocsin.actors.scheduler.inflight.permits import NOT_DISPATCHING
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.due_run import FOR_WORKERS, JUST_DUE, TIME_OVER, LeftBehind
from tocsin.actors.scheduler.model.line_names import level_in, origin_in, queue_in
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rows import META_COUNTERS
from tocsin.actors.scheduler.queries import instances, why
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.storage.api import StoreProvider, StoreView, after

INSTANCES: Final = 1_000
"""So many instances are looked at: a store may have very many, and most have nothing that is due."""


@dataclass(slots=True)
class Left:
    """The jobs that were left in all instances that were looked at."""

    jobs: int = 0
    running: int = 0
    because: list[LeftBehind] = field(default_factory=list)
    more_instances: bool = False


async def left_behind(
    provider: StoreProvider,
    now: int,
    facts: Callable[[str], why.Facts],
    is_here: Callable[[str], bool],
    *,
    time_over: bool,
) -> Left:
    """Look at each instance of this host for jobs that are due by `now`. `facts` returns what the host knows of it."""
    left, seen = Left(), 0
    async for name in instances.names(provider, ""):
        if seen == INSTANCES:
            left.more_instances = True
            break
        if not is_here(name):
            continue
        seen += 1
        view = provider.view(str(actor_of(name)))
        counted, clocks, lines = await view.scan_many(
            [query.one(META_COUNTERS), query.one(CLOCK), (b"lines/", after(b"lines/"), query.PAGE)]
        )
        clock = query.read(ClockRow, CLOCK, clocks[0][1]) if clocks else None
        counters = query.read(Counters, META_COUNTERS, counted[0][1] if counted else None) or Counters()
        left.running += counters.leased
        if len(lines) == query.PAGE:
            lines = await query.whole(view, b"lines/")
        instant = now if clock is None else clock.at
        due = await query.due_by_line(view, lines, instant)
        if due:
            left.jobs += due.total()
            left.because += await _reasons(view, name, due, facts(name), time_over, instant)
    return left


async def _reasons(
    view: StoreView, name: str, due: Counter[tuple[str, str]], facts: why.Facts, time_over: bool, now: int
) -> list[LeftBehind]:
    """Name the first reason of each line, once for all jobs that have it."""
    if stopped := await why.of_instance(view):
        return [LeftBehind(stopped[0].code, stopped[0].message, due.total(), name)]
    jobs: Counter[tuple[str, str]] = Counter()
    for (pool, queue), count in due.items():
        held = why.of_pool(await query.pool(view, pool, now), now) if pool else []
        if held:
            found = held[0].code, held[0].message
        elif queue_in(queue):
            found = _of_queue(queue_in(queue), facts)
        else:
            origin = origin_in(queue)
            found = _of_callbacks(level_in(queue), facts.of_origin(origin) if origin else facts, time_over)
        jobs[found] += count
    return [LeftBehind(code, message, count, name) for (code, message), count in jobs.items()]


def _of_queue(queue: str, facts: why.Facts) -> tuple[str, str]:
    if facts.waiting_for(queue):
        return FOR_WORKERS, f"queue {queue}: its workers take them"
    return FOR_WORKERS, f"queue {queue}: no worker waits for them on this host"


def _of_callbacks(level: int, facts: why.Facts, time_over: bool) -> tuple[str, str]:
    if held := why.of_host(facts):
        return held[0].code, held[0].message
    codes = [code for code in facts.hindrances(level) if code != NOT_DISPATCHING]
    if time_over and facts.circuit is None:
        return TIME_OVER, "the time for this run was over"
    if codes:
        return codes[0], why.of_callbacks(codes[0], facts).message
    return JUST_DUE, "due since this run ended"
