"""Work that was accepted: settled by whoever holds its lease (`/complete`), or given more time (`/extend`)."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.actors.scheduler.rows import HistRow, JobRow, LeaseRow, hist_key
from tocsin.actors.scheduler.settle import charge, climb, drop_orphan, failed, finish, finish_late, note_end, park
from tocsin.actors.scheduler.turn import Turn
from tocsin.dispatch.callback import Outcome, Verdict
from tocsin.errors import StaleLeaseError
from tocsin.storage.api import after

REPLAY_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Completion:
    """What the holder of a lease says of its attempt."""

    id: str
    lease: str
    ok: bool = True
    error: str | None = None
    retryable: bool = True
    delay_ms: int | None = None
    """When to try again, instead of the ladder's next step; charged all the same."""
    result: bytes | None = None


async def complete(turn: Turn, said: Completion) -> None:
    """Settle the attempt, whether its answer has come or not. StaleLeaseError if the lease is not alive."""
    held = turn.book.leases.get(said.lease)
    if held is None or held[0] != said.id:
        await _complete_late(turn, said)
        return
    lease = held[1]
    job = (await turn.jobs([said.id])).get(said.id)
    if lease.orphan or job is None:
        drop_orphan(turn, _ghost(said, lease), said.lease)
    else:
        _complete_held(turn, said, job.job)


def _complete_held(turn: Turn, said: Completion, job: JobRow) -> None:
    _, _, lease = turn.book.drop_lease(said.lease)
    if said.ok:
        note_end(turn, job, said.lease, lease, "done", None, said.result)
        finish(turn, job)
        return
    outcome = Outcome(Verdict.FAILED, said.error or "completed as failed")
    note_end(turn, job, said.lease, lease, "failed", outcome, said.result)
    at = failed(turn, lease.at, outcome)
    if not said.retryable:
        park(turn, job, charge(at), "refused", outcome)
    elif said.delay_ms is None:
        climb(turn, job, at, outcome)
    else:
        climb(turn, job, at, outcome, turn.now + said.delay_ms)


def _ghost(said: Completion, lease: LeaseRow) -> JobRow:
    """The name of a job that is gone, for its history."""
    return JobRow(said.id, lease.incarnation, 0, 0, b"")


async def _complete_late(turn: Turn, said: Completion) -> None:
    """Said before (answer the same), or success after the lease ended while the job still waits."""
    if await _said_before(turn, said):
        return
    found = (await turn.jobs([said.id])).get(said.id)
    waits = found is not None and turn.book.lease_of(said.id) is None and not await turn.dead([said.id])
    if found is not None and waits and said.ok and found.at.last_token == said.lease:
        finish_late(turn, found.job, found.at, said.lease)
        return
    raise StaleLeaseError(f"lease {said.lease!r} does not, or no longer, settle job {said.id!r}", id=said.id)


async def _said_before(turn: Turn, said: Completion) -> bool:
    for ms in {turn.now, turn.now - REPLAY_MS}:
        prefix = hist_key(ms, said.id, "", "")[:-1]
        for key, value in await turn.book.storage.scan(prefix, after(prefix), limit=1000):
            row = turn.book.read(HistRow, key, value)
            if row is not None and row.token == said.lease and row.outcome in ("done", "failed", "cancelled"):
                return turn.now - row.ended <= REPLAY_MS
    return False


async def extend(turn: Turn, job_id: str, token: str, lease_ms: int) -> int:
    """Give the attempt until `lease_ms` from now; when that is. StaleLeaseError, also for a cancelled job."""
    held = turn.book.leases.get(token)
    if held is None or held[0] != job_id or held[1].kind == "unknown":
        raise StaleLeaseError(f"lease {token!r} does not, or no longer, hold job {job_id!r}", id=job_id)
    if held[1].orphan:
        raise StaleLeaseError(f"job {job_id!r} was cancelled: stop working on it", id=job_id, cancelled=True)
    until = turn.now + lease_ms
    if held[1].kind == "fired":
        until = max(until, held[1].until)
    return turn.book.change_lease(token, until=until).until
