"""`SyncSchedules`: the schedules of one scheduler for code that blocks.

Written by scripts/sync_client.py of `Schedules`: change that, and run the script."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack
from zoneinfo import ZoneInfo

from tocsin.actors.client.blocking import Blocking
from tocsin.actors.cron.builder import Declared
from tocsin.actors.scheduler.client.job_checks import Job, OccurrenceOptions
from tocsin.actors.scheduler.client.schedules import Schedules
from tocsin.actors.scheduler.client.schedules_port import PREVIEW
from tocsin.actors.scheduler.model import schedule_records as records
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.dispatch.durations import Duration
from tocsin.dispatch.values import LEFT_OUT

T = TypeVar("T")


class SyncSchedules:
    """`Schedules` whose methods return when they are answered."""

    def __init__(self, blocking: Blocking, name: str) -> None:
        self._blocking, self._name = blocking, name

    def _call(self, ask: Callable[[Schedules], Coroutine[Any, Any, T]]) -> T:
        return self._blocking.call(lambda client: ask(client.scheduler(self._name).schedules))

    def put(
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
        return self._call(
            lambda it: it.put(
                name,
                path,
                args,
                workflow=workflow,
                cron=cron,
                every=every,
                at=at,
                timezone=timezone,
                misfire=misfire,
                grace=grace,
                catch_up_limit=catch_up_limit,
                overlap=overlap,
                jitter=jitter,
                paused=paused,
                revision=revision,
                **options,
            )
        )

    def register(
        self, owner: str, schedules: Iterable[Declared | tuple[str, Mapping[str, Any]]], *, prune: bool = False
    ) -> records.Registration:
        """Define an owner's whole set in one commit: a `Cron`, or names with the arguments of `put`.

        Names get the owner's before them: `app:report`. ConflictError, and nothing is changed, if one of them is held
        by somebody else. What the owner has registered before and does not name any more is reported as orphaned and
        goes on, or with `prune` is removed. The same set again changes nothing.
        """
        return self._call(lambda it: it.register(owner, schedules, prune=prune))

    def get(self, name: str) -> records.ScheduleRecord | None:
        """Return the schedule of that name, or None."""
        return self._call(lambda it: it.get(name))

    def list(self, *, cursor: str | None = None, limit: int = 100) -> records.SchedulePage:
        """Return a page by name; `limit` 1 to 1000."""
        return self._call(lambda it: it.list(cursor=cursor, limit=limit))

    def occurrences(self, name: str, *, cursor: str | None = None, limit: int = 100) -> records.OccurrencePage:
        """Return what became of its slots, the newest first. The last thousand are kept, 30 days beyond its end.

        As `history`, an empty page for a name that never was one.
        """
        return self._call(lambda it: it.occurrences(name, cursor=cursor, limit=limit))

    def pause(self, name: str, *, revision: int | None = None) -> records.ScheduleRecord:
        """Let its slots pass as skipped until it is resumed. NotFoundError, or ConflictError for a stale revision."""
        return self._call(lambda it: it.pause(name, revision=revision))

    def resume(self, name: str, *, revision: int | None = None) -> records.ScheduleRecord:
        """Let it fire again, from the next slot on."""
        return self._call(lambda it: it.resume(name, revision=revision))

    def delete(self, name: str, *, revision: int | None = None, cancel_pending: bool = False) -> bool:
        """Remove the schedule; its occurrences go on, unless `cancel_pending`. False if there was none.

        Asked again with `cancel_pending`, it cancels what a cut connection had left of them.
        """
        return self._call(lambda it: it.delete(name, revision=revision, cancel_pending=cancel_pending))

    def trigger(self, name: str, request_key: str | None = None) -> records.TriggeredRun:
        """Start one occurrence now, also when paused. The same key gives the same one; without a key it is new."""
        return self._call(lambda it: it.trigger(name, request_key))

    def backfill(
        self, name: str, start: datetime | int, end: datetime | int, *, rate_per_second: int = 10, dry_run: bool = False
    ) -> Backfill:
        """Run the slots from `start` on and before `end` that have come and had no run of their own, each once.

        A durable job of the schedule: so many a second (1 to 1000) start, one at a time unless `overlap` is `allow`,
        and those that come by themselves go first. Slots that fired, or are dead, are left out; so are those of which
        it is not known any more. At most 100,000 slots; backfills of a schedule come one after the other. With
        `dry_run` they are only counted. NotFoundError, InvalidInputError; ConflictError if the schedule has stopped.
        """
        return self._call(lambda it: it.backfill(name, start, end, rate_per_second=rate_per_second, dry_run=dry_run))

    def backfills(self, name: str) -> Sequence[Backfill]:
        """Return the backfills of a schedule and how far they have come, the newest first, at most a hundred."""
        return self._call(lambda it: it.backfills(name))

    def backfill_stop(self, name: str, backfill_id: str) -> bool:
        """Stop a backfill; what it has started goes on. False if it had ended, or there is none."""
        return self._call(lambda it: it.backfill_stop(name, backfill_id))

    def preview(
        self, cron: str, *, timezone: str | ZoneInfo = "UTC", start: datetime | int | None = None, count: int = PREVIEW
    ) -> records.CronPreview:
        """Return what an expression comes to after `start` (default: now). Errors as for `put`; `count` 1 to 100."""
        return self._call(lambda it: it.preview(cron, timezone=timezone, start=start, count=count))
