"""Turns of operators: pools set and deleted, the instance stopped, started and removed, jobs moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tocsin.actors.scheduler.model.acts import TrashRow
from tocsin.actors.scheduler.model.asked_by import AskedBy, Pause
from tocsin.actors.scheduler.model.audit import Act
from tocsin.actors.scheduler.model.pool_settings import PoolSettings
from tocsin.actors.scheduler.model.records import Rescheduled
from tocsin.actors.scheduler.model.rows import INSTANCE, InstanceRow, PoolRow, at_key, dead_key, job_key
from tocsin.actors.scheduler.state.fronts import Known
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import acts, audit, rates
from tocsin.actors.scheduler.transitions import job as decide
from tocsin.actors.scheduler.transitions.acts import Acting
from tocsin.actors.scheduler.transitions.apply import apply_to_waiting
from tocsin.actors.scheduler.transitions.submit import cancel
from tocsin.errors import ConflictError
from tocsin.storage.api import after, row_pages

PAGE = 500


async def set_pool(turn: Turn, name: str, settings: PoolSettings, by: AskedBy | None = None) -> bool:
    """Set what is given of a pool; return whether there was no such pool. Jobs no longer set a cap, or a rate, that was
    set here. Those that hold slots beyond a lowered cap finish."""
    lines = turn.state.lines
    created = name not in lines.pools and not lines.queued(name) and not lines.holders[name]
    there = lines.pools.get(name)
    old = PoolRow(1) if there is None else there
    (cap, set_by), paused = settings.cap_after(there), settings.paused
    row = PoolRow(
        cap=cap,
        paused=old.paused if paused is None else paused,
        set_by=set_by,
        pause=_pause(turn, old.paused, old.pause, paused, by),
        flow=settings.flow_after(old.flow),
    )
    rates.put_pool(turn, name, row)
    warmed = settings.cooling is False and rates.end_cooling(turn, name)
    if by is not None and warmed and row == there:
        audit.note(turn, by, "set_pool", name, settings.said())
    if by is not None and row != there:
        acting = acts.begin_at_once(turn, by, "set_pool", name, settings.said())
        acting.keep(name, TrashRow("pool", pool=(there, row)))
        acting.end(None, 1)
    return created


def _pause(turn: Turn, was_paused: bool, pause: Pause | None, paused: bool | None, by: AskedBy | None) -> Pause | None:
    """Return who paused it and when, if it is paused from now on."""
    if paused is None or paused == was_paused:
        return pause
    return Pause(turn.now, by) if paused else None


def _given(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


async def delete_pool(turn: Turn, name: str) -> bool:
    """Remove a pool; return whether there was one. ConflictError while a job names it, a dead one too."""
    lines = turn.state.lines
    waiting, running = lines.queued(name), lines.holders[name]
    if waiting or running:
        raise ConflictError(f"pool {name!r} has {waiting} waiting and {running} running jobs: cancel them first")
    if (letter := await _dead_in(turn, name)) is not None:
        raise ConflictError(f"dead job {letter!r} names pool {name!r}: retry or cancel it first", id=letter)
    there = name in lines.pools
    turn.state.drop_pool(name)
    return there


async def _dead_in(turn: Turn, pool: str) -> str | None:
    async for rows in row_pages(turn.state.storage, b"parked/", after(b"parked/"), PAGE):
        known = await turn.jobs([key.rpartition(b"/")[2].decode() for key, _ in rows])
        for job_id, one in known.items():
            if one.job.pool == pool:
                return job_id
    return None


async def reschedule(turn: Turn, job_id: str, due: int) -> Rescheduled | int:
    """Move a pending or waiting job; a running, dead or unknown one stays as it is. One that expires before `due`
    stays too, and its expiry is returned, epoch ms."""
    known = (await turn.jobs([job_id])).get(job_id)
    if known is None or await turn.dead([job_id]):
        return Rescheduled(False)
    if turn.state.lease_of(job_id) is not None:
        return Rescheduled(False, was_running=True)
    if known.job.expires_at is not None and known.at.expires and known.job.expires_at <= due:
        return known.job.expires_at
    apply_to_waiting(turn, known.job, known.at, decide.move(known.at, due))
    return Rescheduled(True, scheduled_for=due)


async def cancel_many(turn: Turn, jobs: Sequence[tuple[str, str]], act: Act | None = None) -> tuple[int, int]:
    """Cancel jobs by id and incarnation, not others that took their ids meanwhile. Return how many were cancelled, and
    how many of `jobs` are left for another turn."""
    acting = await acts.begin(turn, act)
    if acting is not None and acting.is_undone:
        return 0, 0
    ids = [job_id for job_id, _ in jobs]
    await turn.state.storage.prefetch([key for one in ids for key in (job_key(one), at_key(one), dead_key(one))])
    known = await turn.jobs(ids)
    cancelled = left = 0
    for n, (job_id, incarnation) in enumerate(jobs):
        if turn.is_full:
            left = len(jobs) - n
            break
        if job_id in known and known[job_id].job.incarnation == incarnation:
            cancelled += await _cancel_kept(turn, known[job_id], acting)
    if acting is not None:
        acting.end(len(jobs) - left, cancelled)
    return cancelled, left


async def _cancel_kept(turn: Turn, known: Known, acting: Acting | None) -> bool:
    """Cancel a job, and keep it for as long as that can be undone. One that runs never comes back."""
    if acting is None:
        return (await cancel(turn, known.job.id)).cancelled
    trash = await acts.kept(turn, "cancelled", known.job, at=known.at)
    pieces = await acts.pieces_of(turn, known.job)
    done = await cancel(turn, known.job.id)
    if done.was_running:
        acting.keep_not("running")
    elif done.cancelled:
        acting.keep(known.job.id, trash, pieces)
    return done.cancelled


# ---- The instance --------------------------------------------------------------------------------


@dataclass(slots=True)
class Erased:
    """The counts of one page of a removal."""

    rows: int
    jobs: int
    more: bool


async def set_instance(
    turn: Turn, paused: bool | None, timeout_ms: int | None, by: AskedBy | None = None
) -> InstanceRow:
    """Pause the instance, or set its timeout; return its row. None: unchanged. A timeout of 0 is the host's again."""
    old = turn.state.instance
    row = msgspec.structs.replace(
        old,
        paused=old.paused if paused is None else paused,
        timeout_ms=old.timeout_ms if timeout_ms is None else timeout_ms or None,
        pause=_pause(turn, old.paused, old.pause, paused, by),
    )
    turn.state.put_instance(row)
    if by is not None and row != old:
        audit.note(turn, by, "pause", said=_given({"paused": paused, "timeoutMs": timeout_ms}))
    return row


async def erase_page(turn: Turn) -> Erased:
    """Remove a page of everything. Survives crashes: the instance stays marked until the last row is gone.

    The runtime's own rows stay, so that no lease is ever given twice.
    """
    if not turn.state.instance.erasing or turn.state.instance.importing:
        turn.state.put_instance(InstanceRow(paused=True, erasing=True))
    rows = await turn.state.storage.scan(b"\x01", b"\xff", limit=PAGE + 2)
    others = [key for key, _ in rows if key != INSTANCE]
    taken, more = others[:PAGE], len(others) > PAGE
    for key in taken:
        turn.state.storage.delete(key)
    if not more:
        turn.state.storage.delete(INSTANCE)
    return Erased(len(taken), sum(key.startswith(b"job/") for key in taken), more)
