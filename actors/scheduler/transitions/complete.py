"""Work that was accepted: settled by whoever holds its lease (`/complete`), or given more time (`/extend`)."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.instants_of_job import backoff_ms
from tocsin.actors.scheduler.model.rows import DeadRow, HistRow, JobRow, LeaseRow, dead_key, hist_key
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import job as decide
from tocsin.actors.scheduler.transitions.apply import apply
from tocsin.actors.scheduler.transitions.chains import load_followers
from tocsin.actors.scheduler.transitions.job import CANCELLED, Completion
from tocsin.actors.scheduler.transitions.settle import STARTED_PER_TURN, finish_late, start_after
from tocsin.dispatch.pulled import Settlement
from tocsin.errors import StaleLeaseError
from tocsin.storage.api import after

REPLAY_MS = 10 * 60_000
ENDED = ("done", "failed", "returned", "cancelled")


async def complete(turn: Turn, said: Sequence[Completion]) -> list[Settlement | StaleLeaseError]:
    """Settle each attempt, whether its answer has come or not. StaleLeaseError if the lease is not alive.

    Return answers to the first of them, or to all: a turn starts no more of what follows them than one commit holds.
    """
    held = [one for one in said if _is_held(turn, one)]
    known = {one.id: kept for one in held if (kept := turn.state.held.get(one.lease)) is not None}
    if unknown := sorted({one.id for one in held} - known.keys()):
        known |= await turn.jobs(unknown)
    done = [known[one.id].job for one in held if one.ok and one.id in known]
    chained = [job for job in done if job.then_size]
    followers = await load_followers(turn, chained) if chained else {}
    answers: list[Settlement | StaleLeaseError] = []
    started = 0
    for one in said:
        if started >= STARTED_PER_TURN:
            break
        if not _is_held(turn, one):
            answer, size = await _complete_late(turn, one)
            answers.append(answer)
            started += size
            continue
        lease, found = turn.state.leases[one.lease][1], known.get(one.id)
        if lease.orphan or found is None:
            apply(turn, _ghost(one, lease), one.lease, CANCELLED)
            answers.append(Settlement(settled=True, state="cancelled"))
            continue
        delay_ms = 0 if one.ok else backoff_ms(found.job, lease.at, turn.ctx.random)
        decision = decide.complete(found.job, lease, one, turn.now, delay_ms)
        apply(turn, found.job, one.lease, decision)
        if follow := followers.get(one.id):
            started += start_after(turn, found.job, decision, follow)
        answers.append(Settlement(settled=True, state="done") if one.ok else await stands(turn, one.id))
    return answers


def _is_held(turn: Turn, said: Completion) -> bool:
    held = turn.state.leases.get(said.lease)
    return held is not None and held[0] == said.id


async def stands(turn: Turn, job_id: str) -> Settlement:
    """Tell what state the job is in after its attempt failed."""
    found = (await turn.jobs([job_id])).get(job_id)
    if found is None:
        return Settlement(settled=True, state="expired")
    rows = await turn.state.storage.get_many([dead_key(job_id)])
    letter = turn.state.read(DeadRow, dead_key(job_id), rows[dead_key(job_id)]) if rows else None
    if letter is not None:
        return Settlement(settled=True, state="dead", reason=letter.reason)
    token = turn.state.lease_of(job_id)
    at = found.at if token is None else turn.state.leases[token][1].at
    return Settlement(settled=True, state="retrying", next_attempt_at=at.next_at)


def _ghost(said: Completion, lease: LeaseRow) -> JobRow:
    """Make a row that names a job that is gone, for its history."""
    return JobRow(said.id, lease.incarnation, 0, 0, b"")


async def _complete_late(turn: Turn, said: Completion) -> tuple[Settlement | StaleLeaseError, int]:
    """Answer a completion that was said before with the same, and accept a success after the lease ended while the job
    still waits. Return also about how many bytes of what follows it were started."""
    before = await _said_before(turn, said)
    if before in ("done", "cancelled"):
        return Settlement(settled=True, state=before), 0
    if before is not None:
        return await stands(turn, said.id), 0
    found = (await turn.jobs([said.id])).get(said.id)
    waits = found is not None and turn.state.lease_of(said.id) is None and not await turn.dead([said.id])
    if found is not None and waits and said.ok and found.at.last_token == said.lease:
        followers = (await load_followers(turn, [found.job])).get(said.id, ())
        size = await finish_late(turn, found, said.lease, decide.done_with(found.job, said.result), followers)
        return Settlement(settled=True, state="done"), size
    refusal = StaleLeaseError(f"lease {said.lease!r} does not, or no longer, settle job {said.id!r}", id=said.id)
    return refusal, 0


async def _said_before(turn: Turn, said: Completion) -> str | None:
    """Find how this attempt was settled in the last ten minutes, if it was."""
    for ms in {turn.now, turn.now - REPLAY_MS}:
        prefix = hist_key(ms, said.id, "", "")[:-1]
        for key, value in await turn.state.storage.scan(prefix, after(prefix), limit=1000):
            row = turn.state.read(HistRow, key, value)
            if row is not None and row.token == said.lease and row.outcome in ENDED:
                return row.outcome if turn.now - row.ended <= REPLAY_MS else None
    return None


async def extend(turn: Turn, job_id: str, token: str, lease_ms: int) -> int:
    """Give the attempt more time; return until when it has. StaleLeaseError, also for a cancelled job."""
    held = turn.state.leases.get(token)
    if held is None or held[0] != job_id or held[1].kind == "unknown":
        raise StaleLeaseError(f"lease {token!r} does not, or no longer, hold job {job_id!r}", id=job_id)
    if held[1].orphan:
        raise StaleLeaseError(f"job {job_id!r} was cancelled: stop working on it", id=job_id, cancelled=True)
    extended = decide.extend(held[1], turn.wall, lease_ms)
    apply(turn, None, token, extended)
    return extended.lease.until
