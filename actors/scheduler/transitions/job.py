"""Decide what an event makes of a job: pure functions of rows, an outcome, an instant, and a delay drawn beforehand.

Nothing here reads or writes a row; `apply` writes what is decided. docs/receiving.md has the table of answers that
`settle` follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from tocsin.actors.scheduler.model.damage import DAMAGED
from tocsin.actors.scheduler.model.instants_of_job import due_of, indexable, retry_of
from tocsin.actors.scheduler.model.reasons import DeadReason
from tocsin.actors.scheduler.model.rows import PULLED, AtRow, JobRow, LastError, LeaseRow
from tocsin.actors.scheduler.model.suspects import LOSSES_MAX, lost
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.failure import Failure
from tocsin.dispatch.pulled import MAX_RESULT

DECLINED_MIN_MS = 30_000
UNREACHABLE_MS = 5_000
UNCHARGED_UNTIL_MS = 24 * 3_600_000
"""A job this long past due is charged for declines and busy answers too, so that it ends at last."""
ACCEPTED_MS = 15 * 60_000
PROMISED_MAX_MS = 2 * 3_600_000
"""No lease is as long as this: a promise beyond it was made while the clock was ahead."""
RESULT_IN_HISTORY = 2 * 1024
LOST = {
    "fired": "the host was lost while the attempt ran; its lease ended",
    PULLED: "the worker was lost, or did not settle the attempt in time; its lease ended",
}
"""Kinds of attempts that are lost when their lease ends, and why."""
UNEXPLAINED = Failure("completed as failed")
NOT_COMPLETED = "accepted, and not completed before its lease ended"


# ---- Decisions -----------------------------------------------------------------------------------


class Done(msgspec.Struct, frozen=True):
    """The job is removed. `result` is JSON; None if there is none, or neither a caller nor a follower wants it.
    `no_result` says why there is none, if there was meant to be one."""

    result: bytes | None = None
    no_result: str | None = None


class Requeue(msgspec.Struct, frozen=True):
    """The job waits in its queue until `at.next_at`."""

    at: AtRow


class Park(msgspec.Struct, frozen=True):
    """The job becomes a dead letter, with the beginning of the last answer."""

    reason: DeadReason
    at: AtRow
    response: bytes | None = None


class Expire(msgspec.Struct, frozen=True):
    """The job is removed because its `expiresAt` has passed: recorded, never dispatched, not dead."""

    at: AtRow


class Cancel(msgspec.Struct, frozen=True):
    """The job is removed on request. `at` is where it waited; None if an attempt runs, which has an end of its own."""

    at: AtRow | None


class Replace(msgspec.Struct, frozen=True):
    """The job is removed to make way for another one of its id."""


class Drop(msgspec.Struct, frozen=True):
    """The dead letter is removed: on request, or for its age."""

    aged: bool = False


Next = Done | Requeue | Park | Expire | Cancel | Replace | Drop
"""The next state of a job that no attempt holds any more."""


class End(msgspec.Struct, frozen=True):
    """The attempt is over: its lease is dropped, and the history gets a row with this outcome (None: no row).

    `next` is None where the job is gone already.
    """

    outcome: str | None
    next: Next | None
    status: int | None = None
    message: str | None = None
    result: bytes | None = None
    code: str | None = None
    data: bytes | None = None


class Hold(msgspec.Struct, frozen=True):
    """The lease stays, as it is here: the pool slot remains held until it ends, and so does the job, unless `next` says
    what becomes of it now."""

    lease: LeaseRow
    next: Next | None = None


CANCELLED: Final = End("cancelled", None)
"""The attempt of a cancelled job has ended: its slot is free, nothing else happens."""
DROPPED: Final = End(None, None)
"""The lease of a job that is gone has ended without an answer: its slot is free, and the history gets no row."""


# ---- An attempt has ended ------------------------------------------------------------------------


def settle(
    job: JobRow, lease: LeaseRow, outcome: AttemptOutcome, now: int, delay_ms: int, wall: int | None = None
) -> Decision:
    """Decide by the outcome of a callback. `delay_ms` is the backoff of the next charged failure. Leases end by `wall`,
    which is `now` where the clock is not a test clock."""
    wall = now if wall is None else wall
    if outcome.verdict is Verdict.ACCEPTED:
        length = outcome.lease_ms or ACCEPTED_MS
        accepted = replace(lease, kind="accepted", until=wall + length, length_ms=length, charged=True)
        return Hold(replace(accepted, promised=_promised(lease, wall)))
    if _may_still_run(lease, outcome, wall):
        return _hold_until_lease_end(lease, outcome, now, delay_ms)
    if lease.orphan:
        return CANCELLED
    if outcome.verdict is Verdict.DONE:
        done = Done(_wanted(job, outcome.result), outcome.message)
        return End("done", done, outcome.status, outcome.message)
    after = _after_refusal(job, lease.at, outcome, now, delay_ms)
    return End(
        outcome.verdict.value, after, outcome.status, outcome.message, code=outcome.error_code, data=outcome.error_data
    )


def _may_still_run(lease: LeaseRow, outcome: AttemptOutcome, now: int) -> bool:
    """Tell whether nobody said how the attempt ended. A broken exchange ends an attempt, but not one whose receiver was
    promised more time: the receiver works on, and a second attempt would meet it."""
    if outcome.verdict in (Verdict.UNKNOWN, Verdict.STOPPED):
        return True
    unanswered = outcome.verdict is Verdict.FAILED and outcome.status is None
    return unanswered and _promised(lease, now) > now


def _promised(lease: LeaseRow, now: int) -> int:
    """Return until when an answered `/extend` holds the lease; 0: it does not."""
    return lease.promised if lease.promised <= now + PROMISED_MAX_MS else 0


def _hold_until_lease_end(lease: LeaseRow, outcome: AttemptOutcome, now: int, delay_ms: int) -> Hold:
    """Hold slot and job, so that no second attempt overlaps one that may still run at the receiver."""
    if lease.orphan:
        return Hold(replace(lease, kind="unknown", charged=False))
    charged = outcome.verdict is not Verdict.STOPPED
    retry_at = now + delay_ms if charged else now
    at = replace(lease.at, last_error=_error(outcome, now))
    return Hold(replace(lease, kind="unknown", charged=charged, retry_at=retry_at, at=at))


def _after_refusal(job: JobRow, before: AtRow, outcome: AttemptOutcome, now: int, delay_ms: int) -> Next:
    at, verdict = _answered(before, outcome, now), outcome.verdict
    if verdict is Verdict.DEAD:
        return Park("refused", _charged(at), outcome.response)
    if verdict is Verdict.BLOCKED:
        return Park("blocked", at, outcome.response)
    if verdict is Verdict.UNREACHABLE:
        return _later(job, at, now, UNREACHABLE_MS)
    if verdict is Verdict.FAILED or is_charged_anyway(job, before, now):
        return _after_failure(job, at, now, delay_ms, outcome.response)
    least = DECLINED_MIN_MS if verdict is Verdict.DECLINED else outcome.retry_after_ms or 0
    return _later(job, at, now, max(delay_ms, least))


def is_charged_anyway(job: JobRow, at: AtRow, now: int) -> bool:
    """Tell whether the job is so long past due that declines and busy answers count."""
    return now - due_of(job, at) >= UNCHARGED_UNTIL_MS


@dataclass(frozen=True, slots=True)
class Completion:
    """The report of a lease's holder on its attempt."""

    id: str
    lease: str
    ok: bool = True
    error: Failure | None = None
    retryable: bool = True
    delay_ms: int | None = None
    """When to try again, instead of the backoff."""
    result: bytes | None = None
    charge: bool = True
    """False: not counted as a failure of the job, until it is a day past due."""


def complete(job: JobRow, lease: LeaseRow, said: Completion, now: int, delay_ms: int) -> End:
    """Decide by what the holder of the lease says. `delay_ms` is the backoff, where the holder names no delay."""
    if lease.orphan:
        return CANCELLED
    if said.ok:
        return done_with(job, said.result)
    error = said.error or UNEXPLAINED
    outcome = AttemptOutcome(
        Verdict.FAILED, error.message or UNEXPLAINED.message, error.status,
        error_code=error.code, error_data=error.data,
    )  # fmt: skip
    at = _answered(lease.at, outcome, now)
    charged = said.charge or not said.retryable or is_charged_anyway(job, lease.at, now)
    delay_ms = delay_ms if said.delay_ms is None else said.delay_ms
    if not said.retryable:
        after: Next = Park("refused", _charged(at))
    elif charged:
        after = _after_failure(job, at, now, delay_ms)
    else:
        after = _later(job, at, now, delay_ms)
    return End(
        "failed" if charged else "returned", after, outcome.status, outcome.message, _short(said.result),
        outcome.error_code, outcome.error_data,
    )  # fmt: skip


def done_with(job: JobRow, result: bytes | None, no_result: str | None = None) -> End:
    """Decide that the job is done, with a result that the history keeps, too."""
    return End("done", Done(_wanted(job, result), no_result), message=no_result, result=_short(result))


def lease_ended(job: JobRow | None, lease: LeaseRow, now: int, delay_ms: int, why: str | None = None) -> End:
    """Decide by the kind of a lease that ended before its attempt did. None: the job is gone. `why`: it did not end by
    itself, and the history says this."""
    if job is None or lease.orphan:
        return DROPPED
    if lease.kind in LOST:
        return End("lost", _after_loss(job, lease.at, LOST[lease.kind], now), message=LOST[lease.kind])
    at, history = lease.at, "lapsed"
    message = why or NOT_COMPLETED
    if lease.kind == "accepted":
        at = replace(at, last_error=LastError(now, message))
    elif lease.kind == "unknown":
        said = at.last_error.message if at.last_error is not None else None
        history, message = "unknown", "; ".join(part for part in (said, why) if part)
        delay_ms = max(lease.retry_at - now, 0)  # it was drawn when the attempt became unknown
    after = _after_failure(job, at, now, delay_ms) if lease.charged else requeue(job, replace(at, next_at=now), now)
    return End(history, after, message=message or None)


def _after_loss(job: JobRow, at: AtRow, why: str, now: int) -> Next:
    """Count the loss of a host or a worker apart from failures. The job goes back to its old place."""
    at = lost(at, LastError(now, why))
    return Park("lost", at) if at.losses >= LOSSES_MAX else requeue(job, at, now)


def unsent(
    job: JobRow | None, lease: LeaseRow, now: int, outcome: str | None = "unsent", message: str | None = None
) -> End:
    """Put the job back uncharged: the attempt was never sent, or no worker had it. None: the job is gone."""
    if job is None or lease.orphan:
        return DROPPED
    return End(outcome, requeue(job, replace(lease.at, last_token=""), now), message=message)


# ---- An attempt goes on --------------------------------------------------------------------------


def renew(lease: LeaseRow, now: int) -> Hold:
    """Hold the lease of an attempt that is alive on this host for another of its lengths."""
    return Hold(replace(lease, until=now + lease.length_ms))


def extend(lease: LeaseRow, now: int, lease_ms: int) -> Hold:
    """Hold the lease until `lease_ms` from now, or longer if it had longer. It keeps that, whatever its callback
    answers afterwards."""
    until = max(now + lease_ms, lease.until)
    return Hold(replace(lease, until=until, promised=until))


def cancel_running(lease: LeaseRow) -> Hold:
    """Remove the job. Hold its slot until the attempt answers or the lease ends; then only the lease goes."""
    return Hold(replace(lease, orphan=True), Cancel(None))


# ---- A job without an attempt --------------------------------------------------------------------


def is_expired(job: JobRow, at: AtRow, now: int) -> bool:
    return job.expires_at is not None and at.expires and job.expires_at <= now


def requeue(job: JobRow, at: AtRow, now: int) -> Requeue | Expire:
    return Expire(at) if is_expired(job, at, now) else Requeue(at)


def move(at: AtRow, due: int) -> Requeue:
    """Let the job wait until another instant, which counts from now on as the one it was asked for."""
    return Requeue(replace(at, next_at=due, moved_to=due))


def retry_dead(at: AtRow, now: int) -> Requeue:
    """Make a dead letter due now, with a fresh budget; its `expiresAt` no longer counts, everything else stays."""
    return Requeue(replace(at, next_at=now, attempts=0, losses=0, apart=0, expires=False))


def damaged(at: AtRow, fault: str, now: int) -> Park:
    """Park a job before it is sent: its stored bytes are damaged. They stay as they are, for people."""
    return Park(DAMAGED, replace(at, last_error=LastError(now, fault)))


def _after_failure(job: JobRow, at: AtRow, now: int, delay_ms: int, response: bytes | None = None) -> Next:
    """Charge a failure, and retry after the delay while the budget lasts."""
    at = _charged(at)
    if at.attempts > retry_of(job).max_retries:
        return Park("exhausted", at, response)
    return _later(job, at, now, delay_ms, response)


def _later(job: JobRow, at: AtRow, now: int, delay_ms: int, response: bytes | None = None) -> Next:
    due = now + delay_ms
    if not indexable(due):
        return Park("unindexable", at, response)
    return requeue(job, replace(at, next_at=due), now)


def _charged(at: AtRow) -> AtRow:
    return replace(at, attempts=at.attempts + 1)


def _answered(at: AtRow, outcome: AttemptOutcome, now: int) -> AtRow:
    """Note the answer: a later message about the same attempt changes nothing any more."""
    return replace(at, last_error=_error(outcome, now), last_token="")


def _error(outcome: AttemptOutcome, now: int) -> LastError:
    message = outcome.message or outcome.verdict.value
    return LastError(now, message, outcome.status, outcome.error_code, outcome.error_data)


# ---- Results -------------------------------------------------------------------------------------


def _wanted(job: JobRow, result: bytes | None) -> bytes | None:
    """Return the result if the caller or a follower wants it and it is JSON: receivers may answer anything."""
    if result is None or len(result) > MAX_RESULT or (job.keep_result_ms is None and not job.then_size):
        return None
    try:
        msgspec.json.decode(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return result


def _short(result: bytes | None) -> bytes | None:
    """Return what the history keeps of a result."""
    return None if result is None or len(result) > RESULT_IN_HISTORY else result


Decision = End | Hold
"""The outcome of an attempt and its job."""
