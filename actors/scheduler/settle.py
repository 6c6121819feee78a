"""Settle turns: what became of an attempt decides what becomes of its job (contract, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tocsin.actors.scheduler.claim import expired
from tocsin.actors.scheduler.rows import AtRow, DeadRow, JobRow, LastError, split_timer_key
from tocsin.actors.scheduler.turn import Turn, indexable, retry_of
from tocsin.dispatch.callback import Outcome, Verdict

DECLINED_MIN_MS = 30_000
UNREACHABLE_MS = 5_000
UNCHARGED_UNTIL_MS = 24 * 3_600_000
"""A job this long past due is charged for declines and busy answers after all, so that it ends one day."""
LOSSES_MAX = 5
TIMERS_PER_TURN = 500
RENEW_BEFORE_MS = 5_000


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an attempt, on its way to the book."""

    job: JobRow
    token: str
    outcome: Outcome


async def settle(turn: Turn, finished: Sequence[Finished]) -> None:
    """Each is matched against its lease, or against the last token of one that ended; else it changes nothing."""
    late: list[Finished] = []
    for end in finished:
        if end.token not in turn.book.leases:
            late.append(end)
        elif turn.book.leases[end.token][1].orphan:
            turn.book.drop_lease(end.token)
        else:
            _settle_one(turn, end)
    if late:
        await _settle_late(turn, late)


def _settle_one(turn: Turn, end: Finished) -> None:
    job, outcome = end.job, end.outcome
    verdict = outcome.verdict
    if verdict in (Verdict.UNKNOWN, Verdict.STOPPED):
        _hold_until_lease_end(turn, end)
        return
    _, _, lease = turn.book.drop_lease(end.token)
    if verdict is Verdict.DONE:
        turn.book.erase_job(job)
        turn.book.count_done()
        return
    at = msgspec.structs.replace(lease.at, last_error=_error(turn, outcome))
    if verdict is Verdict.DEAD:
        _park(turn, job, charge(at), "refused", outcome)
    elif verdict is Verdict.UNREACHABLE:
        _wait(turn, job, at, UNREACHABLE_MS)
    elif verdict is Verdict.FAILED or turn.now - job.scheduled_for >= UNCHARGED_UNTIL_MS:
        _climb(turn, job, at, outcome)
    else:
        least = DECLINED_MIN_MS if verdict is Verdict.DECLINED else outcome.retry_after_ms or 0
        _wait(turn, job, at, max(retry_of(job).delay_ms(at.attempts + 1, turn.random), least))


def _hold_until_lease_end(turn: Turn, end: Finished) -> None:
    """It may still run there: slot and job stay held, so that no second attempt overlaps it."""
    lease = turn.book.leases[end.token][1]
    charged = end.outcome.verdict is Verdict.UNKNOWN
    delay = retry_of(end.job).delay_ms(lease.at.attempts + 1, turn.random) if charged else 0
    turn.book.change_lease(
        end.token,
        kind="unknown",
        charged=charged,
        retry_at=turn.now + delay,
        at=msgspec.structs.replace(lease.at, last_error=_error(turn, end.outcome)),
    )


async def _settle_late(turn: Turn, late: Sequence[Finished]) -> None:
    """The lease ended first. Success still counts while the job waits for its next attempt."""
    known = await turn.jobs([end.job.id for end in late])
    for end in late:
        found = known.pop(end.job.id, None)
        if (
            found is not None
            and end.outcome.verdict is Verdict.DONE
            and found.job.incarnation == end.job.incarnation
            and found.at.last_token == end.token
            and turn.book.lease_of(end.job.id) is None
        ):
            turn.book.leave_line(found.job, found.at)
            turn.book.erase_job(found.job)
            turn.book.count_done()


# ---- What happens to the job ---------------------------------------------------------------------


def charge(at: AtRow) -> AtRow:
    return msgspec.structs.replace(at, attempts=at.attempts + 1)


def _error(turn: Turn, outcome: Outcome) -> LastError:
    return LastError(turn.now, outcome.message or outcome.verdict.value, outcome.status)


def _climb(turn: Turn, job: JobRow, at: AtRow, outcome: Outcome | None, retry_at: int | None = None) -> None:
    """One step up the retry ladder, or off its end. `retry_at`: the backoff was counted when the attempt ended."""
    at = charge(at)
    retry = retry_of(job)
    if at.attempts > retry.max_retries:
        _park(turn, job, at, "exhausted", outcome)
        return
    wait = retry.delay_ms(at.attempts, turn.random) if retry_at is None else max(retry_at - turn.now, 0)
    _wait(turn, job, at, wait, outcome)


def _wait(turn: Turn, job: JobRow, at: AtRow, wait_ms: int, outcome: Outcome | None = None) -> None:
    """Back in line, `wait_ms` from now."""
    due = turn.now + wait_ms
    if not indexable(due):
        _park(turn, job, at, "unindexable", outcome)
        return
    _enter(turn, job, msgspec.structs.replace(at, next_at=due))


def _enter(turn: Turn, job: JobRow, at: AtRow) -> None:
    if expired(job, at, turn.now):
        turn.book.erase_job(job)
        turn.book.count_expired()
    else:
        turn.book.enter_line(job, at)


def _park(turn: Turn, job: JobRow, at: AtRow, reason: str, outcome: Outcome | None) -> None:
    status, response = (outcome.status, outcome.response) if outcome else (None, None)
    if outcome is None and at.last_error is not None:
        status = at.last_error.status
    turn.book.park(job.id, DeadRow(reason, turn.now, at, status, response))


# ---- Time passes ---------------------------------------------------------------------------------


async def end_leases(turn: Turn, live: Callable[[str], bool]) -> None:
    """Renew the leases of attempts that live on this host; end the others that are over."""
    over: list[str] = []
    for token in turn.book.ended(turn.now + RENEW_BEFORE_MS):
        _, lease = turn.book.leases[token]
        if lease.kind == "fired" and live(token):
            turn.book.change_lease(token, until=turn.now + lease.length_ms)
        elif lease.until <= turn.now:
            over.append(token)
        else:
            turn.book.remember_end(token)
    if over:
        await _end(turn, over)


async def _end(turn: Turn, tokens: Sequence[str]) -> None:
    ids = {turn.book.leases[token][0] for token in tokens if not turn.book.leases[token][1].orphan}
    known = await turn.jobs(sorted(ids))
    for token in tokens:
        job_id, _, lease = turn.book.drop_lease(token)
        if lease.orphan or job_id not in known:
            continue
        job = known[job_id].job
        if lease.kind == "unknown":
            if lease.charged:
                _climb(turn, job, lease.at, None, lease.retry_at)
            else:
                _enter(turn, job, msgspec.structs.replace(lease.at, next_at=turn.now))
        else:
            _lost(turn, job, lease.at)


def _lost(turn: Turn, job: JobRow, at: AtRow) -> None:
    """Its host died while dispatching. Counted apart from failures; back to its old place."""
    at = msgspec.structs.replace(
        at,
        losses=at.losses + 1,
        last_error=LastError(turn.now, "the host was lost while the attempt ran; its lease ended"),
    )
    if at.losses >= LOSSES_MAX:
        _park(turn, job, at, "lost", None)
    else:
        _enter(turn, job, at)


async def return_unsent(turn: Turn, live: Callable[[str], bool]) -> None:
    """At activation: a lease of this process that is not live was never sent. Back in line, uncharged."""
    unsent = [
        token
        for token, (_, lease) in turn.book.leases.items()
        if lease.kind == "fired" and lease.host == turn.owner and not live(token)
    ]
    ids = sorted({turn.book.leases[token][0] for token in unsent})
    known = await turn.jobs(ids) if ids else {}
    for token in unsent:
        job_id, _, lease = turn.book.drop_lease(token)
        if not lease.orphan and job_id in known:
            _enter(turn, known[job_id].job, lease.at)


async def run_timers(turn: Turn) -> None:
    """A page of due timers. Expiry takes a job out of its line; a running one is looked at when it ends."""
    if turn.book.next_timer is None or turn.book.next_timer > turn.now:
        return
    storage = turn.book.storage
    rows = await storage.scan(b"timer/", b"timer/%015d/" % (turn.now + 1), limit=TIMERS_PER_TURN)
    due = [(key, *split_timer_key(key)) for key, _ in rows]
    ids = [job_id for _, _, _, job_id in due]
    known, dead = await turn.jobs(ids), await turn.dead(ids)
    for key, ms, _, job_id in due:
        storage.delete(key)
        found = known.get(job_id)
        if found is None or job_id in dead or found.job.expires_at != ms or not found.at.expires:
            continue
        if turn.book.lease_of(job_id) is None:
            turn.book.leave_line(found.job, found.at)
            turn.book.erase_job(found.job)
            turn.book.count_expired()
    await turn.book.look_at_timers()
