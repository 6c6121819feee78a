"""Read how the test clock of an instance stands, and what an advance waits for, from committed state."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow, state_of
from tocsin.actors.scheduler.model.health import ORIGIN_COOLING, ORIGIN_NOT_CONFIGURED
from tocsin.actors.scheduler.model.line_names import origin_in, queue_in
from tocsin.actors.scheduler.model.records import ClockState
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries.why import Facts, of_callbacks
from tocsin.storage.api import StoreView, after

COUNTED = 1_000
OF_ORIGINS: Final = frozenset({ORIGIN_COOLING, ORIGIN_NOT_CONFIGURED})
"""Hindrances that do not end by an attempt."""


async def row_of(view: StoreView) -> ClockRow | None:
    """Return the row of the clock; None if the instance runs on the live one."""
    return query.read(ClockRow, CLOCK, (await view.get([CLOCK])).get(CLOCK))


async def of(view: StoreView, facts: Facts) -> ClockState | None:
    """Return how the clock stands; None if the instance runs on the live one."""
    row = await row_of(view)
    if row is None or not row.target:
        return None if row is None else state_of(row)
    return state_of(row, await _waits_for(view, row, facts))


async def _waits_for(view: StoreView, row: ClockRow, facts: Facts) -> str | None:
    leases, lines = await view.scan_many(
        [(b"lease/", after(b"lease/"), COUNTED), (b"lines/", after(b"lines/"), query.PAGE)]
    )
    if leases:
        more = " or more" if len(leases) == COUNTED else ""
        return "1 attempt is under way" if len(leases) == 1 else f"{len(leases):,}{more} attempts are under way"
    due = await query.due_by_line(view, lines, row.at)
    if facts.store_trouble is not None and due:
        return f"nothing new is started: {facts.store_trouble}"
    for origin in sorted({origin_in(line) for _, line in due if not queue_in(line)}):
        of_origin = facts.of_origin(origin) if origin else facts
        if of_origin.circuit is not None:
            return of_origin.circuit
        for code in of_origin.hindrances(0):
            if code in OF_ORIGINS:
                return of_callbacks(code, of_origin).message
    queues = sorted({queue_in(queue) for _, queue in due if queue_in(queue)})
    return f"jobs of queue {queues[0]} wait for a worker, but not for long" if queues else None
