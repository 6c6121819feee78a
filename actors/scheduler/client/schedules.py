"""`jobs.schedules`: recurring definitions of one scheduler."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from tocsin.actors.cron.builder import Declared
from tocsin.actors.cron.preview import MAX_COUNT, Upcoming, preview
from tocsin.actors.cron.rule import Rule
from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.client.chain_requests import Following, Job
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.schedule_records import (
    CronPreview,
    OccurrencePage,
    Registration,
    SchedulePage,
    SchedulePut,
    ScheduleRecord,
    TriggeredRun,
)
from tocsin.actors.scheduler.model.schedule_rows import jitter_of, request_hash
from tocsin.actors.scheduler.queries import schedules as reading
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.schedules.declared import arguments_of, definition_of
from tocsin.actors.scheduler.schedules.definition import MAX_SET, REVISION, new_schedule, schedule_name
from tocsin.actors.scheduler.schedules.events import (
    DeleteSchedule,
    LeaveSchedules,
    PutSchedules,
    RegisterSchedules,
    SetSchedulePaused,
    TriggerSchedule,
)
from tocsin.actors.scheduler.schedules.register import owned_name
from tocsin.actors.scheduler.schedules.schedule import Schedule
from tocsin.actors.scheduler.schedules.series import next_of
from tocsin.dispatch.instants import show
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.values import LEFT_OUT
from tocsin.dispatch.words import word
from tocsin.errors import (
    InvalidInputError,
    NotFoundError,
    PayloadTooLargeError,
    RequestError,
    StoreFull,
)

T = TypeVar("T")
GIVE_WAY: Final = 25
PREVIEW: Final = 5
PREVIEWED_AT_ONCE: Final = 10
CANCELLED_AT_ONCE: Final = 100
REQUEST_KEY_MAX: Final = 255
Duration = timedelta | float | str


class Schedules(Following):
    """Costs nothing until used. Durations: `timedelta`, seconds, or text like "5m"; instants as for `run_at`."""

    async def put(
        self,
        name: str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        at: datetime | int | None = None,
        timezone: str | ZoneInfo = "UTC",
        workflow: str | None = None,
        pool: str | None = None,
        max_concurrency: int | None = None,
        priority: int | None = None,
        labels: Sequence[str] | None = None,
        shard_key: str | None = None,
        retry: Retry | None = None,
        timeout_ms: int | None = None,
        expires_after: Duration | None = None,
        queue: str | None = None,
        then: Sequence[Job] | None = None,
        misfire: str = "one",
        grace: Duration = 60,
        catch_up_limit: int | None = 100,
        overlap: str = "skip",
        jitter: Duration = 0,
        paused: bool | None = None,
        revision: int | None = None,
        initiator: str | None = None,
    ) -> SchedulePut:
        """Define, or define anew: exactly one of `cron`, `every` (1 s at least) and `at`, and of `path` and `workflow`.

        What is left out has its default, but for `paused`, which then stays as it is. The same again changes nothing
        and keeps the next slot. `misfire` (`skip`, `one`, `all`) says what becomes of slots seen later than `grace`;
        `overlap` (`skip`, `queue`, `allow`) of those that come while an occurrence still runs or retries. Slots start
        up to `jitter` later, at the same offset every time. `revision`: the one that was read (0: there is none);
        ConflictError if it is not the latest. `initiator` is that of the occurrences. InvalidCronError,
        UnknownTimezoneError, InvalidInputError for what cannot be.
        """
        given = {
            "cron": cron, "every_ms": _ms(every, "every"), "at": at, "timezone": timezone, "function_path": path,
            "workflow": workflow, "pool": pool, "max_concurrency": max_concurrency, "priority": priority,
            "labels": labels, "shard_key": shard_key, "retry": retry, "timeout_ms": timeout_ms,
            "expires_after_ms": _ms(expires_after, "expires_after"), "misfire": misfire,
            "grace_ms": _ms(grace, "grace"), "catch_up_limit": catch_up_limit, "overlap": overlap,
            "jitter_ms": _ms(jitter, "jitter"), "queue": queue,
            "then": None if then is None else self._followers(then),
        }  # fmt: skip
        new = new_schedule(
            name,
            args=arguments.encode_args(args),
            paused=paused,
            revision=revision,
            initiator=self._initiated_by(initiator),
            given=given,
        )
        return await self.put_checked(self._fitting(new))

    def _fitting(self, new: NewSchedule) -> NewSchedule:
        """InvalidInputError if the host's catalog has no such path, or other args for it."""
        self._service.catalog_check.check(new.definition, new.definition.args + b"".join(new.rest_of_args))
        return new

    def _initiated_by(self, user: str | None) -> tuple[str, str]:
        return self._initiator if user is None else ("", arguments.target(user, "initiator"))

    def new_schedule(
        self, name: str, *, raw_args: bytes, given: Mapping[str, Any], paused: object, revision: object
    ) -> NewSchedule:
        """A checked definition from wire values; for the HTTP face."""
        new = new_schedule(
            name, args=arguments.raw_args(raw_args), paused=paused, revision=revision,
            initiator=self._initiator, given=given,
        )  # fmt: skip
        return self._fitting(new)

    async def put_checked(self, new: NewSchedule) -> SchedulePut:
        """For the HTTP face."""
        self._check_ready([new])
        (made,) = _answered(await self._call(PutSchedules([new])))
        return self._put(made)

    async def register(
        self,
        owner: str,
        schedules: Iterable[Declared | tuple[str, Mapping[str, Any]]],
        *,
        prune: bool = False,
    ) -> Registration:
        """An owner's whole set in one commit: a `Cron`, or names with the arguments of `put`.

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
        made, token = _answered(await self._call(RegisterSchedules(owner, news)))
        left = await self._leave(owner, frozenset(names), token, prune)
        orphaned, removed = ([], left) if prune else (left, [])
        puts: list[SchedulePut] = []
        for schedule in made:
            puts.append(self._put(schedule))
            if not len(puts) % GIVE_WAY:
                await asyncio.sleep(0)
        return Registration(puts, orphaned, removed)

    async def _leave(self, owner: str, names: frozenset[str], token: str, prune: bool) -> Sequence[str]:
        """What the set leaves out, in pages: there may be more than one commit holds."""
        left: list[str] = []
        start: str | None = None
        while True:
            page, start = _answered(await self._call(LeaveSchedules(owner, names, token, prune, start)))
            left += page
            if start is None:
                return left

    def _of_set(self, owner: str, name: str, given: Mapping[str, Any]) -> NewSchedule:
        try:
            known = definition_of(given)
            if (then := known.get("then")) is not None:
                known["then"] = self._followers(then)
            initiator = self._initiated_by(known.pop("initiator", None))
            new = new_schedule(
                owned_name(owner, name), args=arguments.encode_args(known.pop("args", LEFT_OUT)),
                paused=known.pop("paused", None), owner=owner, initiator=initiator, given=known,
            )  # fmt: skip
            return self._fitting(new)
        except RequestError as error:
            if error.message.startswith(f"schedule {name!r}"):
                raise
            raise type(error)(f"schedule {name!r}: {error.message}", **error.details) from None

    async def get(self, name: str) -> ScheduleRecord | None:
        return await reading.get(self._view(), schedule_name(name))

    async def list(self, *, cursor: str | None = None, limit: int = 100) -> SchedulePage:
        """A page by name; `limit` 1 to 1000."""
        return await reading.page(self._view(), self.name, self._limit(limit), cursor)

    async def occurrences(self, name: str, *, cursor: str | None = None, limit: int = 100) -> OccurrencePage:
        """What became of its slots, the newest first; the last thousand are kept, also when it is deleted (30 days).

        As `history`, an empty page for a name that never was one.
        """
        return await reading.occurrences(self._view(), self.name, schedule_name(name), self._limit(limit), cursor)

    async def pause(self, name: str, *, revision: int | None = None) -> ScheduleRecord:
        """Its slots pass as skipped until it is resumed. NotFoundError, or ConflictError for a stale revision."""
        return await self._set_paused(name, True, revision)

    async def resume(self, name: str, *, revision: int | None = None) -> ScheduleRecord:
        """From the next slot on."""
        return await self._set_paused(name, False, revision)

    async def _set_paused(self, name: str, paused: bool, revision: int | None) -> ScheduleRecord:
        await self._one(name, SetSchedulePaused(schedule_name(name), paused, _revision(revision)))
        record = await self.get(name)
        if record is None:
            raise NotFoundError(f"there is no schedule {name!r}")
        return record

    async def delete(self, name: str, *, revision: int | None = None, cancel_pending: bool = False) -> bool:
        """Its occurrences go on, unless `cancel_pending`. False if there was none.

        Asked again with `cancel_pending`, it cancels what a cut connection had left of them.
        """
        deleted = True
        try:
            await self._one(name, DeleteSchedule(schedule_name(name), _revision(revision)))
        except NotFoundError:
            deleted = False
        if cancel_pending:
            live = await reading.live_jobs(self._view(), name)
            for start in range(0, len(live), CANCELLED_AT_ONCE):
                await self._cancel_many(live[start : start + CANCELLED_AT_ONCE])
        return deleted

    async def trigger(self, name: str, request_key: str | None = None) -> TriggeredRun:
        """One occurrence now, also when paused. The same key gives the same occurrence; without one it is a new one."""
        if request_key is None:
            request = request_hash(f"{self._service.random.getrandbits(128):032x}")
        else:
            request = request_hash(_request_key(request_key))
        self._check_ready(())
        known = await self.get(name) if self._looks_before_trigger() else None
        if known is not None:
            self._check_origin({"queue": known.queue})
            if not isinstance(known.raw_args, msgspec.UnsetType):  # else its job dies of that
                self._service.catalog_check.check(
                    known, bytes(known.raw_args)
                )  # what it was defined with may be no more
        made = await self._one(name, TriggerSchedule(schedule_name(name), request))
        return TriggeredRun(name=made.name, slot=made.slot, id=made.job_id or "", created=made.created)

    async def preview(
        self, cron: str, *, timezone: str | ZoneInfo = "UTC", start: datetime | int | None = None, count: int = PREVIEW
    ) -> CronPreview:
        """What an expression comes to after `start` (now, if left out). The same errors as `put`; `count` 1 to 100."""
        after = self._now() if start is None else arguments.instant_ms(start, "start")
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
        return CronPreview(next=[line.at_ms for line in found], notes=[line.note for line in found])

    async def _one(self, name: str, event: Event[T | RequestError]) -> T:
        try:
            answer = await self._call(event, create=False)
        except NotFoundError:
            raise NotFoundError(f"there is no schedule {name!r}") from None
        return _answered(answer)

    def _put(self, made: Schedule) -> SchedulePut:
        cursor, jitter = made.cursor, jitter_of(made.name, made.definition.jitter_ms)
        coming = _coming(next_of(made.definition), cursor.last, PREVIEW)
        running = not cursor.paused and cursor.next_slot is not None
        return SchedulePut(
            name=made.name,
            revision=cursor.revision,
            next_at=coming[0] + jitter if running and coming else None,
            preview=[slot + jitter for slot in coming],
        )

    def _looks_before_trigger(self) -> bool:
        """Whether the definition decides if it may run now."""
        return self._service.catalog_check.catalog is not None or not self._service.has_origin()

    def _check_ready(self, news: Sequence[NewSchedule]) -> None:
        for new in news:
            self._check_origin({"queue": new.definition.queue or None})
        provider = self._service.host.provider
        if provider.full:
            raise StoreFull(f"{provider.trouble}; what is under way goes on")


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


def _ms(value: Duration | None, name: str) -> int | None:
    return None if value is None else arguments.duration_ms(value, name)


def _revision(value: int | None) -> int | None:
    return None if value is None else arguments.integer(value, "revision", *REVISION)
