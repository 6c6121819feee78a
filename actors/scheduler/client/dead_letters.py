"""`DeadLetters`: the part of a handle that is about dead jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.audit_records import DeadGroups


class DeadLetters:
    """The methods of a `Scheduler` that are about jobs which were given up."""

    _port: SchedulerPort

    async def dead(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        pool: str | None = None,
        label: str | None = None,
        reason: str | None = None,
        since: datetime | int | None = None,
        path: str | None = None,
    ) -> records.Page:
        """Return a page of dead jobs, the newest parked last; `since` leaves out those parked before."""
        parked_since = None if since is None else arguments.instant_ms(since, "since")
        return await self._port.reads.dead(
            cursor=cursor, limit=limit, pool=pool, label=label, reason=reason, since=parked_since, path=path
        )

    async def dead_retry(self, id: str) -> records.DeadRetried:
        """Make a dead job due now, with a fresh budget; it keeps everything else but `expiresAt`."""
        return await self._port.changes.dead_retry(id)

    async def dead_cancel(self, id: str) -> bool:
        """Remove a dead job for good; False if there is none of that id."""
        return await self._port.changes.dead_cancel(id)

    async def dead_retry_all(
        self,
        *,
        pool: str | None = None,
        reason: str | None = None,
        path: str | None = None,
        since: datetime | int | None = None,
        ids: Sequence[str] | None = None,
        all: bool = False,
        rate_per_second: int = 10,
        dry_run: bool = False,
    ) -> records.Redrive:
        """Retry the dead letters parked before this call that fit all filters, so many a second, as a durable job.
        `ids` names up to 1,000 of them. `undo` with its `redrive_id` makes those dead again that have not started.

        Letters that another such job has already are not matched: ConflictError with its `redriveId` if it has all of
        them. While another one retries jobs of the same pool, this one waits for its end (`waits_for`).
        """
        parked_since = None if since is None else arguments.instant_ms(since, "since")
        return await self._port.changes.dead_retry_all(
            pool=pool, reason=reason, path=path, since=parked_since, ids=ids, all=all,
            rate_per_second=rate_per_second, dry_run=dry_run,
        )  # fmt: skip

    async def redrive(self, redrive_id: str) -> records.Redrive | None:
        """Return how far a `dead_retry_all` has come; None if there is none of that id."""
        return await self._port.reads.redrive(redrive_id)

    async def redrive_stop(self, redrive_id: str) -> bool:
        """Stop it; what it has retried stays retried. False if there is none, or it has ended."""
        return await self._port.changes.redrive_stop(redrive_id)

    async def dead_cancel_all(
        self,
        *,
        pool: str | None = None,
        reason: str | None = None,
        path: str | None = None,
        since: datetime | int | None = None,
        ids: Sequence[str] | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> records.Matched:
        """Remove the dead letters parked before this call that fit all filters, a page at a time. `ids` names up to
        1,000 of them. `undo` with the `action_id` of the answer puts them back, for ten minutes."""
        parked_since = None if since is None else arguments.instant_ms(since, "since")
        return await self._port.changes.dead_cancel_all(
            pool=pool, reason=reason, path=path, since=parked_since, ids=ids, all=all, dry_run=dry_run
        )

    async def dead_groups(self) -> DeadGroups:
        """Return the dead jobs by reason and path, the largest group first: how many, since when, and how the latest
        ended."""
        return await self._port.reads.dead_groups()
