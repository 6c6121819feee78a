"""Settle turns: what became of an attempt decides what becomes of its job (contract, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.instants_of_job import due_of, indexable, retry_of
from tocsin.actors.scheduler.model.reasons import DeadReason
from tocsin.actors.scheduler.model.rows import DAY_MS, AtRow, DeadRow, HistRow, JobRow, LastError, LeaseRow, hist_key
from tocsin.actors.scheduler.state.scheduler_state import EXPIRE
from tocsin.actors.scheduler.state.turn import Known, Turn
from tocsin.actors.scheduler.transitions.chains import load_followers, start
from tocsin.actors.scheduler.transitions.claim import expire, expired
from tocsin.dispatch.callback import Outcome, Verdict
from tocsin.dispatch.pulled import MAX_RESULT

DECLINED_MIN_MS = 30_000
UNREACHABLE_MS = 5_000
UNCHARGED_UNTIL_MS = 24 * 3_600_000
"""A job this long past due is charged for declines and busy answers after all, so that it ends one day."""
ACCEPTED_MS = 15 * 60_000
PROMISED_MAX_MS = 2 * 3_600_000
"""No lease is as long as this: what is promised beyond was promised by a clock that was ahead."""
STARTED_PER_TURN = 2 * 1024 * 1024
"""About how many bytes of jobs that follow others are started in one turn; the last one may start 2 MiB more."""
RESULT_IN_HISTORY = 2 * 1024


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The end of an attempt, on its way to the book."""

    job: JobRow
    token: str
    outcome: Outcome


async def settle(turn: Turn, finished: Sequence[AttemptResult]) -> int:
    """Each is matched against its lease, or against the last token of one that ended; else it changes nothing.

    How many were settled: a turn starts no more of what follows them than one commit holds.
    """
    followers = await load_followers(turn, [end.job for end in finished if end.outcome.verdict is Verdict.DONE])
    late = [end.job.id for end in finished if end.token not in turn.state.leases]
    waiting = await turn.jobs(late) if late else {}
    settled = started = 0
    for end in finished:
        if started >= STARTED_PER_TURN or turn.is_full:
            break
        settled += 1
        if end.token not in turn.state.leases:
            found = waiting.pop(end.job.id, None)
            started += await _settle_late(turn, end, found, followers.get(end.job.id, ()))
        elif turn.state.leases[end.token][1].orphan:
            _settle_orphan(turn, end)
        else:
            started += _settle_one(turn, end, followers.get(end.job.id, ()))
    return settled


def _settle_orphan(turn: Turn, end: AttemptResult) -> None:
    """Its job was cancelled. Where the work may go on, its slot stays held as for any other."""
    if end.outcome.verdict is Verdict.ACCEPTED:
        _hold_accepted(turn, end)
    elif _may_still_run(turn, end):
        turn.state.change_lease(end.token, kind="unknown", charged=False)
    else:
        drop_orphan(turn, end.job, end.token)


def _settle_one(turn: Turn, end: AttemptResult, followers: Sequence[Follower]) -> int:
    """How many bytes of what follows it has started."""
    job, outcome = end.job, end.outcome
    verdict = outcome.verdict
    if verdict is Verdict.ACCEPTED:
        _hold_accepted(turn, end)
    elif _may_still_run(turn, end):
        _hold_until_lease_end(turn, end)
    elif verdict is Verdict.DONE:
        _, _, lease = turn.state.drop_lease(end.token)
        note_end(turn, job, end.token, lease, verdict.value, outcome)
        return finish(turn, job, followers, outcome.result, outcome.message)
    else:
        _settle_failed(turn, end)
    return 0


def _may_still_run(turn: Turn, end: AttemptResult) -> bool:
    """Nobody said how it ended. A broken exchange ends an attempt, but not one whose receiver was promised more time:
    it works on, and a second attempt would meet it."""
    outcome = end.outcome
    if outcome.verdict in (Verdict.UNKNOWN, Verdict.STOPPED):
        return True
    unanswered = outcome.verdict is Verdict.FAILED and outcome.status is None
    return unanswered and _promised(turn, end.token) > turn.now


def _promised(turn: Turn, token: str) -> int:
    """Until when an answered `/extend` holds the lease; 0: it does not."""
    promised = turn.state.leases[token][1].promised
    return promised if promised <= turn.now + PROMISED_MAX_MS else 0


def _settle_failed(turn: Turn, end: AttemptResult) -> None:
    job, outcome = end.job, end.outcome
    verdict = outcome.verdict
    _, _, lease = turn.state.drop_lease(end.token)
    note_end(turn, job, end.token, lease, verdict.value, outcome)
    at = failed(turn, lease.at, outcome)
    if verdict is Verdict.DEAD:
        park(turn, job, charge(at), "refused", outcome)
    elif verdict is Verdict.BLOCKED:
        park(turn, job, at, "blocked", outcome)
    elif verdict is Verdict.UNREACHABLE:
        wait(turn, job, at, UNREACHABLE_MS)
    elif verdict is Verdict.FAILED or is_charged_anyway(turn, job, lease.at):
        retry_after_failure(turn, job, at, outcome)
    else:
        least = DECLINED_MIN_MS if verdict is Verdict.DECLINED else outcome.retry_after_ms or 0
        wait(turn, job, at, max(retry_of(job).delay_ms(at.attempts + 1, turn.random), least))


def is_charged_anyway(turn: Turn, job: JobRow, at: AtRow) -> bool:
    """Declines and busy answers count once a job is long past due."""
    return turn.now - due_of(job, at) >= UNCHARGED_UNTIL_MS


def _hold_accepted(turn: Turn, end: AttemptResult) -> None:
    """The lane is free; slot and job stay held until `/complete`, or until this lease lapses."""
    length = end.outcome.lease_ms or ACCEPTED_MS
    turn.state.change_lease(
        end.token,
        kind="accepted",
        until=turn.now + length,
        length_ms=length,
        charged=True,
        promised=_promised(turn, end.token),
    )


def _hold_until_lease_end(turn: Turn, end: AttemptResult) -> None:
    """It may still run there: slot and job stay held, so that no second attempt overlaps it."""
    lease = turn.state.leases[end.token][1]
    charged = end.outcome.verdict is not Verdict.STOPPED
    delay = retry_of(end.job).delay_ms(lease.at.attempts + 1, turn.random) if charged else 0
    turn.state.change_lease(
        end.token,
        kind="unknown",
        charged=charged,
        retry_at=turn.now + delay,
        at=msgspec.structs.replace(lease.at, last_error=error_of(turn, end.outcome)),
    )


async def _settle_late(turn: Turn, end: AttemptResult, found: Known | None, followers: Sequence[Follower]) -> int:
    """The lease ended first. Success still counts while the job waits for its next attempt. How many bytes of what
    follows it has started."""
    if (
        found is None
        or end.outcome.verdict is not Verdict.DONE
        or found.job.incarnation != end.job.incarnation
        or found.at.last_token != end.token
        or turn.state.lease_of(end.job.id) is not None
    ):
        return 0
    return await finish_late(turn, found, end.token, followers, end.outcome.result, end.outcome.message)


# ---- What happens to the job ---------------------------------------------------------------------


def finish(
    turn: Turn, job: JobRow, followers: Sequence[Follower], result: bytes | None, no_result: str | None = None
) -> int:
    """Done: gone, what follows is started with its result. About how many bytes that is. `no_result`: why there is
    none, if it was meant to be one."""
    turn.state.erase_job(job)
    turn.state.count(done=1)
    turn.state.occurrences.note(job, "done")
    if job.keep_result_ms is None and not followers:
        return 0
    kept = _as_json(result)
    turn.state.keep_result(job, "done", turn.now, kept, no_result)
    return start(turn, job, followers, kept)


async def finish_late(
    turn: Turn,
    known: Known,
    token: str,
    followers: Sequence[Follower],
    result: bytes | None,
    no_result: str | None = None,
) -> int:
    """Done after its lease had ended: out of the line it had gone back to."""
    job, at = known.job, known.at
    started, due = await _start_of(turn, known, token)
    turn.state.leave_line(job, at)
    turn.state.note(job, HistRow("done", at.attempt, started, turn.now, due, token, None, no_result, _short(result)))
    return finish(turn, job, followers, result, no_result)


async def _start_of(turn: Turn, known: Known, token: str) -> tuple[int, int]:
    """When a lease that is gone was given, and when that was due: its own end says so in the history."""
    job, at = known.job, known.at
    for ended in (turn.now, turn.now - DAY_MS):
        key = hist_key(ended, job.id, job.incarnation, f"{at.attempt:06d}")
        if (value := (await turn.state.storage.get_many([key])).get(key)) is not None:
            row = turn.state.read(HistRow, key, value)
            if row is not None and row.token == token:
                return row.started, row.due
    return turn.now, at.next_at


def _as_json(result: bytes | None) -> bytes | None:
    """Receivers may answer anything."""
    if result is None or len(result) > MAX_RESULT:
        return None
    try:
        msgspec.json.decode(result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return result


def _short(result: bytes | None) -> bytes | None:
    """What the history keeps."""
    return None if result is None or len(result) > RESULT_IN_HISTORY else result


def drop_orphan(turn: Turn, job: JobRow | None, token: str) -> None:
    """The attempt of a cancelled job has ended: its slot is free, nothing else happens."""
    _, _, lease = turn.state.drop_lease(token)
    if job is not None:
        note_end(turn, job, token, lease, "cancelled", None)


def charge(at: AtRow) -> AtRow:
    return msgspec.structs.replace(at, attempts=at.attempts + 1)


def failed(turn: Turn, at: AtRow, outcome: Outcome) -> AtRow:
    """Answered: a later word of the same attempt changes nothing any more."""
    return msgspec.structs.replace(at, last_error=error_of(turn, outcome), last_token="")


def error_of(turn: Turn, outcome: Outcome) -> LastError:
    return LastError(turn.now, outcome.message or outcome.verdict.value, outcome.status)


def note_end(
    turn: Turn,
    job: JobRow,
    token: str,
    lease: LeaseRow,
    word: str,
    outcome: Outcome | None,
    result: bytes | None = None,
) -> None:
    status, message = (outcome.status, outcome.message) if outcome else (None, None)
    row = HistRow(
        word, lease.at.attempt, lease.started, turn.now, lease.at.next_at, token, status, message, _short(result)
    )
    turn.state.note(job, row)


def retry_after_failure(
    turn: Turn, job: JobRow, at: AtRow, outcome: Outcome | None, retry_at: int | None = None
) -> None:
    """One step up the retry ladder, or off its end. `retry_at`: the instant is known already."""
    at = charge(at)
    retry = retry_of(job)
    if at.attempts > retry.max_retries:
        park(turn, job, at, "exhausted", outcome)
        return
    delay = retry.delay_ms(at.attempts, turn.random) if retry_at is None else max(retry_at - turn.now, 0)
    wait(turn, job, at, delay, outcome)


def wait(turn: Turn, job: JobRow, at: AtRow, wait_ms: int, outcome: Outcome | None = None) -> None:
    """Back in line, `wait_ms` from now."""
    due = turn.now + wait_ms
    if not indexable(due):
        park(turn, job, at, "unindexable", outcome)
        return
    enter(turn, job, msgspec.structs.replace(at, next_at=due))


def enter(turn: Turn, job: JobRow, at: AtRow) -> None:
    if expired(job, at, turn.now):
        expire(turn, job, at)
        return
    turn.state.enter_line(job, at)
    if job.expires_at is not None and at.expires:
        # It may have rung while the attempt ran, before the clock stepped back.
        turn.state.put_timer(job.expires_at, EXPIRE, job.id)


def park(turn: Turn, job: JobRow, at: AtRow, reason: DeadReason, outcome: Outcome | None) -> None:
    status, response = (outcome.status, outcome.response) if outcome else (None, None)
    if outcome is None and at.last_error is not None:
        status = at.last_error.status
    turn.state.park(job, DeadRow(reason, turn.now, at, status, response))
    turn.state.occurrences.note(job, "dead")
