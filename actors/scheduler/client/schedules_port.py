"""Schedules from wire values: defined, registered in sets, held, run by hand and removed; and what a rule comes to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from tocsin.actors.cron.preview import MAX_COUNT, Upcoming, preview
from tocsin.actors.cron.rule import Rule
from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.client.backfills_port import LocalBackfills
from tocsin.actors.scheduler.client.instance import Instance, page_limit
from tocsin.actors.scheduler.client.job_checks import JobChecks
from tocsin.actors.scheduler.model import schedule_records as records
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.asked_by import PYTHON, AskedBy
from tocsin.actors.scheduler.model.schedule_rows import jitter_of, request_hash
from tocsin.actors.scheduler.queries import schedules as reading
from tocsin.actors.scheduler.schedules import events
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.schedules.definition import REVISION, schedule_name
from tocsin.actors.scheduler.schedules.schedule import Schedule
from tocsin.actors.scheduler.schedules.series import next_of
from tocsin.dispatch.job_options import place_in
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError, NotFoundError, PayloadTooLargeError, RequestError, StoreFull

T = TypeVar("T")
GIVE_WAY: Final = 25
PREVIEW: Final = 5
PREVIEWED_AT_ONCE: Final = 10
CANCELLED_AT_ONCE: Final = 100
REQUEST_KEY_MAX: Final = 255


class LocalSchedules(LocalBackfills):
    """Defines and runs the schedules of one scheduler."""

    def __init__(self, instance: Instance, checks: JobChecks, who: AskedBy = PYTHON) -> None:
        super().__init__(instance, who)
        self._checks = checks

    async def put(self, new: NewSchedule) -> records.SchedulePut:
        """Define a schedule, or define it anew."""
        self._check_ready([new])
        (made,) = _answered(await self._instance.call(events.PutSchedules([new], self._who)))
        return _put(made)

    async def register(self, owner: str, news: Sequence[NewSchedule], *, prune: bool) -> records.Registration:
        """Define an owner's whole set in one commit; what it leaves out is reported, or removed with `prune`."""
        names = Counter(new.name for new in news)
        if doubled := [name for name, count in names.items() if count > 1]:
            raise InvalidInputError(f"schedules: the name {doubled[0]!r} is given twice")
        size = sum(len(new.definition.args) + sum(map(len, new.rest_of_args)) for new in news)
        if size > arguments.MAX_BATCH_BYTES:
            raise PayloadTooLargeError(
                f"the args of this set are {size} bytes, at most {arguments.MAX_BATCH_BYTES} fit one commit",
                limit=arguments.MAX_BATCH_BYTES,
            )
        self._check_ready(news)
        made, token = _answered(await self._instance.call(events.RegisterSchedules(owner, news, self._who)))
        left = await self._leave(owner, frozenset(names), token, prune)
        orphaned, removed = ([], left) if prune else (left, [])
        puts: list[records.SchedulePut] = []
        for schedule in made:
            puts.append(_put(schedule))
            if not len(puts) % GIVE_WAY:
                await asyncio.sleep(0)
        return records.Registration(puts, orphaned, removed)

    async def _leave(self, owner: str, names: frozenset[str], token: str, prune: bool) -> Sequence[str]:
        """Return what the set leaves out, asked for in pages: there may be more than one commit holds."""
        left: list[str] = []
        start: str | None = None
        while True:
            page, start = _answered(
                await self._instance.call(events.LeaveSchedules(owner, names, token, prune, start, self._who))
            )
            left += page
            if start is None:
                return left

    async def get(self, name: str) -> records.ScheduleRecord | None:
        """Return the schedule of that name, or None."""
        return await reading.get(self._instance.view(), schedule_name(name))

    async def list(self, *, cursor: str | None, limit: int) -> records.SchedulePage:
        """Return a page by name."""
        return await reading.page(self._instance.view(), self._instance.name, page_limit(limit), cursor)

    async def occurrences(self, name: str, *, cursor: str | None, limit: int) -> records.OccurrencePage:
        """Return what became of its slots, the newest first; empty for a name that never was one."""
        here = self._instance
        return await reading.occurrences(here.view(), here.name, schedule_name(name), page_limit(limit), cursor)

    async def pause(self, name: str, *, revision: int | None) -> records.ScheduleRecord:
        """Let its slots pass as skipped. NotFoundError, or ConflictError for a stale revision."""
        return await self._set_paused(name, True, revision)

    async def resume(self, name: str, *, revision: int | None) -> records.ScheduleRecord:
        """Let it fire again, from the next slot on."""
        return await self._set_paused(name, False, revision)

    async def _set_paused(self, name: str, paused: bool, revision: int | None) -> records.ScheduleRecord:
        await self._one(name, events.SetSchedulePaused(schedule_name(name), paused, _revision(revision), self._who))
        record = await self.get(name)
        if record is None:
            raise NotFoundError(f"there is no schedule {name!r}")
        return record

    async def delete(self, name: str, *, revision: int | None, cancel_pending: bool) -> bool:
        """Remove it, and cancel its occurrences with `cancel_pending`. False if there was none."""
        deleted = True
        try:
            await self._one(name, events.DeleteSchedule(schedule_name(name), _revision(revision), self._who))
        except NotFoundError:
            deleted = False
        if cancel_pending:
            act = self._instance.act("schedules.delete", self._who, name, {"cancelPending": True})
            live = await reading.live_jobs(self._instance.view(), name)
            for start in range(0, len(live), CANCELLED_AT_ONCE):
                await self._instance.cancel_many(live[start : start + CANCELLED_AT_ONCE], act)
        return deleted

    async def trigger(self, name: str, request_key: str | None) -> records.TriggeredRun:
        """Start one occurrence now, also when paused; the same key gives the same occurrence."""
        if request_key is None:
            request = request_hash(self._instance.op or f"{self._instance.host.random.getrandbits(128):032x}")
        else:
            request = request_hash(_request_key(request_key))
        self._check_ready(())
        known = await self.get(name) if self._looks_before_trigger() else None
        if known is not None:
            self._checks.check_place(known.queue, known.origin, known.url)
            if not isinstance(known.raw_args, msgspec.UnsetType):  # else its job dies of that
                self._checks.catalog.check(known, bytes(known.raw_args))  # the catalog may have changed since
        made = await self._one(name, events.TriggerSchedule(schedule_name(name), request, self._who))
        created = made.created or request_key is None  # a key that was made here is of this call, though it come twice
        return records.TriggeredRun(name=made.name, slot=made.slot, id=made.job_id or "", created=created)

    async def preview(self, cron: str, *, timezone: str, start: int | None, count: int) -> records.CronPreview:
        """Return what an expression comes to after `start` (None: now)."""
        after = self._instance.now_ms() if start is None else arguments.instant_ms(start, "start")
        left = arguments.integer(count, "count", 1, MAX_COUNT)
        rule = Rule(cron, timezone)
        found: list[Upcoming] = []
        while left:  # in parts, for the loop has others to serve
            lines = preview(rule, after, min(left, PREVIEWED_AT_ONCE))
            found += lines
            if len(lines) < min(left, PREVIEWED_AT_ONCE):
                break
            left, after = left - len(lines), lines[-1].at_ms
            await asyncio.sleep(0)
        return records.CronPreview(next=[line.at_ms for line in found], notes=[line.note for line in found])

    async def _one(self, name: str, event: Event[T | RequestError]) -> T:
        try:
            answer = await self._instance.call(event, create=False)
        except NotFoundError:
            raise NotFoundError(f"there is no schedule {name!r}") from None
        return _answered(answer)

    def _looks_before_trigger(self) -> bool:
        """Tell whether the definition decides if it may run now."""
        return self._checks.catalog.catalog is not None or not self._checks.has_origin()

    def _check_ready(self, news: Sequence[NewSchedule]) -> None:
        for new in news:
            self._checks.check_place(new.definition.queue or None, **place_in(new.definition.extras))
        provider = self._instance.store()
        if provider.full:
            raise StoreFull(f"{provider.trouble}; what is under way goes on")


def _put(made: Schedule) -> records.SchedulePut:
    cursor, jitter = made.cursor, jitter_of(made.name, made.definition.jitter_ms)
    coming = _coming(next_of(made.definition), cursor.last, PREVIEW)
    running = not cursor.paused and cursor.next_slot is not None
    return records.SchedulePut(
        name=made.name,
        revision=cursor.revision,
        next_at=coming[0] + jitter if running and coming else None,
        preview=[slot + jitter for slot in coming],
    )


def _answered(answer: T | RequestError) -> T:
    if isinstance(answer, RequestError):
        raise answer
    return answer


def _coming(following: Any, after: int, count: int) -> Sequence[int]:
    found: list[int] = []
    slot: int | None = after
    while len(found) < count and slot is not None and (slot := following(slot)) is not None:
        found.append(slot)
    return found


def _request_key(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= REQUEST_KEY_MAX:
        raise InvalidInputError(f"{word('request_key')} must be a text of 1 to {REQUEST_KEY_MAX} characters")
    return arguments.whole_text(value, word("request_key"))


def _revision(value: int | None) -> int | None:
    return None if value is None else arguments.integer(value, "revision", *REVISION)
