"""`SyncDeadLetters`: the part of a handle that is about dead jobs, for code that blocks.

Written by scripts/sync_client.py of `DeadLetters`: change that, and run the script."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, TypeVar

from tocsin.actors.client.blocking import Blocking
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.audit_records import DeadGroups

T = TypeVar("T")


class SyncDeadLetters:
    """The methods of a `SyncScheduler` that are about jobs which were given up."""

    _blocking: Blocking
    name: str

    def _call(self, ask: Callable[[Scheduler], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self.name)))

    def dead(
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
        return self._call(
            lambda it: it.dead(
                cursor=cursor, limit=limit, pool=pool, label=label, reason=reason, since=since, path=path
            )
        )

    def dead_retry(self, id: str) -> records.DeadRetried:
        """Make a dead job due now, with a fresh budget; it keeps everything else but `expiresAt`."""
        return self._call(lambda it: it.dead_retry(id))

    def dead_cancel(self, id: str) -> bool:
        """Remove a dead job for good; False if there is none of that id."""
        return self._call(lambda it: it.dead_cancel(id))

    def dead_retry_all(
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
        return self._call(
            lambda it: it.dead_retry_all(
                pool=pool,
                reason=reason,
                path=path,
                since=since,
                ids=ids,
                all=all,
                rate_per_second=rate_per_second,
                dry_run=dry_run,
            )
        )

    def redrive(self, redrive_id: str) -> records.Redrive | None:
        """Return how far a `dead_retry_all` has come; None if there is none of that id."""
        return self._call(lambda it: it.redrive(redrive_id))

    def redrive_stop(self, redrive_id: str) -> bool:
        """Stop it; what it has retried stays retried. False if there is none, or it has ended."""
        return self._call(lambda it: it.redrive_stop(redrive_id))

    def dead_cancel_all(
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
        return self._call(
            lambda it: it.dead_cancel_all(
                pool=pool, reason=reason, path=path, since=since, ids=ids, all=all, dry_run=dry_run
            )
        )

    def dead_groups(self) -> DeadGroups:
        """Return the dead jobs by reason and path, the largest group first: how many, since when, and how the latest
        ended."""
        return self._call(lambda it: it.dead_groups())
