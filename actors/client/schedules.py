"""Schedules of a server's scheduler: defined, registered in sets, held, run by hand and removed."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.client.answers import Backfills, Deleted, Stopped
from tocsin.actors.client.bodies import schedule_body
from tocsin.actors.client.server import ALWAYS, UNSENT, Server, is_absent, part
from tocsin.actors.scheduler.model import schedule_records as records
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.model.validation import schedule_id
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.schedules.definition import schedule_name
from tocsin.actors.scheduler.schedules.register import owned_name
from tocsin.errors import NotFoundError


class ServerSchedules:
    """Defines and runs the schedules of one scheduler of a server."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    async def put(self, new: NewSchedule) -> records.SchedulePut:
        """Define a schedule, or define it anew. The same again changes nothing, unless it names a revision."""
        return await self._server.ask(
            "PUT", self._name, _route(new.name), records.SchedulePut, schedule_body(new), again=new.revision is None
        )

    async def register(self, owner: str, news: Sequence[NewSchedule], *, prune: bool) -> records.Registration:
        """Define an owner's whole set in one commit. The same again changes nothing, but a second answer would not name
        what the first has removed."""
        start = len(owned_name(owner, ""))
        said = {
            "schedules": [{"name": new.name[start:], **schedule_body(new)} for new in news],
            "prune": prune,
        }
        route = f"owners/{part(owner)}/schedules"
        return await self._server.ask("PUT", self._name, route, records.Registration, said, again=not prune)

    async def get(self, name: str) -> records.ScheduleRecord | None:
        """Return the schedule of that name, or None."""
        try:
            return await self._server.ask("GET", self._name, _route(name), records.ScheduleRecord, again=ALWAYS)
        except NotFoundError as error:
            if is_absent(error):
                return None
            raise

    async def list(self, *, cursor: str | None, limit: int) -> records.SchedulePage:
        """Return a page by name."""
        query = {"cursor": cursor, "limit": limit}
        return await self._server.ask("GET", self._name, "schedules", records.SchedulePage, query=query, again=ALWAYS)

    async def occurrences(self, name: str, *, cursor: str | None, limit: int) -> records.OccurrencePage:
        """Return what became of its slots, the newest first; empty for a name that never was one."""
        query = {"cursor": cursor, "limit": limit}
        route = f"{_route(name)}/occurrences"
        try:
            return await self._server.ask("GET", self._name, route, records.OccurrencePage, query=query, again=ALWAYS)
        except NotFoundError as error:
            if is_absent(error):
                return records.OccurrencePage(occurrences=[], truncated=False)
            raise

    async def pause(self, name: str, *, revision: int | None) -> records.ScheduleRecord:
        """Let its slots pass as skipped. NotFoundError, or ConflictError for a stale revision."""
        return await self._switch(name, "pause", revision)

    async def resume(self, name: str, *, revision: int | None) -> records.ScheduleRecord:
        """Let it fire again, from the next slot on."""
        return await self._switch(name, "resume", revision)

    async def _switch(self, name: str, deed: str, revision: int | None) -> records.ScheduleRecord:
        said = {} if revision is None else {"revision": revision}
        return await self._server.ask(
            "POST", self._name, f"{_route(name)}/{deed}", records.ScheduleRecord, said, again=revision is None
        )

    async def delete(self, name: str, *, revision: int | None, cancel_pending: bool) -> bool:
        """Remove it, and cancel its occurrences with `cancel_pending`. False if there was none."""
        query = {"revision": revision, "cancelPending": cancel_pending or None}
        found = await self._server.ask("DELETE", self._name, _route(name), Deleted, query=query, again=UNSENT)
        return found.deleted

    async def trigger(self, name: str, request_key: str | None) -> records.TriggeredRun:
        """Start one occurrence now, also when paused; the same key gives the same occurrence."""
        said = {"requestKey": self._server.new_key() if request_key is None else request_key}
        return await self._server.ask(
            "POST", self._name, f"{_route(name)}/trigger", records.TriggeredRun, said, again=ALWAYS
        )

    async def backfill(self, name: str, *, start: int, end: int, rate_per_second: int, dry_run: bool) -> Backfill:
        """Run the slots from `start` on and before `end` that had no run; with `dry_run` only count them."""
        said = {"start": start, "end": end, "ratePerSecond": rate_per_second, "dryRun": dry_run}
        return await self._server.ask("POST", self._name, f"{_route(name)}/backfill", Backfill, said, again=dry_run)

    async def backfills(self, name: str) -> Sequence[Backfill]:
        """Return the backfills of a schedule, the newest first, at most a hundred."""
        found = await self._server.ask("GET", self._name, f"{_route(name)}/backfills", Backfills, again=ALWAYS)
        return found.backfills

    async def backfill_stop(self, name: str, backfill_id: str) -> bool:
        """Stop a backfill; what it has started goes on. False if it had ended, or there is none."""
        route = f"{_route(name)}/backfills/{part(schedule_id(backfill_id))}"
        return (await self._server.ask("DELETE", self._name, route, Stopped, again=UNSENT)).stopped

    async def preview(self, cron: str, *, timezone: str, start: int | None, count: int) -> records.CronPreview:
        """Return what an expression comes to after `start` (None: now)."""
        query = {"expr": cron, "timezone": timezone, "from": start, "count": count}
        return await self._server.ask("GET", self._name, "cron/preview", records.CronPreview, query=query, again=ALWAYS)


def _route(name: str) -> str:
    return f"schedules/{part(schedule_name(name))}"
