"""`Scheduler`: what users hold. Checks arguments, sends events to the actor, reads committed state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tocsin.actors.ids import ActorId
from tocsin.actors.scheduler import arguments, listing, query
from tocsin.actors.scheduler.records import (
    Cancelled,
    DeadRetried,
    LanesStatus,
    Page,
    Record,
    Scheduled,
    Status,
)
from tocsin.actors.scheduler.scheduler import SchedulerActor
from tocsin.actors.scheduler.turn import NewJob
from tocsin.dispatch.retry import Retry
from tocsin.errors import (
    InvalidInputError,
    NotFoundError,
    OriginNotConfiguredError,
    PayloadTooLargeError,
    StoreFull,
    TocsinError,
)

if TYPE_CHECKING:
    from tocsin.actors.scheduler.service import SchedulerService

T = TypeVar("T")
STATES = ("pending", "waiting", "running")
ORDERS = ("due", "id")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job for `submit_many`: exactly one of `at` and `after`; `options` as for `run_at`."""

    path: str | None = None
    args: Any = None
    at: datetime | int | None = None
    after: timedelta | float | str | None = None
    workflow: str | None = None
    options: Mapping[str, Any] = {}


class Scheduler:
    """A handle on one instance; costs nothing until used, and reading never creates the instance.

    Errors of every method: InvalidInputError (and its kin) for a bad argument, before anything is changed;
    OverloadedError, HostClosedError, StoreError when the host or its store cannot serve the call.
    """

    def __init__(self, service: SchedulerService, name: str) -> None:
        self.name = arguments.instance_name(name)
        self._service = service
        self._id = ActorId(SchedulerActor.kind_name(), self.name)

    # ---- Scheduling ------------------------------------------------------------------------------

    async def run_at(
        self,
        at: datetime | int,
        path: str | None,
        args: Any = None,
        *,
        workflow: str | None = None,
        id: str | None = None,
        on_conflict: str = "error",
        pool: str | None = None,
        max_concurrency: int | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        timeout_ms: int | None = None,
        expires_at: datetime | int | None = None,
        shard_key: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> str:
        """Call `path` back at an instant (aware datetime or epoch ms; a past one is due at once). The id.

        The job is on disk when this returns. `args` is anything JSON can hold, 256 KiB at most. A chosen `id`
        that is taken raises DuplicateScheduleIdError, unless `on_conflict` is "keep" (the job there stays) or
        "replace" (a waiting one is swapped). `timeout_ms` is the deadline of each callback, 1 s to 1 h.
        """
        options = {
            "id": id, "on_conflict": on_conflict, "pool": pool, "max_concurrency": max_concurrency,
            "priority": priority, "retry": retry, "timeout_ms": timeout_ms, "expires_at": expires_at,
            "shard_key": shard_key, "labels": labels,
        }  # fmt: skip
        due = arguments.instant_ms(at, "at")
        job = self._new_job(path, workflow, arguments.encode_args(args), due, options)
        return (await self.submit(job)).id

    async def run_after(
        self,
        delay: timedelta | float | str,
        path: str | None,
        args: Any = None,
        *,
        workflow: str | None = None,
        id: str | None = None,
        on_conflict: str = "error",
        pool: str | None = None,
        max_concurrency: int | None = None,
        priority: int | None = None,
        retry: Retry | None = None,
        timeout_ms: int | None = None,
        expires_at: datetime | int | None = None,
        shard_key: str | None = None,
        labels: Sequence[str] | None = None,
    ) -> str:
        """Call `path` back after a delay: timedelta, seconds, or text like "90s", "5m". The rest as `run_at`."""
        options = {
            "id": id, "on_conflict": on_conflict, "pool": pool, "max_concurrency": max_concurrency,
            "priority": priority, "retry": retry, "timeout_ms": timeout_ms, "expires_at": expires_at,
            "shard_key": shard_key, "labels": labels,
        }  # fmt: skip
        due = self._after(arguments.duration_ms(delay, "delay"), "delay")
        job = self._new_job(path, workflow, arguments.encode_args(args), due, options)
        return (await self.submit(job)).id

    async def submit_many(self, jobs: Sequence[Job]) -> list[Scheduled | TocsinError]:
        """Up to 1,000 jobs in one atomic commit. One answer each, in order: accepted, or why not."""
        if len(jobs) > arguments.MAX_BATCH:
            raise InvalidInputError(f"jobs: {len(jobs)} given, at most {arguments.MAX_BATCH} in one call")
        checked: list[NewJob | TocsinError] = []
        for job in jobs:
            try:
                checked.append(self._checked(job))
            except TocsinError as error:
                checked.append(error)
        return await self.submit_checked(checked)

    def _checked(self, job: Job) -> NewJob:
        if (job.at is None) == (job.after is None):
            raise InvalidInputError("give exactly one of at and after")
        if job.at is not None:
            due = arguments.instant_ms(job.at, "at")
        else:
            due = self._after(arguments.duration_ms(job.after, "after"), "after")
        return self._new_job(job.path, job.workflow, arguments.encode_args(job.args), due, job.options)

    def new_job(
        self,
        *,
        function_path: str | None,
        workflow: str | None,
        raw_args: bytes,
        scheduled_for: int | None,
        delay_ms: int | None,
        options: Mapping[str, Any],
    ) -> NewJob:
        """A checked job from wire values; for the HTTP face."""
        if (scheduled_for is None) == (delay_ms is None):
            raise InvalidInputError("give exactly one of scheduledFor and delayMs")
        if scheduled_for is not None:
            due = arguments.epoch_ms(scheduled_for, "scheduledFor")
        else:
            due = self._after(arguments.integer(delay_ms, "delayMs", 0, 2**53), "delayMs")
        return self._new_job(function_path, workflow, arguments.raw_args(raw_args), due, options)

    def _new_job(
        self, path: str | None, workflow: str | None, args: bytes, due: int, options: Mapping[str, Any]
    ) -> NewJob:
        if not self._service.has_origin():
            raise OriginNotConfiguredError(
                "callbacks have nowhere to go: open the host with origin=..., or set TOCSIN_ORIGIN_URL"
            )
        now = self._now()
        minted = arguments.mint_id(now, self._service.random.getrandbits(80))
        return arguments.new_job(
            function_path=path, workflow=workflow, args=args, scheduled_for=due, enqueued_at=now,
            minted=minted, options=options,
        )  # fmt: skip

    async def submit(self, job: NewJob) -> Scheduled:
        """Store one checked job."""
        self._check_space()
        answer = (await self._service.host.call(self._id, "submit", [job]))[0]
        if isinstance(answer, TocsinError):
            raise answer
        assert isinstance(answer, Scheduled)
        return answer

    async def submit_checked(self, jobs: Sequence[NewJob | TocsinError]) -> list[Scheduled | TocsinError]:
        """Store those that passed their checks; errors stay where they stand."""
        self._check_space()
        good = [job for job in jobs if isinstance(job, NewJob)]
        size = sum(job.size for job in good)
        if size > arguments.MAX_BATCH_BYTES:
            raise PayloadTooLargeError(
                f"these jobs are {size} bytes, at most {arguments.MAX_BATCH_BYTES} fit one call: send them in parts",
                limit=arguments.MAX_BATCH_BYTES,
            )
        stored = iter(await self._service.host.call(self._id, "submit", good) if good else [])
        return [next(stored) if isinstance(job, NewJob) else job for job in jobs]

    def _check_space(self) -> None:
        if self._service.host.provider.full:
            raise StoreFull("no space is left for new jobs: free some on the store's disk; what is under way goes on")

    def _after(self, delay_ms: int, name: str) -> int:
        return arguments.delayed(self._now(), delay_ms, name)

    def _now(self) -> int:
        return self._service.clock.now_ms()

    # ---- Changing --------------------------------------------------------------------------------

    async def cancel(self, id: str) -> Cancelled:
        """Remove a pending, waiting or running job. Its id is free at once; a running attempt is not stopped,
        but whatever it answers changes nothing. A dead job is not cancelled by this: see `dead_cancel`."""
        return await self._change("cancel", arguments.schedule_id(id), Cancelled(False, False))

    async def dead_retry(self, id: str) -> DeadRetried:
        """Make a dead job due now, with a fresh budget; it keeps everything else but `expiresAt`."""
        return await self._change("dead_retry", arguments.schedule_id(id), DeadRetried(False))

    async def dead_cancel(self, id: str) -> bool:
        """Remove a dead job for good; False if there is none of that id."""
        return await self._change("dead_cancel", arguments.schedule_id(id), False)

    async def _change(self, event: str, id: str, absent: T) -> T:
        try:
            answer: T = await self._service.host.call(self._id, event, id, create=False)
        except NotFoundError:
            return absent  # an instance that was never written holds nothing
        return answer

    # ---- Reading ---------------------------------------------------------------------------------

    async def get(self, id: str) -> Record | None:
        """The job, dead ones included; None if there is none of that id."""
        return await query.get(self._view(), arguments.schedule_id(id), self._now())

    async def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        order: str = "due",
        pool: str | None = None,
        state: str | None = None,
        label: str | None = None,
    ) -> Page:
        """A page of live jobs by next attempt (`order="due"`) or by id; `limit` 1 to 1000."""
        if order not in ORDERS:
            raise InvalidInputError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
        if state is not None and state not in STATES:
            raise InvalidInputError(f"state must be one of {', '.join(STATES)}, not {state!r}")
        wanted = listing.Filter(self._name(pool, "pool"), state, self._name(label, "label"))
        pages = listing.list_by_due if order == "due" else listing.list_by_id
        return await pages(self._view(), self.name, self._now(), self._limit(limit), cursor, wanted)

    async def list_all(self, *, order: str = "id", **filters: Any) -> AsyncIterator[Record]:
        """Every live job, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(cursor=cursor, limit=1000, order=order, **filters)
            for record in page.records:
                yield record
            if not page.truncated:
                return
            cursor = page.cursor

    async def dead(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        pool: str | None = None,
        since: datetime | int | None = None,
    ) -> Page:
        """A page of dead jobs, the newest parked last; `since` leaves out those parked before."""
        parked_since = 0 if since is None else arguments.instant_ms(since, "since")
        wanted = listing.Filter(self._name(pool, "pool"))
        return await listing.list_dead(
            self._view(), self.name, self._now(), self._limit(limit), cursor, wanted, parked_since
        )

    async def status(self) -> Status:
        """Counts of this instance, exact but for `due`."""
        counts = await query.counts(self._view(), self._now())
        failures = self._service.host.alarms.failures(self._id)
        return Status(
            backlog=counts.backlog,
            in_flight=counts.in_flight,
            due=counts.due,
            oldest_due_ms=counts.oldest_due_ms,
            dead=counts.dead,
            lanes=LanesStatus(*self._service.lanes_in_use(self.name)),
            health="red" if failures or self._service.host.provider.full else "green",
            pools=counts.pools,
            more_pools=counts.more_pools,
            alarm_failures=failures,
        )

    def _view(self) -> Any:
        return self._service.host.provider.view(str(self._id))

    def _name(self, value: str | None, field: str) -> str | None:
        return None if value is None else arguments.plain_name(value, field)

    def _limit(self, value: int) -> int:
        return arguments.integer(value, "limit", 1, 1000)
