"""Write what becomes of a job: the only module outside `state` that changes where a job stands.

Each function here begins with a job in one place (nowhere, its queue, under a lease, among the dead letters) and leaves
it in the next one; `job` decides which. A test holds that nothing else calls the writing methods of the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.damage import DAMAGED
from tocsin.actors.scheduler.model.lost import NO_JOB
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import (
    PULLED,
    AtRow,
    DeadRow,
    HistRow,
    JobRow,
    LeaseRow,
    PoolRow,
    ResultRow,
    at_key,
    bad_key,
    job_key,
    line_key,
    result_key,
)
from tocsin.actors.scheduler.state.fronts import Known
from tocsin.actors.scheduler.state.groups import list_member, note_member, unlist_member
from tocsin.actors.scheduler.state.keeping import run_ended
from tocsin.actors.scheduler.state.ready_heap import PriorityBucket
from tocsin.actors.scheduler.state.scheduler_state import EXPIRE, RESULT
from tocsin.actors.scheduler.state.turn import ACCEPTED, RESTORED, Turn
from tocsin.actors.scheduler.transitions import rates
from tocsin.actors.scheduler.transitions.job import (
    Cancel,
    Decision,
    Done,
    Drop,
    End,
    Expire,
    Hold,
    Next,
    Park,
    Replace,
    Requeue,
)

SAID: Final = ("done", "failed", "returned")
"""Outcomes of which the worker told itself."""


def accept(turn: Turn, new: NewJob, start_at: int) -> Known:
    """Write a new job and its place in its queue; return both. A job may set the cap of its pool."""
    state = turn.state
    job = msgspec.structs.replace(new.job, incarnation=new.job.incarnation or turn.incarnation())
    at = state.add_job(job, new.rest_of_args, AtRow(start_at))
    if job.max_concurrency is not None or job.extras is not None:
        _set_pool(turn, job)
    if job.extras is not None:
        list_member(state, job)
        note_member(state, job, members=1, open=1)
    if turn.changes is not None:
        turn.changes.append((job, ACCEPTED, 0))
    return Known(job, at)


def _set_pool(turn: Turn, job: JobRow) -> None:
    """Set what a job says of its pool, where no operator has set it."""
    there = pool = turn.state.lines.pools.get(job.pool)
    if not job.pool:
        return
    if job.extras is not None and job.extras.rate is not None:
        pool = rates.rated(pool, job.extras.rate)
    cap = job.max_concurrency
    if cap is not None and (pool is None or (pool.set_by != "put" and pool.cap != cap)):
        pool = PoolRow(cap) if pool is None else msgspec.structs.replace(pool, cap=cap, set_by="job")
    if pool is not None and pool is not there:
        rates.put_pool(turn, job.pool, pool)


def accept_plain(turn: Turn, jobs: Sequence[NewJob]) -> None:
    """Write new jobs as `accept` does, all together: each `is_plain`, and no two have one id."""
    incarnation = turn.incarnation
    accepted = [msgspec.structs.replace(new.job, incarnation=new.job.incarnation or incarnation()) for new in jobs]
    turn.state.add_plain_jobs(accepted)
    if turn.changes is not None:
        turn.changes.extend((job, ACCEPTED, 0) for job in accepted)


def start(turn: Turn, job: JobRow, at: AtRow, token: str, lease: LeaseRow) -> None:
    """Exchange the job's place in its queue for a lease."""
    turn.state.leave_line(job, at)
    turn.state.put_lease(job.id, token, lease)
    if turn.changes is not None:
        turn.changes.append((job, lease, lease.at.attempt))


def apply(turn: Turn, job: JobRow | None, token: str, decision: Decision) -> None:
    """Write what becomes of the attempt with this lease, and of its job. None: the job is gone, only the lease is
    left of it."""
    state = turn.state
    if isinstance(decision, Hold):
        if turn.changes is not None and decision.lease.kind != state.leases[token][1].kind:
            turn.changes.append((job, decision.lease, decision.lease.at.attempt))
        state.change_lease(token, decision.lease)
        if job is not None and decision.next is not None:
            _become(turn, job, decision.next)
        return
    job_id, lease = state.leases[token]
    row = None if job is None else _history(decision, job, lease.at, lease.started, turn.now, lease.at.next_at, token)
    state.drop_lease(token)
    if job is None:
        if not lease.orphan:  # its job could not be read
            state.counters.set_aside += 1
            if state.later is not None and job_id in state.later.kept:
                run_ended(state, job_id, cancelled=False)
        return
    if row is not None:
        state.note(job, row)
        state.tally.attempts.append(row.outcome)
        if lease.kind == PULLED and row.outcome in SAID:
            state.tally.took = [*state.tally.took, turn.now - lease.started]
    if decision.next is not None:
        _become(turn, job, decision.next, lease.at.attempt)
        if isinstance(decision.next, Requeue) and job.expires_at is not None and decision.next.at.expires:
            # Its timer may have fired while the attempt ran, before the clock stepped back.
            state.put_timer(job.expires_at, EXPIRE, job.id)


def apply_late(turn: Turn, job: JobRow, at: AtRow, token: str, started: int, due: int, end: End) -> None:
    """Write the end of an attempt whose lease had ended first, while its job waits at `at` for the next attempt."""
    row = _history(end, job, at, started, turn.now, due, token)
    turn.state.leave_line(job, at)
    if row is not None:
        turn.state.note(job, row)
        turn.state.tally.attempts.append(row.outcome)
    if end.next is not None:
        _become(turn, job, end.next, at.attempt)


def apply_to_waiting(turn: Turn, job: JobRow, at: AtRow, after: Next) -> None:
    """Write what becomes of a job that waits at `at`."""
    turn.state.leave_line(job, at)
    _become(turn, job, after)


def apply_to_letter(turn: Turn, job: JobRow, dead: DeadRow, after: Next) -> None:
    """Write what becomes of a dead letter."""
    turn.state.unpark(job, dead)
    if isinstance(after, Requeue):
        note_member(turn.state, job, dead=-1, open=1)
        turn.state.occurrences.note(job, "retried")
        turn.state.counters.retried += 1
    _become(turn, job, after)


def stand_anew(turn: Turn, bucket: PriorityBucket, due: int, job_id: str, known: Known | None) -> None:
    """Move a job from the line in which it waits to the one in which it is to wait, at the same instant."""
    if known is None:
        set_place_aside(turn, bucket, due, job_id)
        return
    line, at = bucket.line, known.at
    if at.next_at != due:  # the line decides where the job stands
        at = msgspec.structs.replace(at, next_at=due)
    turn.state.drop_line(line.pool, line.queue, bucket.priority, due, job_id)
    turn.state.storage.delete(at_key(job_id))
    turn.state.enter_line(known.job, at)


# ---- Undone --------------------------------------------------------------------------------------


async def restore(turn: Turn, job: JobRow, rest_of_args: Sequence[bytes], at: AtRow) -> None:
    """Put a job back that was cancelled, where it stood, with the incarnation that it had. Its id must be free."""
    state = turn.state
    state.add_job(job, rest_of_args, at)
    list_member(state, job)
    note_member(state, job, cancelled=-1, open=1)
    if job.pool not in state.lines.pools:  # else its cap is that of who came later
        _set_pool(turn, job)
    state.occurrences.note(job, "retried")
    key = result_key(job.id)
    if job.keep_result_ms is not None and (value := await state.storage.get(key)) is not None:
        row = state.read(ResultRow, key, value)
        if row is not None and row.incarnation == job.incarnation:
            state.storage.delete(key)  # it has not ended, after all
            state.drop_timer(row.until, RESULT, job.id)
    _note_unstarted(turn, job, at, "restored")
    if turn.changes is not None:
        turn.changes.append((job, RESTORED, 0))


def restore_letter(turn: Turn, job: JobRow, rest_of_args: Sequence[bytes], dead: DeadRow) -> None:
    """Put a dead letter back that was cancelled. Its id must be free."""
    turn.state.put_job(job, rest_of_args)
    list_member(turn.state, job)
    turn.state.counters.accepted += 1  # anew: it is counted as discarded already
    turn.state.put_letter(job, dead)
    turn.state.occurrences.note(job, "restored")
    if turn.changes is not None:
        turn.changes.append((job, RESTORED, 0))


def park_again(turn: Turn, job: JobRow, at: AtRow, dead: DeadRow) -> None:
    """Make a letter dead again that waits to be retried. Its death was told when it came."""
    turn.state.leave_line(job, at)
    turn.state.park(job, dead, again=True)
    note_member(turn.state, job, open=-1, dead=1)
    turn.state.occurrences.note(job, "dead")
    if turn.changes is not None:
        turn.changes.append((job, RESTORED, 0))


def set_place_aside(turn: Turn, bucket: PriorityBucket, due: int, job_id: str) -> None:
    """Move a place in a queue whose job is missing or unreadable to bad/: kept to be looked at, out of the way."""
    line, storage = bucket.line, turn.state.storage
    storage.put(bad_key(line_key(line.pool, line.queue, bucket.priority, due, job_id)), NO_JOB)
    storage.delete(at_key(job_id))
    storage.delete(job_key(job_id))
    turn.state.drop_line(line.pool, line.queue, bucket.priority, due, job_id)
    turn.state.counters.set_aside += 1


def _become(turn: Turn, job: JobRow, after: Next, attempt: int = 0) -> None:
    """Write what becomes of a job that no longer stands where it stood; `attempt` has just ended."""
    state = turn.state
    if turn.changes is not None:
        turn.changes.append((job, after, attempt))
    if state.later is not None and job.id in state.later.kept:
        run_ended(state, job.id, cancelled=isinstance(after, Cancel))
    if job.extras is not None:
        note_member(state, job, **_COUNTED.get(type(after), {}))
        if not isinstance(after, Requeue | Park):
            unlist_member(state, job)
    match after:
        case Done(result, no_result):
            if job.keep_result_ms is not None:
                state.keep_result(job, "done", turn.now, result, no_result)
            state.erase_job(job, "done")
            state.counters.done += 1
        case Requeue(at):
            state.enter_line(job, at)
        case Park(reason, at, response):
            status = None if at.last_error is None else at.last_error.status
            state.park(job, DeadRow(reason, turn.now, at, status, response))
            state.occurrences.note(job, "dead")
            if reason == DAMAGED:
                _note_unstarted(turn, job, at, DAMAGED, at.last_error.message if at.last_error else None)
        case Expire(at):
            state.keep_result(job, "expired", turn.now)
            state.erase_job(job, "expired")
            state.counters.expired += 1
            _note_unstarted(turn, job, at, "expired")
        case Cancel(at_or_none):
            state.keep_result(job, "cancelled", turn.now)
            state.erase_job(job, "cancelled")
            state.counters.cancelled += 1
            if at_or_none is not None:
                _note_unstarted(turn, job, at_or_none, "cancelled")
        case Replace():
            state.erase_job(job, "cancelled")
            state.counters.replaced += 1
            state.note_end(job)  # a caller that waits for this id waits for another job now
        case Drop(aged):
            state.erase_job(job, None if aged else "dropped")
            if aged:
                state.counters.retired += 1
            else:
                state.counters.discarded += 1


_COUNTED: Final[Mapping[type[Next], Mapping[str, int]]] = {
    Done: {"open": -1, "done": 1},
    Park: {"open": -1, "dead": 1},
    Expire: {"open": -1, "expired": 1},
    Cancel: {"open": -1, "cancelled": 1},
    Replace: {"open": -1, "members": -1},
}
"""By what becomes of a live member: the counts of its group that change."""


def _history(end: End, job: JobRow, at: AtRow, started: int, now: int, due: int, token: str) -> HistRow | None:
    """Make the row of the history that tells how an attempt ended, if there is to be one."""
    if end.outcome is None:
        return None
    ran = (job.function_path or job.workflow or "", job.pool)
    return HistRow(end.outcome, at.attempt, started, now, due, token, end.status, end.message, end.result,
                   end.code, end.data, ran)  # fmt: skip


def _note_unstarted(turn: Turn, job: JobRow, at: AtRow, outcome: str, message: str | None = None) -> None:
    """Note in the history that the job ended without a further attempt."""
    row = HistRow(outcome, at.attempt, turn.now, turn.now, at.next_at, message=message, ran=(job.target, job.pool))
    turn.state.note(job, row)
