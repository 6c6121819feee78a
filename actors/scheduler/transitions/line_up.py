"""Move waiting jobs to the lines in which they are to stand, once their pool or queue is fair, or is no longer.

Each turn moves a page, until every job stands where it belongs. Which ones do not follows from the rows, so a crash
between two pages changes nothing, and there is nothing to be stored of how far it has come.
"""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.rows import split_line_tail
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState
from tocsin.actors.scheduler.state.turn import STEPS, Turn
from tocsin.actors.scheduler.transitions.apply import stand_anew
from tocsin.storage.api import Range, after

PAGE: Final = 256
"""With what else a turn may write it stays inside one commit of the store."""


def is_to_line_up(state: SchedulerState) -> bool:
    """Return whether jobs are to be moved. A scheduler that has moved away changes no more."""
    moving = state.instance.moving
    return state.lines.rotas is not None and bool(state.lines.rotas.misplaced) and not (moving and moving[2])


async def line_up(turn: Turn) -> None:
    """Move a page of jobs, those that stand first in each line before others."""
    state = turn.state
    if not is_to_line_up(state):
        return
    buckets = state.lines.misplaced(PAGE)
    ranges: list[Range] = [(one.prefix, after(one.prefix), PAGE) for one in buckets]
    pages = await state.storage.scan_many(ranges)
    places = [(bucket, *split_line_tail(key)) for bucket, rows in zip(buckets, pages, strict=True) for key, _ in rows]
    places = places[:PAGE]
    known = await turn.jobs([job_id for _, _, job_id in places])
    for n, (bucket, due, job_id) in enumerate(places):
        if n % STEPS == 0 and turn.is_full:
            break
        stand_anew(turn, bucket, due, job_id, known.get(job_id))
