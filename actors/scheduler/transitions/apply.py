"""Write what `job` decides: the only place where an attempt's end, a retry or a parking changes rows."""

from __future__ import annotations

import msgspec

from tocsin.actors.scheduler.model.damage import DAMAGED
from tocsin.actors.scheduler.model.instants_of_job import retry_of
from tocsin.actors.scheduler.model.rows import AtRow, DeadRow, HistRow, JobRow, LeaseRow
from tocsin.actors.scheduler.state.scheduler_state import EXPIRE
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.job import Cancel, Decision, Done, Expire, Hold, Next, Park, Requeue


def apply(turn: Turn, job: JobRow, token: str, decision: Decision) -> None:
    """Write what becomes of the attempt with this lease, and of its job."""
    if isinstance(decision, Hold):
        turn.state.change_lease(token, **msgspec.structs.asdict(decision.lease))
        return
    _, _, lease = turn.state.drop_lease(token)
    if decision.outcome is not None:
        at, end = lease.at, decision
        row = HistRow(
            decision.outcome,
            at.attempt,
            lease.started,
            turn.now,
            at.next_at,
            token,
            end.status,
            end.message,
            end.result,
        )
        turn.state.note(job, row)
    become(turn, job, decision.next)


def become(turn: Turn, job: JobRow, decision: Next | None) -> None:
    """Write what becomes of a job that no attempt holds, and that stands in no queue and is no dead letter any more."""
    state = turn.state
    match decision:
        case Done(result, no_result):
            state.erase_job(job)
            state.count(done=1)
            state.occurrences.note(job, "done")
            state.keep_result(job, "done", turn.now, result, no_result)
        case Requeue(at):
            state.enter_line(job, at)
            if job.expires_at is not None and at.expires:
                # Its timer may have fired while the attempt ran, before the clock stepped back.
                state.put_timer(job.expires_at, EXPIRE, job.id)
        case Park(reason, at, response):
            status = None if at.last_error is None else at.last_error.status
            state.park(job, DeadRow(reason, turn.now, at, status, response))
            state.occurrences.note(job, "dead")
            if reason == DAMAGED:
                _note_unstarted(turn, job, at, DAMAGED, at.last_error.message if at.last_error else None)
        case Expire(at):
            state.erase_job(job)
            state.count(expired=1)
            state.keep_result(job, "expired", turn.now)
            state.occurrences.note(job, "expired")
            _note_unstarted(turn, job, at, "expired")
        case Cancel(at_or_none):
            state.erase_job(job)
            state.keep_result(job, "cancelled", turn.now)
            state.occurrences.note(job, "cancelled")
            if at_or_none is not None:
                _note_unstarted(turn, job, at_or_none, "cancelled")


def _note_unstarted(turn: Turn, job: JobRow, at: AtRow, outcome: str, message: str | None = None) -> None:
    """Note in the history that the job ended without a further attempt."""
    turn.state.note(job, HistRow(outcome, at.attempt, turn.now, turn.now, at.next_at, message=message))


def next_delay(turn: Turn, job: JobRow, lease: LeaseRow) -> int:
    """Draw the backoff that a failure of this attempt would cause."""
    return retry_of(job).delay_ms(lease.at.attempts + 1, turn.random)
