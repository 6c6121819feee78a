"""Find the place of a job whose row of it is lost."""

from __future__ import annotations

from tocsin.actors.scheduler.model.line_names import SHARD, base_of, marked, place_in, shard_of
from tocsin.actors.scheduler.model.rows import AtRow, JobRow, bucket_prefix, split_line_tail
from tocsin.actors.scheduler.model.suspects import LEVELS
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState


async def find_place(state: SchedulerState, job: JobRow) -> AtRow:
    """Find where a job stands whose row of its place cannot be read, by a search for its line row."""
    base = base_of(job)
    lines = [marked(base, level) for level in (0, *LEVELS)]
    shard = f"{SHARD}{shard_of(job.shard_key or '')}"
    for queue in (*lines, *(line + shard for line in lines)):
        for key, _ in await state.all_rows(bucket_prefix(job.pool, queue, job.priority)):
            due, job_id = split_line_tail(key)
            if job_id == job.id:
                return place_in(queue, due)
    return AtRow(job.scheduled_for)
