"""Jobs and schedules: found by what a test names, and shown in words where an assertion fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.records import Record
from tocsin.actors.scheduler.model.schedule_records import ScheduleRecord
from tocsin.dispatch.durations import Duration, duration_ms, span
from tocsin.dispatch.instants import instant_ms
from tocsin.errors import InvalidInputError

ANY: Final = object()
"""Any args."""
SHOWN: Final = 20
ARGS_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job as a test names it; None: whatever it is."""

    path: str | None = None
    workflow: str | None = None
    args: Any = ANY
    """The args themselves, or a function of them that returns whether they fit."""
    id: str | None = None
    at: int | None = None
    queue: str | None = None
    pool: str | None = None
    label: str | None = None
    scheduler: str | None = None

    def fits(self, instance: str, job: Record) -> bool:
        """Return whether this is such a job."""
        named = (
            (self.path, job.function_path),
            (self.workflow, job.workflow),
            (self.id, job.id),
            (self.at, job.next_attempt_at),
            (self.queue, job.queue),
            (self.pool, job.pool),
            (self.scheduler, instance),
        )
        if any(wanted is not None and wanted != found for wanted, found in named):
            return False
        if self.label is not None and self.label not in (job.labels or ()):
            return False
        if self.args is ANY:
            return True
        return bool(self.args(job.args)) if callable(self.args) else bool(self.args == job.args)

    def __str__(self) -> str:
        said = [(name, getattr(self, name)) for name in self.__dataclass_fields__]
        parts = [
            f"{name}={_instant(value) if name == 'at' else _short(value)}"
            for name, value in said
            if value is not None and value is not ANY
        ]
        return f"job with {', '.join(parts)}" if parts else "job"


def wanted(named: Mapping[str, Any], now_ms: int) -> Wanted:
    """Return what a test names. `after` is a delay from now, `at` an instant. InvalidInputError for what is neither."""
    given = dict(named)
    at: object = given.pop("at", None)
    after: Duration | None = given.pop("after", None)
    unknown = given.keys() - Wanted.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(sorted({*Wanted.__dataclass_fields__, "after"}))
        raise InvalidInputError(f"unknown {', '.join(sorted(unknown))}: a job is named by {known}")
    if at is not None and after is not None:
        raise InvalidInputError("give at or after, not both")
    due = None if at is None else instant_ms(at, "at")
    return Wanted(**given, at=due if after is None else now_ms + duration_ms(after, "after"))


@dataclass(frozen=True, slots=True)
class Everything:
    """All live jobs of some schedulers by their next attempt, and their schedules."""

    jobs: Sequence[tuple[str, Record]]
    schedules: Sequence[tuple[str, ScheduleRecord]]

    def chosen(self, what: Wanted) -> list[Record]:
        """Return the jobs that fit."""
        return [job for instance, job in self.jobs if what.fits(instance, job)]

    def in_words(self, now_ms: int) -> str:
        """Show all of it, one a line."""
        lines = [_job(instance, job, now_ms) for instance, job in self.jobs]
        lines += [_schedule(instance, one, now_ms) for instance, one in self.schedules]
        more = f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        shown = "".join(f"\n  {line}" for line in lines[:SHOWN])
        return f"At {_instant(now_ms)} there is:{shown}{more}" if lines else f"At {_instant(now_ms)} there is nothing."


async def everything(schedulers: Iterable[Scheduler], *, schedules: bool = True) -> Everything:
    """Read all of it."""
    jobs: list[tuple[str, Record]] = []
    recurring: list[tuple[str, ScheduleRecord]] = []
    for one in schedulers:
        jobs += [(one.name, job) async for job in one.list_all()]
        if schedules:
            recurring += [(one.name, each) async for each in _schedules(one)]
    jobs.sort(key=lambda pair: (pair[1].next_attempt_at or 0, pair[0], pair[1].id))
    return Everything(jobs, recurring)


async def everything_dead(schedulers: Iterable[Scheduler]) -> Everything:
    """Read all dead jobs, in the order in which they died."""
    jobs: list[tuple[str, Record]] = []
    for one in schedulers:
        cursor: str | None = None
        truncated = True
        while truncated:
            page = await one.dead(cursor=cursor, limit=1000)
            jobs += [(one.name, job) for job in page.records]
            cursor, truncated = page.cursor, page.truncated
    jobs.sort(key=lambda pair: pair[1].parked_at or 0)
    return Everything(jobs, ())


async def _schedules(one: Scheduler) -> AsyncIterator[ScheduleRecord]:
    cursor: str | None = None
    while True:
        page = await one.schedules.list(cursor=cursor, limit=1000)
        for each in page.schedules:
            yield each
        if not page.truncated:
            return
        cursor = page.cursor


def check_there(found: Everything, what: Wanted, count: int | None, now_ms: int) -> list[Record]:
    """Return the jobs that fit; AssertionError if there are none, or not `count`."""
    jobs = found.chosen(what)
    if jobs and (count is None or len(jobs) == count):
        return jobs
    how_many = "no" if not jobs else str(len(jobs))
    meant = "" if count is None else f", {count} expected"
    hint = _hint(found, what)
    raise AssertionError(f"{how_many} {what} is scheduled{meant}.{hint} {found.in_words(now_ms)}")


def check_not_there(found: Everything, what: Wanted, now_ms: int) -> None:
    """Raise AssertionError if any job fits."""
    if jobs := found.chosen(what):
        raise AssertionError(f"{len(jobs)} {what} {'is' if len(jobs) == 1 else 'are'} scheduled. "
                             f"{found.in_words(now_ms)}")  # fmt: skip


def _hint(found: Everything, what: Wanted) -> str:
    """Say what is meant, perhaps: a slot of a schedule becomes a job when it is due."""
    for _, one in found.schedules:
        if what.path is not None and what.path == one.function_path:
            return f" Schedule {one.name!r} makes one when it is due."
    return ""


def _job(instance: str, job: Record, now_ms: int) -> str:
    target = job.function_path or f"workflow {job.workflow}"
    where = [f"{name} {value}" for name, value in (("queue", job.queue), ("pool", job.pool)) if value is not None]
    tried = [f"after {job.attempts} failures"] if job.attempts else []
    due = job.next_attempt_at
    when = [job.state] if due is None else [job.state, _when(due, now_ms)]
    more = ", ".join([*when, *where, *tried])
    return f"{target} {_short(job.args)} {more} (id {job.id}{_of(instance)})"


def _schedule(instance: str, one: ScheduleRecord, now_ms: int) -> str:
    target = one.function_path or f"workflow {one.workflow}"
    upcoming = one.state if one.next_at is None else f"{one.state}, next {_when(one.next_at, now_ms)}"
    return f"schedule {one.name}: {target} {_short(one.args)} {upcoming}{_of(instance)}"


def _of(instance: str) -> str:
    return "" if instance == "default" else f", scheduler {instance}"


def _when(due: int, now_ms: int) -> str:
    ahead = f"in {span(due - now_ms)}" if due > now_ms else "now" if due == now_ms else f"since {span(now_ms - due)}"
    return f"at {_instant(due)} ({ahead})"


def _instant(epoch_ms: int) -> str:
    return moment(epoch_ms).isoformat(sep=" ", timespec="milliseconds").replace(".000+", "+").replace("+00:00", "Z")


def moment(epoch_ms: int) -> datetime:
    """Return the instant as an aware datetime in UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=epoch_ms)


def _short(value: object) -> str:
    if callable(value):
        return f"<{getattr(value, '__name__', 'a function')}>"
    text = repr(value)
    return text if len(text) <= ARGS_SHOWN else f"{text[:ARGS_SHOWN]}…"
