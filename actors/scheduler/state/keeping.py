"""Keep calls until the runs of their jobs have ended; drop them, and read them anew."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tocsin.actors.scheduler.model.later_rows import LaterRow, later_args_key, later_key
from tocsin.actors.scheduler.model.rows import encode
from tocsin.actors.scheduler.state.later import Later
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState


def keep_call(state: SchedulerState, row: LaterRow, rest_of_args: Sequence[bytes]) -> None:
    """Write a call for a job that runs, in place of one that is kept already. It counts as pending."""
    job = row.job
    state.use_flow()
    drop_later(state, job.id)
    state.storage.put(later_key(job.id), encode(row))
    for n, part in enumerate(rest_of_args):
        state.storage.put(later_args_key(job.id, n), part)
    state.later = state.later or Later()
    state.later.kept[job.id] = without_args(row)
    _count_paths(state, row, 1)


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
        _count_paths(state, row, -1)
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
    if state.paths.counting:
        count_kept(state)


def count_kept(state: SchedulerState) -> None:
    """Count the paths of kept calls, after those of all jobs were counted anew."""
    for row in () if state.later is None else state.later.kept.values():
        _count_paths(state, row, 1)


def _count_paths(state: SchedulerState, row: LaterRow, by: int) -> None:
    for target in (row.job.target, *row.job.chained):
        state.paths.changes[target] += by


def without_args(row: LaterRow) -> LaterRow:
    """Return the row as memory has it."""
    return replace(row, job=replace(row.job, args=b""))
