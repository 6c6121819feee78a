"""Reads of the handle of a scheduler: jobs, counts, reasons, what changes, and what operators did."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.audit_records import AuditPage
from tocsin.actors.scheduler.model.feed_frames import Change, FeedPage, read_frame


class SchedulerReads:
    """Reads of one instance as it is committed; reading never creates it."""

    def __init__(self, port: SchedulerPort) -> None:
        self._port = port

    async def get(self, id: str) -> records.Record | None:
        """Return the job, dead ones included; None if there is none of that id."""
        return await self._port.reads.get(id)

    async def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        order: str = "due",
        pool: str | None = None,
        state: str | None = None,
        label: str | None = None,
        queue: str | None = None,
        path: str | None = None,
    ) -> records.Page:
        """Return a page of live jobs by next attempt (`order="due"`) or by id; `limit` 1 to 1000."""
        return await self._port.reads.list(
            cursor=cursor, limit=limit, order=order, pool=pool, state=state, label=label, queue=queue, path=path
        )

    async def list_all(self, *, order: str = "id", **filters: Any) -> AsyncIterator[records.Record]:
        """Yield every live job, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(cursor=cursor, limit=1000, order=order, **filters)
            for record in page.records:
                yield record
            if not page.truncated:
                return
            cursor = page.cursor

    async def status(self) -> records.Status:
        """Count the jobs of this instance, exactly but for `due`; and tell its health."""
        return await self._port.reads.status()

    async def activity(self, minutes: int = 60) -> records.Activity:
        """Return what this scheduler did in each of the last minutes, up to 60, as far as its host remembers."""
        return await self._port.reads.activity(minutes)

    async def why(self, id: str) -> Sequence[records.Reason]:
        """Return every reason the job is not running now; empty only if it may start at this instant."""
        return await self._port.reads.why(id)

    async def history(self, id: str) -> Sequence[records.Attempt]:
        """Return how its attempts ended, the oldest first; kept for some days after the job is gone."""
        return await self._port.reads.history(id)

    async def changes(self, *, since: str | None = None) -> AsyncGenerator[Change, None]:
        """Yield what changes, as it changes: first a snapshot, then at most ten frames a second.

        `since` is the `seq` of the last frame that was seen: the feed goes on behind it. Where that is not possible any
        more, a `resync` says so, and a snapshot follows. Frames have no args. The feed ends when the instance is
        removed; HostClosedError when the host stops.
        """
        while True:
            page = await self._page_of_changes(since)
            for text in page.frames:
                yield read_frame(text)
            if page.ended:
                return
            since = page.seq

    async def _page_of_changes(self, since: str | None) -> FeedPage:
        return await self._port.reads.changes(since=since, wait_s=None)

    async def audit(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        action: str | None = None,
        who: str | None = None,
        since: datetime | int | None = None,
    ) -> AuditPage:
        """Return a page of what operators did with this instance, the newest first: who, what, when, and how much it
        changed. `who` is the name of a token or a user, or `python`, `http` or `dashboard`."""
        done_since = None if since is None else arguments.instant_ms(since, "since")
        return await self._port.reads.audit(cursor=cursor, limit=limit, action=action, who=who, since=done_since)
