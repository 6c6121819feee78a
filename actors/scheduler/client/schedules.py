"""`jobs.schedules`: recurring definitions of one scheduler, as users hold them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack
from zoneinfo import ZoneInfo

from tocsin.actors.cron.builder import Declared
from tocsin.actors.scheduler.client.job_checks import Job, OccurrenceOptions
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.client.schedules_port import GIVE_WAY, PREVIEW
from tocsin.actors.scheduler.model import schedule_records as records
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.schedules.declared import arguments_of, definition_of
from tocsin.actors.scheduler.schedules.definition import MAX_SET, new_schedule, schedule_name
from tocsin.actors.scheduler.schedules.register import owned_name
from tocsin.dispatch.durations import Duration
from tocsin.dispatch.instants import show
from tocsin.dispatch.values import LEFT_OUT
from tocsin.errors import InvalidInputError, RequestError


class Schedules:
    """Costs nothing until used. Durations: `timedelta`, seconds, or text like "5m"; instants as for `run_at`."""

    def __init__(self, port: SchedulerPort) -> None:
        self._port, self._checks = port.schedules, port.checks

    async def put(
        self,
        name: str,
        path: str | Job | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | int | None = None,
        timezone: str | ZoneInfo = "UTC",
        misfire: str = "one",
        grace: Duration = 60,
        catch_up_limit: int | None = 100,
        overlap: str = "skip",
        jitter: Duration = 0,
        paused: bool | None = None,
        revision: int | None = None,
        **options: Unpack[OccurrenceOptions],
    ) -> records.SchedulePut:
        """Define, or define anew: exactly one of `cron`, `every` (1 s at least) and `at`, and of `path` and `workflow`.

        `path` may be a whole Job without an instant, as `Task.job` makes it: its args and options (but for
        `keep_result`) are the occurrences'.
        What is left out has its default, but for `paused`, which then stays as it is. The same again changes nothing
        and keeps the next slot. `misfire` (`skip`, `one`, `all`) says what becomes of slots seen later than `grace`;
        `overlap` (`skip`, `queue`, `allow`) of those that come while an occurrence still runs or retries. Slots start
        up to `jitter` later, at the same offset every time. `revision`: the one that was read (0: there is none);
        ConflictError if it is not the latest. `options` are those of the occurrences: `queue`, `pool`,
        `max_concurrency`, `priority`, `labels`, `shard_key`, `retry`, `timeout_ms`, `expires_after`, `then`,
        `on_dead`, `initiator`. InvalidCronError, UnknownTimezoneError, InvalidInputError for what cannot be.
        """
        known = self._definition({
            **options, "path": path, "args": args, "workflow": workflow,
            "cron": cron, "every": every, "at": at, "timezone": timezone,
            "misfire": misfire, "grace": grace, "catch_up_limit": catch_up_limit, "overlap": overlap, "jitter": jitter,
        })  # fmt: skip
        initiator = _initiator(known)
        new = new_schedule(
            name, args=arguments.encode_args(known.pop("args")), paused=paused, revision=revision, initiator=initiator,
            given=known,
        )  # fmt: skip
        self._checks.check_schedule(new)
        return await self._port.put(new)

    def _definition(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments of `put` in the shapes that are checked: durations in ms, `then` and `on_dead` as they are
        stored."""
        return self._checks.with_followers(definition_of(_spread(given)))

    async def register(
        self, owner: str, schedules: Iterable[Declared | tuple[str, Mapping[str, Any]]], *, prune: bool = False
    ) -> records.Registration:
        """Define an owner's whole set in one commit: a `Cron`, or names with the arguments of `put`.

        Names get the owner's before them: `app:report`. ConflictError, and nothing is changed, if one of them is held
        by somebody else. What the owner has registered before and does not name any more is reported as orphaned and
        goes on, or with `prune` is removed. The same set again changes nothing.
        """
        schedule_name(owner)
        if isinstance(schedules, type) or not isinstance(schedules, Iterable):
            raise InvalidInputError(
                f"schedules must be a Cron (an instance, as from Cron()), or pairs, not {show(schedules)}"
            )
        news: list[NewSchedule] = []
        for one in schedules:
            news.append(self._of_set(owner, *arguments_of(one)))
            if not len(news) % GIVE_WAY:
                await asyncio.sleep(0)  # reading a thousand rules takes a while, and others want to live
        if len(news) > MAX_SET:
            raise InvalidInputError(f"schedules: {len(news)} given, at most {MAX_SET} in one set")
        return await self._port.register(owner, news, prune=prune)

    def _of_set(self, owner: str, name: str, given: Mapping[str, Any]) -> NewSchedule:
        try:
            known = self._definition(given)
            new = new_schedule(
                owned_name(owner, name), initiator=_initiator(known),
                args=arguments.encode_args(known.pop("args", LEFT_OUT)),
                paused=known.pop("paused", None), owner=owner, given=known,
            )  # fmt: skip
            self._checks.check_schedule(new)
            return new
        except RequestError as error:
            if error.message.startswith(f"schedule {name!r}"):
                raise
            raise type(error)(f"schedule {name!r}: {error.message}", **error.details) from None

    async def get(self, name: str) -> records.ScheduleRecord | None:
        """Return the schedule of that name, or None."""
        return await self._port.get(name)

    async def list(self, *, cursor: str | None = None, limit: int = 100) -> records.SchedulePage:
        """Return a page by name; `limit` 1 to 1000."""
        return await self._port.list(cursor=cursor, limit=limit)

    async def occurrences(self, name: str, *, cursor: str | None = None, limit: int = 100) -> records.OccurrencePage:
        """Return what became of its slots, the newest first. The last thousand are kept, 30 days beyond its end.

        As `history`, an empty page for a name that never was one.
        """
        return await self._port.occurrences(name, cursor=cursor, limit=limit)

    async def pause(self, name: str, *, revision: int | None = None) -> records.ScheduleRecord:
        """Let its slots pass as skipped until it is resumed. NotFoundError, or ConflictError for a stale revision."""
        return await self._port.pause(name, revision=revision)

    async def resume(self, name: str, *, revision: int | None = None) -> records.ScheduleRecord:
        """Let it fire again, from the next slot on."""
        return await self._port.resume(name, revision=revision)

    async def delete(self, name: str, *, revision: int | None = None, cancel_pending: bool = False) -> bool:
        """Remove the schedule; its occurrences go on, unless `cancel_pending`. False if there was none.

        Asked again with `cancel_pending`, it cancels what a cut connection had left of them.
        """
        return await self._port.delete(name, revision=revision, cancel_pending=cancel_pending)

    async def trigger(self, name: str, request_key: str | None = None) -> records.TriggeredRun:
        """Start one occurrence now, also when paused. The same key gives the same one; without a key it is new."""
        return await self._port.trigger(name, request_key)

    async def backfill(
        self,
        name: str,
        start: datetime | int,
        end: datetime | int,
        *,
        rate_per_second: int = 10,
        dry_run: bool = False,
    ) -> Backfill:
        """Run the slots from `start` on and before `end` that have come and had no run of their own, each once.

        A durable job of the schedule: so many a second (1 to 1000) start, one at a time unless `overlap` is `allow`,
        and those that come by themselves go first. Slots that fired, or are dead, are left out; so are those of which
        it is not known any more. At most 100,000 slots; backfills of a schedule come one after the other. With
        `dry_run` they are only counted. NotFoundError, InvalidInputError; ConflictError if the schedule has stopped.
        """
        first, last = arguments.instant_ms(start, "start"), arguments.instant_ms(end, "end")
        return await self._port.backfill(name, start=first, end=last, rate_per_second=rate_per_second, dry_run=dry_run)

    async def backfills(self, name: str) -> Sequence[Backfill]:
        """Return the backfills of a schedule and how far they have come, the newest first, at most a hundred."""
        return await self._port.backfills(name)

    async def backfill_stop(self, name: str, backfill_id: str) -> bool:
        """Stop a backfill; what it has started goes on. False if it had ended, or there is none."""
        return await self._port.backfill_stop(name, backfill_id)

    async def preview(
        self, cron: str, *, timezone: str | ZoneInfo = "UTC", start: datetime | int | None = None, count: int = PREVIEW
    ) -> records.CronPreview:
        """Return what an expression comes to after `start` (default: now). Errors as for `put`; `count` 1 to 100."""
        zone: Any = timezone.key if isinstance(timezone, ZoneInfo) and timezone.key else timezone
        after = None if start is None else arguments.instant_ms(start, "start")
        return await self._port.preview(cron, timezone=zone, start=after, count=count)


def _spread(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments of `put` with the parts of a job that stands in the place of its path."""
    job = given.get("path")
    if not isinstance(job, Job):
        return given
    if job.at is not None or job.after is not None:
        raise InvalidInputError("path: the job of a schedule has no instant of its own, its slots say when it is due")
    if given.get("args", LEFT_OUT) is not LEFT_OUT or given.get("workflow") is not None:
        raise InvalidInputError("path: a job has args and a target of its own: give no others beside it")
    options = {name: value for name, value in job.options.items() if name != "keep_result"}  # nobody waits for it
    return {**options, **given, "path": job.path, "workflow": job.workflow, "args": job.args}


def _initiator(known: dict[str, Any]) -> tuple[str, str]:
    """Take the user out of the options."""
    user = known.pop("initiator", None)
    return "", "" if user is None else arguments.target(user, "initiator")
