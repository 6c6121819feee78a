"""An operator frees a slot: the lease of an attempt from which nobody will hear ends now, not at its end."""

from __future__ import annotations

from collections.abc import Callable

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.instants_of_job import backoff_ms
from tocsin.actors.scheduler.model.rows import PULLED, LeaseRow
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.actors.scheduler.transitions import job as decide
from tocsin.actors.scheduler.transitions.apply import apply
from tocsin.actors.scheduler.transitions.complete import stands
from tocsin.errors import ConflictError

HELD = ("accepted", "unknown")
"""Kinds of leases whose callback is over: nothing but time, or the holder of the lease, ends them."""


async def free(turn: Turn, job_id: str, by: AskedBy, live: Callable[[str], bool]) -> Freed | ConflictError:
    """Give up the attempt that holds this job, if its callback is over, and whatever is left of cancelled jobs of this
    id. The job goes on as when the lease ends by itself.

    ConflictError, and nothing is changed, where an attempt runs: `live` says of a lease whether this host calls for it.
    """
    held = {token: turn.state.leases[token][1] for token in sorted(turn.state.by_id.get(job_id, ()))}
    given_up = [token for token, lease in held.items() if _may_end(token, lease, live)]
    if not given_up:
        return _refusal(job_id, [*held.values()]) if held else Freed(False)
    known = await turn.jobs([job_id])
    freed = Freed(True, job_id, state="cancelled")
    for token in given_up:
        lease = held[token]
        job = None if lease.orphan or job_id not in known else known[job_id].job
        delay_ms = 0 if job is None else backoff_ms(job, lease.at, turn.random)
        why = f"its slot was freed before its lease ended; {by}"
        apply(turn, job, token, decide.lease_ended(job, lease, turn.now, delay_ms, why))
        pool = lease.pool or freed.pool
        if job is None:
            freed = Freed(True, job_id, pool, freed.state, freed.reason, freed.next_attempt_at)
        else:
            now = await stands(turn, job_id)
            freed = Freed(True, job_id, pool, now.state, now.reason, now.next_attempt_at)
    said = {"pool": freed.pool, "kind": held[given_up[0]].kind, "lease": given_up[0]}
    audit.note(turn, by, "free_slot", job_id, {name: value for name, value in said.items() if value})
    return freed


def _may_end(token: str, lease: LeaseRow, live: Callable[[str], bool]) -> bool:
    """Return whether nothing is under way for this lease. A worker whose job was cancelled is told so, and stops."""
    return lease.kind in HELD or (lease.orphan and not live(token))


def _refusal(job_id: str, held: list[LeaseRow]) -> ConflictError:
    worker = next((lease.host for lease in held if lease.kind == PULLED), None)
    if worker is not None:
        return ConflictError(
            f"worker {worker or 'without a name'} has job {job_id!r}: stop the worker, or cancel the job, and its slot "
            "is free when the lease ends",
            id=job_id,
        )
    return ConflictError(
        f"job {job_id!r} is being called: its slot is free when the call ends, at its deadline at the latest", id=job_id
    )
