"""Calls that are put off: with `debounce` each call of an id puts its job off, with `throttle` an id has one job a
period. A call for a job that runs is kept, and becomes the job in the commit in which that run ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from tocsin.actors.scheduler.model.crockford import mint_id
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.later_rows import (
    LATER,
    THROTTLE,
    LaterRow,
    ThrottleRow,
    later_args_key,
    later_key,
    left_of,
    throttle_key,
)
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.actors.scheduler.model.rows import LARGEST_MS, JobRow, encode
from tocsin.actors.scheduler.state.fronts import Known
from tocsin.actors.scheduler.state.keeping import drop_later, keep_call
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.apply import accept, apply_to_waiting
from tocsin.actors.scheduler.transitions.job import Replace
from tocsin.dispatch.durations import span
from tocsin.errors import ThrottledError

log = logging.getLogger("tocsin.scheduler")


async def put_off(turn: Turn, new: NewJob, holder: Known | None, dead: bool) -> NewJob | Scheduled | ThrottledError:
    """Return the call as it is to be accepted now, in place of the job that may hold its id; or the answer to one that
    is kept until a run ends, or refused."""
    if holder is not None and new.job.incarnation and new.job.incarnation == holder.job.incarnation:
        return new  # the same call again
    running = holder is not None and not dead and turn.state.lease_of(new.job.id) is not None
    if new.debounce is not None:
        new = _debounced(turn, new, holder, running)
    elif new.throttle is not None:
        answer = await _throttled(turn, new, holder, dead or running)
        if not isinstance(answer, NewJob):
            return answer
        new = answer
    return _keep(turn, new) if running and new.folds else new


def _debounced(turn: Turn, new: NewJob, holder: Known | None, running: bool) -> NewJob:
    """Put the job off from now on, but not past the end that was said with an earlier call, nor with this one."""
    assert new.debounce is not None
    now, (delay_ms, max_wait_ms) = turn.now, new.debounce
    first, until = now, None if max_wait_ms is None else now + max_wait_ms
    if (before := _window(turn, new.job.id, holder, running)) is not None:
        first, said = before
        if first > now:  # the clock has stepped back
            first, said = now, None if said is None else now + said - first
        ends = [end for end in (said, None if max_wait_ms is None else first + max_wait_ms) if end is not None]
        until = min(ends, default=None)
    due = min(now + delay_ms, LARGEST_MS if until is None else until, LARGEST_MS)
    extras = replace(new.job.extras or JobExtras(), debounce=(first, until))
    return replace(new, job=replace(new.job, scheduled_for=due, extras=extras))


def _window(turn: Turn, job_id: str, holder: Known | None, running: bool) -> tuple[int, int | None] | None:
    """Return when the call that is put off was first asked for, and until when it can be; None if this is the first."""
    if running:
        later = turn.state.later
        kept = None if later is None else later.kept.get(job_id)
        extras = None if kept is None else kept.job.extras
    else:  # one that was tried has had its run: what follows is asked for anew
        extras = None if holder is None or holder.at.attempt else holder.job.extras
    return None if extras is None else extras.debounce


# ---- Throttle ------------------------------------------------------------------------------------


async def _throttled(
    turn: Turn, new: NewJob, holder: Known | None, started: bool
) -> NewJob | Scheduled | ThrottledError:
    """Refuse a call in the period of an earlier one, or let it be due at the end of that. `started`: the job that has
    the id runs, or is dead."""
    assert new.throttle is not None
    state, job, (_, merges) = turn.state, new.job, new.throttle
    key = throttle_key(job.id)
    value = await state.storage.get(key)
    period = None if value is None else state.read(ThrottleRow, key, value)
    left = 0 if period is None else left_of(period, turn.now)
    if period is not None and job.incarnation and job.incarnation == period.incarnation:
        return Scheduled(job.id, job.scheduled_for, True)  # the same call again, whose job has ended
    if merges:
        if holder is not None and not started and not holder.at.attempt:
            return replace(new, throttle=None, job=replace(job, scheduled_for=holder.at.next_at))
        return replace(new, job=replace(job, scheduled_for=max(job.scheduled_for, min(turn.now + left, LARGEST_MS))))
    if left:
        return ThrottledError(
            f"id {job.id!r} has had its job of {span(new.throttle[0])}: the next one is accepted in {span(left)}",
            id=job.id, retryAfterMs=left,
        )  # fmt: skip
    return new


async def begin_period(turn: Turn, job: JobRow, length_ms: int) -> None:
    """Begin the period of a job that was accepted: from when it is due."""
    state, key = turn.state, throttle_key(job.id)
    value = await state.storage.get(key)
    if value is not None and (old := state.read(ThrottleRow, key, value)) is not None:
        state.drop_timer(old.until, THROTTLE, job.id)
    until = min(max(turn.now, job.scheduled_for) + length_ms, LARGEST_MS)
    state.use_flow()
    state.storage.put(key, encode(ThrottleRow(until, turn.now, job.incarnation)))
    state.put_timer(until, THROTTLE, job.id)


async def end_periods(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Forget periods that are over."""
    rows = await turn.state.storage.get_many([throttle_key(job_id) for _, job_id in due])
    for ms, job_id in due:
        key = throttle_key(job_id)
        row = turn.state.read(ThrottleRow, key, rows[key]) if key in rows else None
        if row is not None and row.until <= ms:  # else it is of a later period
            turn.state.storage.delete(key)


# ---- While a job runs ----------------------------------------------------------------------------


def _keep(turn: Turn, new: NewJob) -> Scheduled:
    """Keep the call until the run ends, in place of one that is kept already."""
    job = new.job
    keep_call(turn.state, LaterRow(job, 0 if new.throttle is None else new.throttle[0]), new.rest_of_args)
    return Scheduled(job.id, job.scheduled_for, False, state="running")


async def bring_later(turn: Turn, only: Sequence[str] = ()) -> None:
    """Make jobs of the kept calls whose runs have ended, or only of these; what does not fit this commit goes on by a
    timer."""
    state = turn.state
    later = state.later
    if later is None or not later.freed:
        return
    ids = [job_id for job_id in dict.fromkeys(later.freed) if not only or job_id in only]
    later.freed = [job_id for job_id in later.freed if only and job_id not in only]
    found, dead = await turn.jobs(ids), await turn.dead(ids)
    for job_id in ids:
        kept = later.kept.get(job_id)
        if kept is None or state.lease_of(job_id) is not None:  # cancelled meanwhile, or it runs again
            continue
        if turn.is_full and not only:
            state.put_timer(turn.now, LATER, job_id)
            continue
        await _bring(turn, kept, found.get(job_id), job_id in dead)


async def bring_now(turn: Turn, ids: Sequence[str]) -> None:
    """Make jobs of the kept calls of these ids whose runs have ended, before anything else is done with the ids."""
    later = turn.state.later
    late = [] if later is None else [one for one in ids if one in later.kept and turn.state.lease_of(one) is None]
    if later is not None and late:
        later.freed += late
        await bring_later(turn, late)


async def _bring(turn: Turn, kept: LaterRow, holder: Known | None, dead: bool) -> None:
    state, job_id = turn.state, kept.job.id
    key = later_key(job_id)
    pieces = [later_args_key(job_id, n) for n in range(kept.job.args_rows)]
    rows = await state.storage.get_many([key, *pieces])
    row = state.read(LaterRow, key, rows[key]) if key in rows else None
    drop_later(state, job_id)
    if row is None:
        return  # it could not be read, and was set aside
    job = row.job
    if dead:
        job = replace(job, id=mint_id(turn.now, turn.random.getrandbits(80)))
        log.warning("job %r is dead and keeps its id: what was asked for while it ran is job %r now", job_id, job.id)
    elif holder is not None:
        apply_to_waiting(turn, holder.job, holder.at, Replace())
    accepted = accept(turn, NewJob(job, [rows.get(piece, b"") for piece in pieces]), job.scheduled_for)
    if row.throttle_ms:
        await begin_period(turn, replace(accepted.job, id=job_id), row.throttle_ms)


async def ring_later(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Go on with kept calls that did not fit the commit in which their runs ended."""
    if (later := turn.state.later) is not None:
        later.freed += [job_id for _, job_id in due if job_id in later.kept]
        await bring_later(turn)
