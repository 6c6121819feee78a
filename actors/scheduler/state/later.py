"""Memory of the calls that are kept while jobs of their ids run. Few schedulers have any: the others have no such
object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tocsin.actors.scheduler.model.later_rows import LaterRow, later_args_key, later_key

if TYPE_CHECKING:
    from tocsin.actors.scheduler.state.leases import Leases
    from tocsin.actors.scheduler.state.scheduler_state import SchedulerState


@dataclass(slots=True)
class Later:
    """`kept`: by id, the row without its args. `freed`: the ids whose run has ended, so that the call is to become the
    job before the turn ends."""

    kept: dict[str, LaterRow] = field(default_factory=dict)
    freed: list[str] = field(default_factory=list)


def run_ended(state: Leases, job_id: str, *, cancelled: bool) -> None:
    """Note that the run is over for whose end a call is kept. Who cancels the id cancels the call as well."""
    assert state.later is not None
    if cancelled:
        drop_later(state, job_id)
    else:
        state.later.freed.append(job_id)


def drop_later(state: Leases, job_id: str) -> None:
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
    return replace(row, job=replace(row.job, args=b""))
