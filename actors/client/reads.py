"""Reads of what a server's scheduler holds. They are asked again until they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from tocsin.actors.client import answers
from tocsin.actors.client.queues import RESULT_WAIT_MS
from tocsin.actors.client.server import ALWAYS, Server, is_absent, part
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.activity import Activity
from tocsin.actors.scheduler.model.audit_records import AuditPage, DeadGroups
from tocsin.actors.scheduler.model.feed_frames import FeedPage
from tocsin.actors.scheduler.model.group_records import GroupPage, GroupRecord
from tocsin.actors.scheduler.model.validation import schedule_id
from tocsin.errors import NotFoundError

T = TypeVar("T")
FEED_WAIT_MS: Final = 25_000
"""For how long one question for changes waits at the server: shorter than proxies are patient."""


class ServerReads:
    """Reads what one scheduler of a server holds."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    async def _get(self, route: str, kind: type[T], **query: Any) -> T:
        return await self._server.ask("GET", self._name, route, kind, query=query, again=ALWAYS)

    async def get(self, id: str) -> records.Record | None:
        """Return the job, dead ones included; None if there is none of that id."""
        found = (await self._get("get", answers.Found, id=id)).record
        return None if found is None else found.record()

    async def list(
        self,
        *,
        cursor: str | None,
        limit: int,
        order: str,
        pool: str | None,
        state: str | None,
        label: str | None,
        queue: str | None,
        path: str | None,
    ) -> records.Page:
        """Return a page of live jobs by next attempt or by id."""
        found = await self._get(
            "list", answers.JobPage, cursor=cursor, limit=limit, order=order, pool=pool, state=state, label=label,
            queue=queue, functionPath=path,
        )  # fmt: skip
        return answers.page_of(found)

    async def dead(
        self,
        *,
        cursor: str | None,
        limit: int,
        pool: str | None,
        label: str | None,
        reason: str | None,
        since: int | None,
        path: str | None,
    ) -> records.Page:
        """Return a page of dead jobs, the newest parked last."""
        found = await self._get(
            "dead", answers.JobPage, cursor=cursor, limit=limit, pool=pool, label=label, reason=reason, since=since,
            functionPath=path,
        )  # fmt: skip
        return answers.page_of(found)

    async def status(self) -> records.Status:
        """Count what this instance holds, exactly but for `due`."""
        return await self._get("status", records.Status)

    async def clock(self, wait_s: float | None) -> records.ClockState | None:
        """Return how the test clock stands. It is asked again until no advance goes on, for as long as that takes."""
        loop = asyncio.get_running_loop()
        end = None if wait_s is None else loop.time() + wait_s
        while True:
            left_ms = RESULT_WAIT_MS if end is None else min(max(int((end - loop.time()) * 1000), 0), RESULT_WAIT_MS)
            found = await self._server.ask(
                "GET", self._name, "clock", answers.ClockFound, query={"waitMs": left_ms}, again=ALWAYS,
                wait_s=left_ms / 1000, until=end,
            )  # fmt: skip
            if found.clock is None or not found.clock.advancing or left_ms == 0:
                return found.clock

    async def changes(self, *, since: str | None, wait_s: float | None) -> FeedPage:
        """Return the frames of the live feed behind a place. It is asked again until there is one."""
        loop = asyncio.get_running_loop()
        end = None if wait_s is None else loop.time() + wait_s
        while True:
            left_ms = FEED_WAIT_MS if end is None else min(max(int((end - loop.time()) * 1000), 0), FEED_WAIT_MS)
            found = await self._server.ask(
                "GET", self._name, "changes", FeedPage, query={"since": since, "waitMs": left_ms}, again=ALWAYS,
                wait_s=left_ms / 1000, until=end,
            )  # fmt: skip
            if found.frames or found.ended or left_ms == 0:
                return found
            since = found.seq

    async def why(self, id: str) -> Sequence[records.Reason]:
        """Return every reason the job is not running now."""
        return (await self._get("why", answers.Reasons, id=id)).reasons

    async def history(self, id: str) -> Sequence[records.Attempt]:
        """Return how its attempts ended, the oldest first."""
        return (await self._get("history", answers.History, id=id)).attempts

    async def pool(self, name: str) -> records.Pool:
        """Return a pool and its holders."""
        return await self._get("pool", records.Pool, name=name)

    async def group(self, name: str) -> GroupRecord | None:
        """Return a group; None if there is none of that name."""
        try:
            return await self._get(f"groups/{part(name)}", GroupRecord)
        except NotFoundError as error:
            if is_absent(error):
                return None
            raise

    async def groups(self, *, cursor: str | None, limit: int) -> GroupPage:
        """Return a page of groups by name."""
        return await self._get("groups", GroupPage, cursor=cursor, limit=limit)

    async def members(self, name: str, *, cursor: str | None, limit: int) -> records.Page:
        """Return a page of the members of a group that live or are dead, by id."""
        found = await self._get(f"groups/{part(name)}/members", answers.JobPage, cursor=cursor, limit=limit)
        return answers.page_of(found)

    async def dead_groups(self) -> DeadGroups:
        """Return the dead letters by reason and path."""
        return await self._get("dead/groups", DeadGroups)

    async def audit(
        self,
        *,
        cursor: str | None,
        limit: int,
        action: str | None,
        who: str | None,
        since: int | None,
    ) -> AuditPage:
        """Return a page of what operators did, the newest first."""
        return await self._get("audit", AuditPage, cursor=cursor, limit=limit, action=action, who=who, since=since)

    async def activity(self, minutes: int) -> Activity:
        """Return what the scheduler did in the last minutes."""
        return await self._get("activity", Activity, minutes=minutes)

    async def redrive(self, redrive_id: str) -> records.Redrive | None:
        """Return how far a bulk retry has come; None if there is none of that id."""
        try:
            return await self._get(f"dead/redrives/{part(schedule_id(redrive_id))}", records.Redrive)
        except NotFoundError as error:
            if is_absent(error):
                return None
            raise
