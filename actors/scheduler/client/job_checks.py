"""Validate a requested job; jobs, schedules and the outbox share it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from sys import modules
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck
from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.groups import new_group
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.actors.scheduler.schedules.definition import new_schedule
from tocsin.dispatch.durations import Duration
from tocsin.dispatch.instants import show
from tocsin.dispatch.job_options import LOCAL, MEMBERS, OneJobOptions, SharedOptions
from tocsin.dispatch.trace_context import Trace
from tocsin.dispatch.tracing import API, Tracing
from tocsin.dispatch.url_list import UrlList, check_job_url
from tocsin.dispatch.words import SPEAKS_JSON, meant, word
from tocsin.errors import InvalidInputError, OriginNotConfiguredError, TocsinError

ASKED: Final = frozenset({*MEMBERS, *LOCAL})
"""Options as Python callers name them."""
_CONVERTED: Final = frozenset({"keep_result", "max_wait", "throttle", "then", "on_dead", "group"})
"""Those that have another shape inside."""


class _Called(msgspec.Struct, frozen=True):
    path: str | None = None
    args: Any = {}


class Job(_Called, frozen=True, kw_only=True):
    """One job for `submit_many`: exactly one of `at`, `after` and `debounce`. All else that `run_at` takes by name
    stands in `options`, the id as well: `Job(path="a:b", after="5m", options={"id": "x", "queue": "q"})`. In a `then`
    it has no `at` and no id: it starts when the job before it is done, or `after` that."""

    at: datetime | int | None = None
    after: timedelta | float | str | None = None
    workflow: str | None = None
    options: Mapping[str, Any] = {}
    debounce: timedelta | float | str | None = None


class Group(msgspec.Struct, frozen=True):
    """A group that is made with the first job that names it, for the option `group`: `then` are the jobs that start
    when all its members have ended and none is dead, `on_dead` those that start, once, if some are. It is complete with
    `size` members, or when it is sealed."""

    name: str
    then: Sequence[Job] = ()
    on_dead: Sequence[Job] = ()
    size: int | None = None


class JobOptions(OneJobOptions, total=False):
    """Options of a job; as for `Scheduler.run_at`."""

    then: Sequence[Job] | None
    on_dead: Sequence[Job] | None
    group: str | Group | None


class OccurrenceOptions(SharedOptions, total=False):
    """Options of the occurrences of a schedule; as for `Schedules.put`."""

    then: Sequence[Job] | None
    on_dead: Sequence[Job] | None
    expires_after: Duration | None


class JobChecks:
    """Checks limits, the catalog, and that a callback has somewhere to go; mints ids."""

    def __init__(
        self,
        catalog: CatalogCheck,
        random: Random,
        now_ms: Callable[[], int],
        has_origin: Callable[[], bool] | None = None,
        *,
        origins: Collection[str] | None = None,
        urls: UrlList | None = None,
        instance: str = "",
        tracing: Tracing | None = None,
    ) -> None:
        """Without `has_origin` every callback is taken to have somewhere to go, and without `origins` every origin that
        a job names to be there, and without `urls` every URL to be on the list. `instance` is named in spans."""
        self.origins, self.urls = origins, urls
        self.instance, self._tracing = instance, tracing or Tracing()
        self.catalog, self.now_ms = catalog, now_ms
        self._mint, self._has_origin = arguments.Minting(random).next, has_origin

    knows_now = True
    """False where `now_ms` is not the instance's clock: another process has it, and checks again what depends on it."""
    delayed = staticmethod(arguments.delayed)
    """Returns the instant so long from now: of now (epoch ms), the delay (ms), and the argument's name."""

    def new_job(
        self,
        path: str | None,
        workflow: str | None,
        args: bytes,
        due: int,
        options: Mapping[str, Any],
        *,
        now: int,
        initiator: tuple[str, str] = ("", ""),
        relative: bool = False,
        trace: Trace | None = None,
        parent: Trace | None = None,
    ) -> NewJob:
        """Check a whole job; `options` have the names and shapes of `validation.OPTIONS`. `relative`: `due` is a delay
        from `now`. `trace` is what it was written down with; without it, the job has a span, if there are any here, in
        the current trace, or in that of `parent`, with which the request came."""
        self.check_place(options.get("queue"), options.get("origin"), options.get("url"))
        job: NewJob | None = None
        if workflow is None:
            job = arguments.simple_job(path, args, due, options, now, self._mint, initiator, relative)
        job = job or arguments.new_job(
            function_path=path, workflow=workflow, args=args, scheduled_for=due, enqueued_at=now,
            minted=self._mint(now), options=options, initiator=initiator, relative=relative,
            knows_now=self.knows_now,
        )  # fmt: skip
        if self.catalog.given:
            self.catalog.check(job.job, args)
        if trace is None:
            trace, row = parent, job.job
            if API in modules:
                trace = self._tracing.scheduled(self.instance, row.id, row.target, row.queue or None, parent)
        return job if trace is None else replace(job, job=replace(job.job, trace=trace))

    def trace_of(self, job: JobRow, parent: Trace | None = None) -> Trace | None:
        """Return the trace of a job that is scheduled here and now."""
        if API not in modules:
            return parent
        return self._tracing.scheduled(self.instance, job.id, job.target, job.queue or None, parent)

    def follower(
        self, path: str | None, workflow: str | None, args: bytes, delay_ms: int, options: Mapping[str, Any]
    ) -> Follower:
        """Check one job of a `then`."""
        self.check_place(options.get("queue"), options.get("origin"), options.get("url"))
        made = arguments.follower(
            function_path=path, workflow=workflow, args=args, delay_ms=delay_ms,
            minted=self._mint(self.now_ms()), options=options,
        )  # fmt: skip
        self.catalog.check(made.job, args)
        return made

    def check_place(self, queue: object = None, origin: object = None, url: object = None) -> None:
        """Raise OriginNotConfiguredError if this is a callback, of no queue, and has nowhere to go; InvalidInputError
        if it names an origin that this host has not, or a URL that it does not call."""
        if url is not None:
            self._check_url(url)
        elif origin is not None:
            self._check_named(origin)
        elif queue is None and self._has_origin is not None and not self._has_origin():
            how = "set TOCSIN_ORIGIN_URL at the server" if SPEAKS_JSON.get() else "open the host with origin=..."
            raise OriginNotConfiguredError(
                f"callbacks have nowhere to go: {how}, or give the job a queue, from which a worker pulls it"
            )

    def _check_url(self, url: object) -> None:
        name = word("url")
        if self.urls is None:
            check_job_url(url, name)
            return
        if not self.urls.entries:
            how = "set TOCSIN_ALLOW_URLS at the server" if SPEAKS_JSON.get() else "open it with allow_urls=[...]"
            raise InvalidInputError(f"{name}: this host calls no URLs of jobs: {how}")
        self.urls.check(url, name)

    def _check_named(self, named: object) -> None:
        if self.origins is None or named in self.origins or not isinstance(named, str):
            return
        if not self.origins:
            raise InvalidInputError(f"{word('origin')} {show(named)}: this host has no named origins")
        others = ", ".join(sorted(self.origins))
        raise InvalidInputError(
            f"there is no {word('origin')} {show(named)}{meant(named, self.origins)}: choose from {others}"
        )

    def ask_elsewhere(self, has_origin: Callable[[], bool | None]) -> None:
        """Ask another process first whether callbacks have somewhere to go; None: it cannot say, so this one does."""
        here = self._has_origin
        if here is not None:
            self._has_origin = lambda: here() if (there := has_origin()) is None else there

    def has_origin(self) -> bool:
        """Tell whether callbacks have somewhere to go."""
        return self._has_origin is None or self._has_origin()

    def check_schedule(self, new: NewSchedule) -> None:
        """Raise InvalidInputError if the catalog has no such path, or other args for it."""
        self.catalog.check(new.definition, new.definition.args + b"".join(new.rest_of_args))

    # ---- What requests give ----------------------------------------------------------------------

    def wire_job(
        self,
        *,
        function_path: str | None,
        workflow: str | None,
        raw_args: bytes,
        scheduled_for: int | None,
        delay_ms: int | None,
        options: Mapping[str, Any],
        initiator: tuple[str, str] = ("", ""),
        trace: Trace | None = None,
        parent: Trace | None = None,
    ) -> NewJob:
        """Check a job. `initiator` (token, user) asks for it; `options` may name another user. `trace`, `parent`: see
        `new_job`."""
        now = self.now_ms()
        if (debounce_ms := options.get("debounce_ms")) is None:
            due = self.wire_due(scheduled_for, delay_ms, now)
        elif scheduled_for is delay_ms is None:
            due = self.delayed(now, arguments.integer(debounce_ms, "debounce_ms", *arguments.DELAY_MS), "debounceMs")
        else:
            raise InvalidInputError("give exactly one of scheduledFor, delayMs and debounceMs")
        args, relative = arguments.raw_args(raw_args), scheduled_for is None
        return self.new_job(
            function_path, workflow, args, due, options, now=now, initiator=initiator, relative=relative, trace=trace,
            parent=parent,
        )  # fmt: skip

    def wire_follower(
        self, *, function_path: str | None, workflow: str | None, raw_args: bytes, delay_ms: int,
        options: Mapping[str, Any],
    ) -> Follower:  # fmt: skip
        """Check a job of a `then`."""
        return self.follower(function_path, workflow, arguments.raw_args(raw_args), delay_ms, options)

    def wire_schedule(
        self, name: str, *, raw_args: bytes, given: Mapping[str, Any], paused: object, revision: object,
        initiator: tuple[str, str], owner: str | None = None,
    ) -> NewSchedule:  # fmt: skip
        """Check a definition; `initiator` (token, user) is that of its occurrences."""
        new = new_schedule(
            name, args=arguments.raw_args(raw_args), paused=paused, revision=revision, initiator=initiator, given=given,
            owner=owner,
        )  # fmt: skip
        self.check_schedule(new)
        return new

    def wire_due(self, scheduled_for: Any, delay_ms: Any, now: int) -> int:
        """Return the instant that a request names: an epoch or a delay, one of them."""
        if (scheduled_for is None) == (delay_ms is None):
            raise InvalidInputError("give exactly one of scheduledFor and delayMs")
        if scheduled_for is not None:
            return arguments.epoch_ms(scheduled_for, "scheduledFor")
        return self.delayed(now, arguments.integer(delay_ms, "delayMs", *arguments.DELAY_MS), "delayMs")

    # ---- What Python callers give ----------------------------------------------------------------

    def jobs(self, jobs: Sequence[Job]) -> list[NewJob | TocsinError]:
        """Check jobs as they are written down; in the place of one that is refused stands why."""
        checked: list[NewJob | TocsinError] = []
        now = self.now_ms()
        for n, job in enumerate(jobs):
            try:
                checked.append(self.job(job, now))
            except TocsinError as error:
                checked.append(arguments.named(error, f"jobs[{n}]"))
        return checked

    def job(self, job: Job, now: int | None = None) -> NewJob:
        """Check a job as it is written down; `now` is the instant from which its delay counts, if not this one."""
        if not isinstance(job, Job):
            raise InvalidInputError(
                f"a job must be a Job, not {type(job).__name__}: Job(path=..., args=..., after=..., options={{...}})"
            )
        now = self.now_ms() if now is None else now
        options = self.options(job.options)
        if job.debounce is None:
            due = self.due(job.at, job.after, now)
        elif job.at is job.after is None:
            due, options = self.debounced(job.debounce, options, now)
        else:
            raise InvalidInputError("give exactly one of at, after and debounce")
        args, relative = arguments.encode_args(job.args), job.at is None
        return self.new_job(job.path, job.workflow, args, due, options, now=now, relative=relative)

    def debounced(self, debounce: object, options: Mapping[str, Any], now: int) -> tuple[int, Mapping[str, Any]]:
        """Return when a job is due that a further call puts off, and its options with that."""
        delay_ms = arguments.duration_ms(debounce, "debounce")
        return self.delayed(now, delay_ms, "debounce"), {**options, "debounce_ms": delay_ms}

    def due(self, at: datetime | int | None, after: Duration | None, now: int) -> int:
        """Return the instant that a caller names: itself or a delay, one of them."""
        if (at is None) == (after is None):
            raise InvalidInputError("give exactly one of at and after")
        if at is not None:
            return arguments.instant_ms(at, "at")
        return self.delayed(now, arguments.duration_ms(after, "after"), "after")

    def options(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options in the shapes that are checked: durations in ms, `then` and `on_dead` as they are
        stored."""
        if not given.keys() <= ASKED:  # also where it is None: a slip all the same
            unknown = min(map(str, given.keys() - ASKED))
            raise InvalidInputError(
                f"unknown option {show(unknown)}{meant(unknown, ASKED)}: choose from {', '.join(sorted(ASKED))}"
            )
        if given.keys().isdisjoint(_CONVERTED):
            return given
        options = dict(given)
        if (kept := options.pop("keep_result", None)) is not None:
            options["keep_result_ms"] = arguments.keep_result_ms(kept)
        for name in ("max_wait", "throttle"):
            if (given_one := options.pop(name, None)) is not None:
                options[f"{name}_ms"] = arguments.duration_ms(given_one, name)
        if isinstance(group := options.get("group"), Group):
            with arguments.naming("group"):
                options["group"] = self.group(group.name, group.then, group.on_dead, group.size)
        return self.with_followers(options)

    def group(
        self, name: str, then: object = (), on_dead: object = (), size: int | None = None, initiator: str | None = None
    ) -> NewGroup:
        """Check a group as it is written down."""
        asked = ("", "" if initiator is None else arguments.target(initiator, "initiator"))
        return new_group(name, self.followers(then or ()), self.followers(on_dead or (), "on_dead"), size, asked)

    def with_followers(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options with `then` and `on_dead` as they are stored."""
        for name in ("then", "on_dead"):
            if (jobs := options.get(name)) is not None:
                options[name] = self.followers(jobs, name)
        return options

    def followers(self, jobs: object, name: str = "then") -> list[Follower]:
        """Check a `then` or an `on_dead`; refusals say where: `then[0]: ...`."""
        if isinstance(jobs, (str, bytes)) or not isinstance(jobs, Sequence):
            raise InvalidInputError(f"{name} must be a list of Job, not {type(jobs).__name__}")
        return [self._follower(one, f"{name}[{n}]") for n, one in enumerate(jobs)]

    def _follower(self, job: Job, place: str) -> Follower:
        if not isinstance(job, Job):
            raise InvalidInputError(f"{place} must be a Job, not {type(job).__name__}")
        if job.at is not None or job.debounce is not None:
            name = "debounce" if job.at is None else "at"
            raise InvalidInputError(f"{place}.{name}: what follows a job starts when that is done, or `after` it")
        delay = 0 if job.after is None else arguments.duration_ms(job.after, f"{place}.after")
        with arguments.naming(place):
            return self.follower(
                job.path, job.workflow, arguments.encode_args(job.args), delay, self.options(job.options)
            )
