"""`Scheduler`: what users hold. Says each operation as Python does, and asks the port for it."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from tocsin.actors.scheduler.client.clock import Clock
from tocsin.actors.scheduler.client.dead_letters import DeadLetters
from tocsin.actors.scheduler.client.deferred import Deferred
from tocsin.actors.scheduler.client.groups import Groups
from tocsin.actors.scheduler.client.job_checks import Job, JobOptions
from tocsin.actors.scheduler.client.pools import PoolHandle
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.client.queues import CLAIM_LEASE_MS, CLAIM_WAIT_S
from tocsin.actors.scheduler.client.scheduler_reads import SchedulerReads
from tocsin.actors.scheduler.client.schedules import Schedules
from tocsin.actors.scheduler.client.submitting import submit_checked
from tocsin.actors.scheduler.client.tasks import Awaited, TaskMaker
from tocsin.actors.scheduler.inflight.result_waiters import NOBODY_WAITS
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.audit_records import Undone
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.pool_settings import PoolOptions, pool_settings
from tocsin.actors.scheduler.model.queue_settings import QueueOptions, queue_settings
from tocsin.dispatch.failure import job_failed
from tocsin.dispatch.pulled import EVERY_QUEUE, MAX_RESULT, Claimed, Settlement, WorkerInfo, WorkerSnapshot, check_end
from tocsin.dispatch.receiver.outcomes import HandlerError, failure_of
from tocsin.dispatch.values import LEFT_OUT
from tocsin.errors import HostClosedError, InvalidInputError, NotYetError, TocsinError

__all__ = ["Job", "Scheduler"]


class Scheduler(DeadLetters, SchedulerReads):
    """A handle on one instance; costs nothing until used, and reading never creates the instance.

    Errors of every method: InvalidInputError (and its kin) for a bad argument, before anything is changed;
    OverloadedError, HostClosedError, StoreError when the host or its store cannot serve the call.
    """

    def __init__(self, port: SchedulerPort) -> None:
        """Hold a port; users get their handles from `ActorHost.scheduler`."""
        super().__init__(port)
        self._checks = port.checks
        self.name = port.name

    @property
    def groups(self) -> Groups:
        """Return the groups of this instance: jobs that are counted together, and what follows when all have ended."""
        return Groups(self._port)

    @property
    def schedules(self) -> Schedules:
        """Return the recurring definitions, whose occurrences become jobs of this instance."""
        return Schedules(self._port)

    @property
    def task(self) -> TaskMaker[Awaited]:
        """Make a task of a handler: `remind = jobs.task("invoices:remind", handler)`, then `await remind.after("5m",
        number=42)`, with the handler's own arguments, checked by the type checker and here. See `Task`; `Tasks` has
        the decorator for handlers that are declared before there is a scheduler."""
        return TaskMaker(self)

    @property
    def clock(self) -> Clock:
        """Return the test clock of this instance, if it was made with one or is to be."""
        return Clock(self._port)

    # ---- Making jobs -----------------------------------------------------------------------------

    async def run_at(
        self,
        at: datetime | int,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Call `path` back at an instant (aware datetime or epoch ms; a past one is due at once). The id.

        The job is on disk when this returns. `args` is JSON and the types of docs/typed-args.md, 256 KiB at most; left
        out it is `{}`, and None is null. A chosen `id` that is taken raises DuplicateScheduleIdError, unless
        `on_conflict` (default "error") is "keep" (the job there stays) or "replace" (a waiting one is swapped).
        `pool` (one of this scheduler's own), with `max_concurrency`, `priority`, `retry`, `labels`, `shard_key` and
        `expires_at` say when it may start and what it shows. `timeout_ms` is the deadline of each callback, 1 s to 1 h.
        `initiator` names who wants it, for `authorize_fire` and the record; the receiver does not see it. With a
        `queue` nobody is called back: a worker pulls it. `origin` names one of the host's, which is called back instead
        of its own. `then`: jobs that start when this one is done, in the same commit; nested ones make a chain.
        `on_dead`: jobs that start when it dies instead, which are told why.
        `keep_result`: for how long (1 s to 7 d) `result` can tell what it came to.
        `throttle`: from when it is due, no further job of its `id` is accepted for so long (ThrottledError); with
        `on_throttle="merge"` further calls become one job, with the args of the newest, when that is over.
        `group`: the name of a group in which it counts, or a `Group` that is made with its first job.
        """
        due, now, raw_args = arguments.instant_ms(at, "at"), self._checks.now_ms(), arguments.encode_args(args)
        job = self._checks.new_job(path, workflow, raw_args, due, self._checks.options(options), now=now)
        return (await self._port.jobs.submit(job)).id

    async def run_after(
        self,
        delay: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Call `path` back after a delay: timedelta, seconds, or text like "90s", "5m". The rest as `run_at`."""
        delay_ms, now = arguments.duration_ms(delay, "delay"), self._checks.now_ms()
        due, raw_args = self._checks.delayed(now, delay_ms, "delay"), arguments.encode_args(args)
        job = self._checks.new_job(path, workflow, raw_args, due, self._checks.options(options), now=now, relative=True)
        return (await self._port.jobs.submit(job)).id

    async def run_debounced(
        self,
        debounce: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Call `path` back once nobody has asked for this `id` for so long (timedelta, seconds, or text like "5s").

        Each further call puts the job off and gives it its own args, but no further than `max_wait` from the first
        call. A call while it runs is kept, and becomes the job when that run has ended. `id` is needed. The rest as
        `run_at`.
        """
        now, raw_args = self._checks.now_ms(), arguments.encode_args(args)
        due, given = self._checks.debounced(debounce, self._checks.options(options), now)
        job = self._checks.new_job(path, workflow, raw_args, due, given, now=now, relative=True)
        return (await self._port.jobs.submit(job)).id

    async def submit_many(self, jobs: Sequence[Job]) -> list[records.Scheduled | TocsinError]:
        """Submit up to 1,000 jobs in one atomic commit. One answer each, in order: accepted, or why not."""
        given: object = jobs
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            raise InvalidInputError(f"jobs must be a list of Job, not {type(jobs).__name__}")
        if len(jobs) > arguments.MAX_BATCH:
            raise InvalidInputError(f"jobs: {len(jobs)} given, at most {arguments.MAX_BATCH} in one call")
        return await submit_checked(self._port.jobs, self._checks.jobs(jobs))

    def deferred(self) -> Deferred:
        """Collect jobs that are submitted together at the end of a block, and not at all if it fails; ids at once.

        `async with jobs.deferred() as later: job_id = later.run_after("5m", ...)`. See `Deferred`.
        """
        return Deferred(self._checks.job, self._port.jobs)

    # ---- Changing jobs ---------------------------------------------------------------------------

    async def cancel(self, id: str) -> records.Cancelled:
        """Remove a pending, waiting or running job. Its id is free at once; a running attempt is not stopped,
        but whatever it answers changes nothing. A dead job is not cancelled by this: see `dead_cancel`."""
        return await self._port.changes.cancel(id)

    async def cancel_all(
        self,
        *,
        pool: str | None = None,
        label: str | None = None,
        path: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> records.Matched:
        """Cancel every job there is now that fits all filters (`all=True`: every job), a page at a time."""
        return await self._port.changes.cancel_all(pool=pool, label=label, path=path, all=all, dry_run=dry_run)

    async def reschedule(
        self, id: str, *, at: datetime | int | None = None, after: timedelta | float | str | None = None
    ) -> records.Rescheduled:
        """Move a pending or waiting job to an instant, or to a delay from now. A running one is not moved."""
        return await self._port.changes.reschedule(id, self._checks.due(at, after, self._checks.now_ms()))

    async def complete(
        self,
        id: str,
        lease: str,
        *,
        ok: bool = True,
        error: str | HandlerError | None = None,
        retryable: bool = True,
        delay: timedelta | float | str | None = None,
        charge: bool = True,
        result: Any = None,
    ) -> bool:
        """Settle an attempt that was claimed from a queue, or whose callback was answered `tocsin-accepted: 1`.

        `ok=False` climbs the retry ladder (or waits `delay`); with `retryable=False` the job is dead; with
        `charge=False` it is no failure, until the job is a day past due: these and `error` go with `ok=False` only.
        The same lease again within ten minutes answers as at first; a lease that is not alive raises StaleLeaseError.
        `error` says why in words, or as a HandlerError with a code for programs. `result` is JSON of at most 64 KiB,
        for what follows in a chain and for `result`; up to 2 KiB are kept in the history.
        """
        settled = await self.settle(
            id, lease, ok=ok, error=error, retryable=retryable, delay=delay, charge=charge, result=result
        )
        return settled.settled

    async def settle(
        self,
        id: str,
        lease: str,
        *,
        ok: bool = True,
        error: str | HandlerError | None = None,
        retryable: bool = True,
        delay: timedelta | float | str | None = None,
        charge: bool = True,
        result: Any = None,
    ) -> Settlement:
        """Settle as `complete` does; what becomes of the job: done, retrying and when, dead and why, or cancelled."""
        if not (ok and retryable and charge and error is delay is None):  # a plain success is as it should be
            check_end(ok=ok, error=error, retryable=retryable, delay=delay, charge=charge, result=result)
        delay_ms = None if delay is None else arguments.duration_ms(delay, "delay")
        kept = None if result is None else arguments.encode_args(result, MAX_RESULT, "result")
        return await self._port.changes.complete(
            id, lease, ok=ok, error=failure_of(error), retryable=retryable, delay_ms=delay_ms, charge=charge,
            result=kept,
        )  # fmt: skip

    async def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the attempt until `lease_ms` (1 s to 1 h) from now; that instant, epoch ms.

        StaleLeaseError if the lease is not alive, also when the job was cancelled: then stop working on it.
        """
        return await self._port.changes.extend(id, lease, lease_ms)

    # ---- Pulling work ----------------------------------------------------------------------------

    async def claim(
        self,
        queue: str | Sequence[str] = EVERY_QUEUE,
        *,
        max: int = 1,
        lease_ms: int = CLAIM_LEASE_MS,
        wait: timedelta | float | str = CLAIM_WAIT_S,
        worker: WorkerInfo | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Claimed]:
        """Lease up to `max` (1 to 100) due jobs of a queue, of several, or of all (`*`) but `exclude`, each for
        `lease_ms` (1 s to 1 h).

        Waits until there is one, at most `wait` (0 to 5 min): then the list is empty. Queues have turns; in each, jobs
        come by (due - priority * 30 s, id). Settle each (`complete`), or `extend` its lease, before that ends: then
        the job goes to another worker. Cancelled, the call gives back what it was about to get.
        """
        wait_ms = arguments.duration_ms(wait, "wait")
        claimed = await self._port.queues.claim(
            queue, max=max, lease_ms=lease_ms, wait_ms=wait_ms, worker=worker, exclude=exclude
        )
        return list(claimed)

    async def queues(self) -> Sequence[records.Queue]:
        """Return the queues that hold jobs, waiting or leased, by name, and how many claims wait for each here."""
        return await self._port.queues.queues()

    async def pending(self, prefix: str = "") -> records.Pending:
        """Tell whether any live job's function path or workflow starts with `prefix`: pending, waiting, running, or to
        follow one of those. Dead ones do not count. An empty prefix asks for any job at all."""
        return await self._port.queues.pending(prefix)

    async def result(self, id: str, timeout: timedelta | float | str | None = None) -> Any:
        """Return what a job with `keep_result` came to; wait until it has ended, without polling.

        JobFailedError if it is dead, was cancelled or expired (`state` says which), with `code`, `status` and `data` of
        the HandlerError that its last attempt ended with; NotYetError if it has not ended within `timeout` (None: as
        long as it takes), HostClosedError where the host stops before; NotFoundError if nothing is known of it: its
        result was not asked for, or is not kept any more.
        """
        seconds = None if timeout is None else arguments.duration_ms(timeout, "timeout") / 1000
        try:
            outcome = await self._port.queues.outcome(id, seconds)
        except HostClosedError:  # nobody waits here any more; but it may have ended
            outcome = await self._port.queues.outcome(id, 0)
        if outcome.state == "done":
            return outcome.result
        if outcome.state in ("dead", "cancelled", "expired"):
            raise job_failed(id, outcome.state, outcome.error, outcome.code, outcome.status, outcome.data)
        if seconds is None:
            raise HostClosedError(f"job {id!r} is {outcome.state}, and {NOBODY_WAITS}", id=id, state=outcome.state)
        raise NotYetError(f"job {id!r} is {outcome.state}: it has not ended in time", id=id, state=outcome.state)

    async def announce(self, snapshot: WorkerSnapshot) -> None:
        """Report how a worker of this instance is; every 10 s, or it counts as lost after 30 s.

        Its `heartbeat_at` becomes the instant at which it was heard here. InvalidInputError names what cannot be so.
        """
        await self._port.queues.announce(snapshot)

    async def workers(self, *, cursor: str | None = None, limit: int = 100) -> records.WorkerPage:
        """Return a page of the workers that this host has heard of within five minutes, by id; `limit` 1 to 1000."""
        return await self._port.queues.workers(cursor=cursor, limit=limit)

    async def undo(self, action_id: str) -> Undone:
        """Undo a bulk action (`cancel_all`, `dead_cancel_all`, `dead_retry_all`, `set_pool`) within ten minutes.

        What it did is put back as far as it can be: `skipped` counts the rest. The undo can be undone in its turn.
        NotFoundError if there is no such action, ConflictError if it cannot be undone, or not any more."""
        return await self._port.changes.undo(action_id)

    # ---- Operating -------------------------------------------------------------------------------

    def pools(self, name: str) -> PoolHandle[Coroutine[Any, Any, records.Pool]]:
        """Return a handle on one pool of this scheduler: `stripe = jobs.pools("stripe")`, `await stripe.pause()`,
        `pool=stripe`. An equal name in another scheduler is another pool."""
        return PoolHandle(self, name)

    async def pool(self, name: str) -> records.Pool:
        """Return a pool of this scheduler and its holders. One that nobody has set or used has the default cap, 1."""
        return await self._port.reads.pool(name)

    async def set_pool(self, name: str, **settings: Unpack[PoolOptions]) -> records.Pool:
        """Set its cap `max_concurrency` (0 holds all; jobs no longer change it), or stop or start it (`paused`).
        Holders may always finish.

        `rate`: how many start in a time, as `Rate(100, per="1m")`; "none" takes it away. `cool_on_retry_after`: what an
        answer 429 or 503 with Retry-After holds back, until then: "none" but its own job, the "pool", or the whole
        "origin"; `cooling=False` ends it now. `fair`: jobs with different shard keys have turns, `weights` says how
        many, and `max_per_key` (0: no cap) how many of one key run at once.

        `created` says whether the pool was unknown until now: by a slip in its name, perhaps.
        """
        return await self._port.changes.set_pool(name, pool_settings(settings))

    async def set_queue(self, name: str, **settings: Unpack[QueueOptions]) -> records.Queue:
        """Say how jobs are taken from a queue. `fair`: jobs with different shard keys have turns, `weights` says how
        many, and `max_per_key` (0: no cap) how many of one key run at once. The turns of a fair pool go before."""
        return await self._port.changes.set_queue(name, queue_settings(settings))

    async def delete_pool(self, name: str) -> bool:
        """Forget what was set. ConflictError while a job names it; False if there was nothing to forget."""
        return await self._port.changes.delete_pool(name)

    async def free_slot(self, id: str) -> Freed:
        """Give up the attempt of a job that was accepted, or whose callback had no answer in time, before its lease
        ends: its pool slot is free at once, and the job goes on as when the lease ends. So is the slot of a cancelled
        job that an attempt still holds.

        `freed` is False if nothing holds it; ConflictError while it is being called, or a worker has it. If the attempt
        is done after all while the job waits for the next one, that counts; later it is a StaleLeaseError.
        """
        return await self._port.changes.free_slot(id)

    async def pause(self, paused: bool = True) -> None:
        """Stop all firing of this instance, or start it again."""
        await self.set_instance(paused=paused)

    async def set_instance(self, *, paused: bool | None = None, timeout_ms: int | None = None) -> records.InstanceState:
        """Stop or start all firing of this instance, or set the deadline of callbacks whose jobs have none of their own
        (1 s to 1 h; 0: the host's again). It counts for every attempt that starts from now on."""
        return await self._port.changes.set_instance(paused=paused, timeout_ms=timeout_ms)

    async def remove(self) -> records.Removed:
        """Remove everything of this instance. Goes on after a crash, once begun; accepts nothing meanwhile."""
        return await self._port.changes.remove()


def port_of(scheduler: Scheduler) -> SchedulerPort:
    """Return what a user's handle stands on; for rooms that are handed one."""
    return scheduler._port
