"""The record of a job, made of its rows as they stood together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.damage import stored
from tocsin.actors.scheduler.model.followers import Follower, followers_of, on_dead_of
from tocsin.actors.scheduler.model.instants_of_job import due_of
from tocsin.actors.scheduler.model.later_rows import LaterRow
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import PULLED, AtRow, BadRow, DeadRow, JobRow, LeaseRow
from tocsin.dispatch.job_options import place_in, record_options


@dataclass(slots=True)
class Found:
    """The rows of one job as they stood together."""

    job: JobRow
    at: AtRow | None = None
    dead: DeadRow | None = None
    leases: list[tuple[str, LeaseRow]] = field(default_factory=list)
    args: bytes = b""
    """Everything that is stored as its args."""
    damaged: bool = False
    """Its args cannot be shown."""
    later: LaterRow | None = None
    """The call that is kept until its run has ended."""

    @property
    def running(self) -> LeaseRow | None:
        """Return the lease of the attempt that runs the job, if one does."""
        return next((lease for _, lease in self.leases if not lease.orphan), None)

    @property
    def place(self) -> AtRow:
        """Return where the job stands by its own rows, or stood when it was claimed or died."""
        if self.dead is not None:
            return self.dead.at
        running = self.running
        return self.at or AtRow(self.job.scheduled_for) if running is None else running.at

    def record(self, now: int) -> records.Record:
        job = self.job
        running, at = self.running, self.place
        return records.Record(
            id=job.id,
            incarnation=job.incarnation,
            raw_args=msgspec.UNSET if self.damaged else msgspec.Raw(parts_of(job, self.args).args),
            args_damaged=self.damaged,
            scheduled_for=due_of(job, at),
            next_attempt_at=at.next_at if self.dead is None else None,
            state=self._state(running, at, now),
            attempt=at.attempt,
            attempts=at.attempts,
            enqueued_at=job.enqueued_at,
            function_path=job.function_path,
            workflow=job.workflow,
            expires_at=job.expires_at,
            losses=at.losses,
            last_error=_error(at),
            lease=_lease(running) if running else None,
            initiator=records.initiator_of(job.initiator),
            schedule=_schedule(job),
            keep_result_ms=job.keep_result_ms,
            parent=job.parent,
            group=None if job.extras is None else job.extras.group,
            **_following_members(job, self.args),
            put_off=self._put_off(at),
            **_dead_members(self.dead),
            **{**record_options(job), "retry": records.retry_of_record(job)},
        )

    def _put_off(self, at: AtRow) -> records.PutOff | None:
        """Tell of the debounce of a job that has not started; of one that runs, of the call that is kept."""
        job = self.job if self.later is None else self.later.job
        debounce = None if job.extras is None or (at.attempt and self.later is None) else job.extras.debounce
        if self.later is None and debounce is None:
            return None
        first, until = debounce or (None, None)
        return records.PutOff(first, until, None if self.later is None else job.scheduled_for)

    def _state(self, running: LeaseRow | None, at: AtRow, now: int) -> str:
        if self.dead is not None:
            return "dead"
        if running is not None:
            return "running"
        return "waiting" if at.next_at <= now else "pending"


def _lease(row: LeaseRow) -> records.LeaseInfo:
    if row.kind == PULLED:
        return records.LeaseInfo(row.until, row.kind, worker=row.host or None)
    return records.LeaseInfo(row.until, row.kind, row.host)


def _following_members(job: JobRow, whole: bytes) -> dict[str, Any]:
    if not job.chained:
        return {}
    try:
        return {"then": following(followers_of(job, whole)), "on_dead": following(on_dead_of(job, whole))}
    except BadRow:
        return {}  # what is damaged is shown by `check`


def following(followers: Sequence[Follower]) -> Sequence[records.Following]:
    """Show followers as callers see them."""
    return tuple(_following(one) for one in followers)


def _following(one: Follower) -> records.Following:
    job = one.job
    return records.Following(
        id=job.id, function_path=job.function_path, workflow=job.workflow, queue=job.queue or None,
        delay_ms=one.delay_ms, then=following(one.then), on_dead=following(one.on_dead),
        **place_in(job.extras),
    )  # fmt: skip


def _schedule(job: JobRow) -> records.ScheduleSlot | None:
    one = job.schedule
    if one is None:
        return None
    coalesced = None if one.first_slot is None else one.coalesced
    return records.ScheduleSlot(one.name, one.slot, one.first_slot, coalesced, one.request is not None)


def _error(at: AtRow) -> records.ErrorInfo | None:
    error = at.last_error
    if error is None:
        return None
    return records.ErrorInfo(error.at, error.message, error.status, error.code, stored(error.data))


def _dead_members(dead: DeadRow | None) -> dict[str, Any]:
    if dead is None:
        return {}
    response = None if dead.response is None else dead.response.decode("utf-8", "replace")
    return {
        "reason": dead.reason,
        "parked_at": dead.parked_at,
        "last_status": dead.status,
        "last_response": response,
    }
