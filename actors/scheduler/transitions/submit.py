"""Submit turns: accept jobs, or refuse those whose ids are taken. And cancel, which frees an id."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.damage import job_fault
from tocsin.actors.scheduler.model.flow_rows import JobExtras
from tocsin.actors.scheduler.model.followers import same_but_ids
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.records import Cancelled, Scheduled
from tocsin.actors.scheduler.model.rows import AtRow, JobRow, LastError, at_key, dead_key, job_key
from tocsin.actors.scheduler.state.fronts import Known
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import job as decide
from tocsin.actors.scheduler.transitions.apply import accept, accept_plain, apply, apply_to_letter, apply_to_waiting
from tocsin.actors.scheduler.transitions.groups import join, may_join, read_groups
from tocsin.actors.scheduler.transitions.put_off import begin_period, bring_now, put_off
from tocsin.errors import (
    ConflictError,
    DuplicateScheduleIdError,
    NotFoundError,
    QuotaExceededError,
    RequestError,
    ThrottledError,
)

_is_plain: Final = attrgetter("is_plain")
Answer = Scheduled | DuplicateScheduleIdError | QuotaExceededError | ThrottledError | NotFoundError | ConflictError


async def submit(turn: Turn, jobs: Sequence[NewJob]) -> list[Answer]:
    """Accept jobs in one batch; return one answer per job, in order."""
    if turn.state.clock is not None:
        jobs = [_on_clock(turn, new) for new in jobs]
    chosen = [new.job.id for new in jobs if new.chosen]
    if turn.state.later is not None:
        await bring_now(turn, chosen)
    known, dead = await _holders(turn, chosen) if chosen else ({}, set())
    if not known and _all_plain(turn, jobs):
        accept_plain(turn, jobs)
        return [Scheduled(new.job.id, new.job.scheduled_for, True) for new in jobs]
    if any(new.job.extras is not None for new in jobs):
        await read_groups(turn, jobs)
    return [await _submit_one(turn, new, known, dead) for new in jobs]


async def _submit_one(turn: Turn, new: NewJob, known: dict[str, Known], dead: set[str]) -> Answer:
    """Accept one job; `known` are those that have ids of the call, `dead` the dead ones of them."""
    holder, is_dead = known.get(new.job.id), new.job.id in dead
    is_folded = new.folds and holder is not None
    if new.debounce is not None or new.throttle is not None:
        timed = await put_off(turn, new, holder, is_dead)
        if not isinstance(timed, NewJob):
            if new.parked_as and isinstance(timed, ThrottledError):
                return await _kept_as_letter(turn, new, timed)
            return timed
        new = timed
    if new.job.extras is not None and (holder is None or (new.on_conflict == "replace" and not _is_same(new, holder))):
        turned_away = may_join(turn, new, None if holder is None else holder.job)
        if turned_away is not None:
            return await _kept_as_letter(turn, new, turned_away) if new.parked_as else turned_away
    if holder is not None:
        answer = await _conflict(turn, new, holder, is_dead)
        if answer is not None and new.parked_as and isinstance(answer, DuplicateScheduleIdError):
            answer = await _kept_as_letter(turn, new, answer)
        if answer is not None:
            return answer
    elif (refused := over_quota(turn)) is not None:
        return await _kept_as_letter(turn, new, refused) if new.parked_as else refused
    accepted = known[new.job.id] = accept(turn, join(turn, new), new.job.scheduled_for)
    job = accepted.job
    if new.throttle is not None:
        await begin_period(turn, job, new.throttle[0])
    if is_folded:
        return Scheduled(job.id, job.scheduled_for, False, state="pending")
    return Scheduled(job.id, job.scheduled_for, True)


def _on_clock(turn: Turn, new: NewJob) -> NewJob:
    """Count the job's delay from where the test clock stands: who asks for it may not know, or it has moved since."""
    job = new.job
    due = turn.now + job.scheduled_for - job.enqueued_at if new.relative else job.scheduled_for
    return msgspec.structs.replace(new, job=msgspec.structs.replace(job, scheduled_for=due, enqueued_at=turn.now))


async def submit_together(turn: Turn, submits: Sequence[Sequence[NewJob]]) -> list[list[Answer]]:
    """Return what `submit` returns for each of these, one after another."""
    answers = iter(await submit(turn, [new for jobs in submits for new in jobs]))
    return [list(islice(answers, len(jobs))) for jobs in submits]


async def _holders(turn: Turn, ids: Sequence[str]) -> tuple[dict[str, Known], set[str]]:
    """Return the jobs that have these ids, and which of them are dead letters. One hop if all ids are free."""
    storage = turn.state.storage
    rows = await storage.get_many([job_key(job_id) for job_id in ids])
    taken = [job_id for job_id in ids if job_key(job_id) in rows] if rows else []
    if not taken:
        return {}, set()
    keys = [key for job_id in taken for key in (job_key(job_id), at_key(job_id), dead_key(job_id))]
    await storage.prefetch([key for key in keys if key not in storage.layer.read])
    return await turn.jobs(taken), await turn.dead(taken)


def _all_plain(turn: Turn, jobs: Sequence[NewJob]) -> bool:
    """Return whether these jobs, whose ids nobody has, can be accepted all at once, because none of them bears on
    another: no two have one id, and the quota holds all."""
    if not all(map(_is_plain, jobs)):
        return False
    if (rotas := turn.state.lines.rotas) is not None and any(
        rotas.are_fair(new.job.pool, new.job.queue) for new in jobs
    ):
        return False
    if len(jobs) > 1 and len({new.job.id for new in jobs}) < len(jobs):
        return False
    return turn.state.limits.quota is None or _held(turn) + len(jobs) <= turn.state.limits.quota


def over_quota(turn: Turn) -> QuotaExceededError | None:
    quota, held = turn.state.limits.quota, _held(turn)
    if quota is None or held < quota:
        return None
    return QuotaExceededError(
        f"this instance holds {held} jobs, dead ones included, and may hold {quota}: wait for some to end", limit=quota
    )


def _held(turn: Turn) -> int:
    """Return how many jobs count against the quota."""
    counters = turn.state.counters
    return counters.waiting + counters.leased + counters.dead


def _is_same(new: NewJob, holder: Known) -> bool:
    """Return whether a job was sent twice."""
    return bool(new.job.incarnation) and new.job.incarnation == holder.job.incarnation


async def _conflict(turn: Turn, new: NewJob, holder: Known, dead: bool) -> Answer | None:
    """Return the answer to a request for a taken id, or None where the job that has it made way."""
    if _is_same(new, holder):
        return Scheduled(holder.job.id, holder.job.scheduled_for, True)
    state = _state(turn, holder.job.id, dead)
    if (state in ("dead", "running") and new.on_conflict != "keep") or new.on_conflict == "error" or state == "dead":
        advice = {
            "dead": "retry or cancel the dead letter, or choose another id",
            "running": "wait until it has ended, cancel it, or choose another id",
        }.get(state, "cancel it, choose another id, or say what to do on conflict: keep or replace")
        return DuplicateScheduleIdError(
            f"id {new.job.id!r} is taken by a {state} job: {advice}", id=new.job.id, state=state
        )
    if new.on_conflict == "keep":
        identical = await _identical(turn, new, holder.job)
        return Scheduled(holder.job.id, holder.job.scheduled_for, False, identical, state)
    apply_to_waiting(turn, holder.job, holder.at, decide.Replace())
    return None


async def _kept_as_letter(turn: Turn, new: NewJob, refused: RequestError) -> Scheduled:
    """Keep a refused job as a dead letter, so that whoever wrote it down finds it. It is kept once: who has that id is
    this very job."""
    extras = new.job.extras and msgspec.structs.replace(new.job.extras, group=None)
    kept = msgspec.structs.replace(new.job, id=new.parked_as, extras=extras)
    due = kept.scheduled_for
    if not await turn.jobs([new.parked_as]):
        accepted = accept(turn, msgspec.structs.replace(new, job=kept), due)
        at = AtRow(due, last_error=LastError(turn.now, f"not accepted: {refused.code}: {refused.message}"))
        apply_to_waiting(turn, accepted.job, accepted.at, decide.Park("refused", at))
    return Scheduled(new.parked_as, due, False, state="dead")


def _state(turn: Turn, job_id: str, dead: bool) -> str:
    if dead:
        return "dead"
    return "running" if turn.state.lease_of(job_id) is not None else "pending"


async def _identical(turn: Turn, new: NewJob, old: JobRow) -> bool:
    """Tell whether the caller asked for what is there already, whoever asked for that, and in which trace."""
    blank = {
        "incarnation": "", "enqueued_at": 0, "args": b"", "args_rows": 0, "initiator": ("", ""), "then_size": 0,
        "older_retry": False, "trace": None,
    }  # fmt: skip
    asked_for, there = (msgspec.structs.replace(one, **blank, extras=_but_size(one.extras)) for one in (new.job, old))
    if asked_for != there:
        return False
    stored = (await turn.all_args([old]))[old.id]
    if job_fault(old, stored) is not None:
        return False
    asked = new.job.args + b"".join(new.rest_of_args)
    return same_but_ids(stored, old, asked, new.job)


def _but_size(extras: JobExtras | None) -> JobExtras | None:
    """Return extras without the size of what follows a death: its ids are new each time."""
    return extras and msgspec.structs.replace(extras, on_dead_size=0, group_uid="")


async def cancel(turn: Turn, job_id: str) -> Cancelled:
    """Remove a waiting or running job; its id is free at once. A dead one is cancelled by `cancel_dead`."""
    if turn.state.later is not None:
        await bring_now(turn, [job_id])
    known = (await turn.jobs([job_id])).get(job_id)
    if known is None or await turn.dead([job_id]):
        return Cancelled(False, False)
    token = turn.state.lease_of(job_id)
    if token is None:
        apply_to_waiting(turn, known.job, known.at, decide.Cancel(known.at))
    else:
        apply(turn, known.job, token, decide.cancel_running(turn.state.leases[token][1]))
    return Cancelled(True, token is not None)


# ---- Dead letters --------------------------------------------------------------------------------


async def retry_dead(turn: Turn, job_id: str) -> int | None:
    """Make a dead letter due now; return its original due instant, or None if there is no such letter."""
    letter = (await turn.letters([job_id])).get(job_id)
    if letter is None:
        return None
    job, dead = letter
    apply_to_letter(turn, job, dead, decide.retry_dead(dead.at, turn.now))
    return job.scheduled_for


async def cancel_dead(turn: Turn, job_id: str) -> bool:
    """Remove a dead letter for good; return whether there was one."""
    letter = (await turn.letters([job_id])).get(job_id)
    if letter is not None:
        apply_to_letter(turn, *letter, decide.Drop())
    return letter is not None
