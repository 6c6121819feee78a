"""`SchedulesPort`: the part of the port that defines and runs schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.model.schedule_records import (
    CronPreview,
    OccurrencePage,
    Registration,
    SchedulePage,
    SchedulePut,
    ScheduleRecord,
    TriggeredRun,
)
from tocsin.actors.scheduler.schedules.change import NewSchedule


class SchedulesPort(Protocol):
    """Defines and runs the schedules of one scheduler."""

    async def put(self, new: NewSchedule) -> SchedulePut:
        """Define a schedule, or define it anew."""
        ...

    async def register(self, owner: str, news: Sequence[NewSchedule], *, prune: bool) -> Registration:
        """Define an owner's whole set in one commit; what it leaves out is reported, or removed with `prune`."""
        ...

    async def get(self, name: str) -> ScheduleRecord | None:
        """Return the schedule of that name, or None."""
        ...

    async def list(self, *, cursor: str | None, limit: int) -> SchedulePage:
        """Return a page by name."""
        ...

    async def occurrences(self, name: str, *, cursor: str | None, limit: int) -> OccurrencePage:
        """Return what became of its slots, the newest first; empty for a name that never was one."""
        ...

    async def pause(self, name: str, *, revision: int | None) -> ScheduleRecord:
        """Let its slots pass as skipped. NotFoundError, or ConflictError for a stale revision."""
        ...

    async def resume(self, name: str, *, revision: int | None) -> ScheduleRecord:
        """Let it fire again, from the next slot on."""
        ...

    async def delete(self, name: str, *, revision: int | None, cancel_pending: bool) -> bool:
        """Remove it, and cancel its occurrences with `cancel_pending`. False if there was none."""
        ...

    async def trigger(self, name: str, request_key: str | None) -> TriggeredRun:
        """Start one occurrence now, also when paused; the same key gives the same occurrence."""
        ...

    async def backfill(self, name: str, *, start: int, end: int, rate_per_second: int, dry_run: bool) -> Backfill:
        """Run the slots from `start` on and before `end` that had no run; with `dry_run` only count them."""
        ...

    async def backfills(self, name: str) -> Sequence[Backfill]:
        """Return the backfills of a schedule, the newest first, at most a hundred."""
        ...

    async def backfill_stop(self, name: str, backfill_id: str) -> bool:
        """Stop a backfill; what it has started goes on. False if it had ended, or there is none."""
        ...

    async def preview(self, cron: str, *, timezone: str, start: int | None, count: int) -> CronPreview:
        """Return what an expression comes to after `start` (None: now)."""
        ...
