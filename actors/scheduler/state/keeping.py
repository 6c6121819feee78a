"""Keep calls until the runs of their jobs have ended; drop them, and read them anew."""

from __future__ import annotations

from msgspec.structs import replace

from tocsin.actors.scheduler.model.later_rows import LaterRow, later_args_key, later_key
from tocsin.actors.scheduler.state.later import Later
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState


def run_ended(state: SchedulerState, job_id: str, *, cancelled: bool) -> None:
    """Note that the run is over for whose end a call is kept. Who cancels the id cancels the call as well."""
    assert state.later is not None
    if cancelled:
        drop_later(state, job_id)
    else:
        state.later.freed.append(job_id)


def drop_later(state: SchedulerState, job_id: str) -> None:
    """Delete the rows of a kept call, if there is one."""
    row = None if state.later is None else state.later.kept.pop(job_id, None)
    if row is not None:
        state.storage.delete(later_key(job_id))
        for n in range(row.job.args_rows):
            state.storage.delete(later_args_key(job_id, n))


async def load_later(state: SchedulerState) -> None:
    """Read what is kept. Calls whose run is over already are to become jobs in the next turn."""
    for key, value in await state.all_rows(b"later/"):
        if (row := state.read(LaterRow, key, value)) is not None:
            state.later = state.later or Later()
            state.later.kept[row.job.id] = without_args(row)
            if state.lease_of(row.job.id) is None:
                state.later.freed.append(row.job.id)


def without_args(row: LaterRow) -> LaterRow:
    """Return the row as memory has it."""
    return replace(row, job=replace(row.job, args=b""))
