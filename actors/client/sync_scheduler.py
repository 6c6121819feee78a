"""`SyncScheduler`: the handle on one scheduler for code that blocks.

Written by scripts/sync_client.py of `Scheduler`: change that, and run the script."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from tocsin.actors.client.blocking import Blocking
from tocsin.actors.client.sync_clock import SyncClock
from tocsin.actors.client.sync_dead_letters import SyncDeadLetters
from tocsin.actors.client.sync_deferred import SyncDeferred
from tocsin.actors.client.sync_groups import SyncGroups
from tocsin.actors.client.sync_schedules import SyncSchedules
from tocsin.actors.scheduler.client.job_checks import Job, JobOptions
from tocsin.actors.scheduler.client.pools import PoolHandle
from tocsin.actors.scheduler.client.queues import CLAIM_LEASE_MS, CLAIM_WAIT_S
from tocsin.actors.scheduler.client.tasks import TaskMaker
from tocsin.actors.scheduler.model import records
from tocsin.actors.scheduler.model.audit_records import AuditPage, Undone
from tocsin.actors.scheduler.model.feed_frames import Change, FeedPage, read_frame
from tocsin.actors.scheduler.model.freed import Freed
from tocsin.actors.scheduler.model.pool_settings import PoolOptions
from tocsin.actors.scheduler.model.queue_settings import QueueOptions
from tocsin.dispatch.pulled import EVERY_QUEUE, Claimed, Settlement, WorkerInfo, WorkerSnapshot
from tocsin.dispatch.receiver.outcomes import HandlerError
from tocsin.dispatch.values import LEFT_OUT
from tocsin.errors import TocsinError


class SyncScheduler(SyncDeadLetters):
    """A `Scheduler` whose methods return when they are answered. Threads may share it.

    Errors are those of a `Client`.
    """

    def __init__(self, blocking: Blocking, name: str) -> None:
        """Hold a thread with a client; users get their handles from `SyncClient.scheduler`."""
        self._blocking, self.name = blocking, name

    def _page_of_changes(self, since: str | None) -> FeedPage:
        return self._call(lambda it: it._page_of_changes(since))

    @property
    def schedules(self) -> SyncSchedules:
        """Return the recurring definitions, whose occurrences become jobs of this instance."""
        return SyncSchedules(self._blocking, self.name)

    @property
    def groups(self) -> SyncGroups:
        """Return the groups of this instance: jobs that are counted together, and what follows when all have ended."""
        return SyncGroups(self._blocking, self.name)

    @property
    def clock(self) -> SyncClock:
        """Return the test clock of this instance, if it was made with one or is to be."""
        return SyncClock(self._blocking, self.name)

    @property
    def task(self) -> TaskMaker[str]:
        """Make a task of a handler: `remind = jobs.task("invoices:remind", handler)`, then `remind.after("5m",
        number=42)`, with the handler's own arguments, checked by the type checker and here. See `Task`."""
        return TaskMaker(self)

    def pools(self, name: str) -> PoolHandle[records.Pool]:
        """Return a handle on one pool: `stripe = jobs.pools("stripe")`, `stripe.pause()`, `pool=stripe`."""
        return PoolHandle(self, name)

    def deferred(self) -> SyncDeferred:
        """Collect jobs that are submitted together at the end of a block, and not at all if it fails; ids at once.

        `with jobs.deferred() as later: job_id = later.run_after("5m", ...)`. See `Deferred`.
        """
        return SyncDeferred(self._blocking, self.name)

    def run_at(
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
        return self._call(lambda it: it.run_at(at, path, args, workflow=workflow, **options))

    def run_after(
        self,
        delay: timedelta | float | str,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> str:
        """Call `path` back after a delay: timedelta, seconds, or text like "90s", "5m". The rest as `run_at`."""
        return self._call(lambda it: it.run_after(delay, path, args, workflow=workflow, **options))

    def run_debounced(
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
        return self._call(lambda it: it.run_debounced(debounce, path, args, workflow=workflow, **options))

    def submit_many(self, jobs: Sequence[Job]) -> list[records.Scheduled | TocsinError]:
        """Submit up to 1,000 jobs in one atomic commit. One answer each, in order: accepted, or why not."""
        return self._call(lambda it: it.submit_many(jobs))

    def cancel(self, id: str) -> records.Cancelled:
        """Remove a pending, waiting or running job. Its id is free at once; a running attempt is not stopped,
        but whatever it answers changes nothing. A dead job is not cancelled by this: see `dead_cancel`."""
        return self._call(lambda it: it.cancel(id))

    def cancel_all(
        self,
        *,
        pool: str | None = None,
        label: str | None = None,
        path: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> records.Matched:
        """Cancel every job there is now that fits all filters (`all=True`: every job), a page at a time."""
        return self._call(lambda it: it.cancel_all(pool=pool, label=label, path=path, all=all, dry_run=dry_run))

    def reschedule(
        self, id: str, *, at: datetime | int | None = None, after: timedelta | float | str | None = None
    ) -> records.Rescheduled:
        """Move a pending or waiting job to an instant, or to a delay from now. A running one is not moved."""
        return self._call(lambda it: it.reschedule(id, at=at, after=after))

    def complete(
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
        return self._call(
            lambda it: it.complete(
                id, lease, ok=ok, error=error, retryable=retryable, delay=delay, charge=charge, result=result
            )
        )

    def settle(
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
        return self._call(
            lambda it: it.settle(
                id, lease, ok=ok, error=error, retryable=retryable, delay=delay, charge=charge, result=result
            )
        )

    def extend(self, id: str, lease: str, lease_ms: int) -> int:
        """Hold the attempt until `lease_ms` (1 s to 1 h) from now; that instant, epoch ms.

        StaleLeaseError if the lease is not alive, also when the job was cancelled: then stop working on it.
        """
        return self._call(lambda it: it.extend(id, lease, lease_ms))

    def claim(
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
        return self._call(
            lambda it: it.claim(queue, max=max, lease_ms=lease_ms, wait=wait, worker=worker, exclude=exclude)
        )

    def queues(self) -> Sequence[records.Queue]:
        """Return the queues that hold jobs, waiting or leased, by name, and how many claims wait for each here."""
        return self._call(lambda it: it.queues())

    def pending(self, prefix: str = "") -> records.Pending:
        """Tell whether any live job's function path or workflow starts with `prefix`: pending, waiting, running, or to
        follow one of those. Dead ones do not count. An empty prefix asks for any job at all."""
        return self._call(lambda it: it.pending(prefix))

    def result(self, id: str, timeout: timedelta | float | str | None = None) -> Any:
        """Return what a job with `keep_result` came to; wait until it has ended, without polling.

        JobFailedError if it is dead, was cancelled or expired (`state` says which), with `code`, `status` and `data` of
        the HandlerError that its last attempt ended with; NotYetError if it has not ended within `timeout` (None: as
        long as it takes), HostClosedError where the host stops before; NotFoundError if nothing is known of it: its
        result was not asked for, or is not kept any more.
        """
        return self._call(lambda it: it.result(id, timeout))

    def announce(self, snapshot: WorkerSnapshot) -> None:
        """Report how a worker of this instance is; every 10 s, or it counts as lost after 30 s.

        Its `heartbeat_at` becomes the instant at which it was heard here. InvalidInputError names what cannot be so.
        """
        self._call(lambda it: it.announce(snapshot))

    def workers(self, *, cursor: str | None = None, limit: int = 100) -> records.WorkerPage:
        """Return a page of the workers that this host has heard of within five minutes, by id; `limit` 1 to 1000."""
        return self._call(lambda it: it.workers(cursor=cursor, limit=limit))

    def undo(self, action_id: str) -> Undone:
        """Undo a bulk action (`cancel_all`, `dead_cancel_all`, `dead_retry_all`, `set_pool`) within ten minutes.

        What it did is put back as far as it can be: `skipped` counts the rest. The undo can be undone in its turn.
        NotFoundError if there is no such action, ConflictError if it cannot be undone, or not any more."""
        return self._call(lambda it: it.undo(action_id))

    def pool(self, name: str) -> records.Pool:
        """Return a pool of this scheduler and its holders. One that nobody has set or used has the default cap, 1."""
        return self._call(lambda it: it.pool(name))

    def set_pool(self, name: str, **settings: Unpack[PoolOptions]) -> records.Pool:
        """Set its cap `max_concurrency` (0 holds all; jobs no longer change it), or stop or start it (`paused`).
        Holders may always finish.

        `rate`: how many start in a time, as `Rate(100, per="1m")`; "none" takes it away. `cool_on_retry_after`: what an
        answer 429 or 503 with Retry-After holds back, until then: "none" but its own job, the "pool", or the whole
        "origin"; `cooling=False` ends it now. `fair`: jobs with different shard keys have turns, `weights` says how
        many, and `max_per_key` (0: no cap) how many of one key run at once.

        `created` says whether the pool was unknown until now: by a slip in its name, perhaps.
        """
        return self._call(lambda it: it.set_pool(name, **settings))

    def set_queue(self, name: str, **settings: Unpack[QueueOptions]) -> records.Queue:
        """Say how jobs are taken from a queue. `fair`: jobs with different shard keys have turns, `weights` says how
        many, and `max_per_key` (0: no cap) how many of one key run at once. The turns of a fair pool go before."""
        return self._call(lambda it: it.set_queue(name, **settings))

    def delete_pool(self, name: str) -> bool:
        """Forget what was set. ConflictError while a job names it; False if there was nothing to forget."""
        return self._call(lambda it: it.delete_pool(name))

    def free_slot(self, id: str) -> Freed:
        """Give up the attempt of a job that was accepted, or whose callback had no answer in time, before its lease
        ends: its pool slot is free at once, and the job goes on as when the lease ends. So is the slot of a cancelled
        job that an attempt still holds.

        `freed` is False if nothing holds it; ConflictError while it is being called, or a worker has it. If the attempt
        is done after all while the job waits for the next one, that counts; later it is a StaleLeaseError.
        """
        return self._call(lambda it: it.free_slot(id))

    def pause(self, paused: bool = True) -> None:
        """Stop all firing of this instance, or start it again."""
        self._call(lambda it: it.pause(paused))

    def set_instance(self, *, paused: bool | None = None, timeout_ms: int | None = None) -> records.InstanceState:
        """Stop or start all firing of this instance, or set the deadline of callbacks whose jobs have none of their own
        (1 s to 1 h; 0: the host's again). It counts for every attempt that starts from now on."""
        return self._call(lambda it: it.set_instance(paused=paused, timeout_ms=timeout_ms))

    def remove(self) -> records.Removed:
        """Remove everything of this instance. Goes on after a crash, once begun; accepts nothing meanwhile."""
        return self._call(lambda it: it.remove())

    def get(self, id: str) -> records.Record | None:
        """Return the job, dead ones included; None if there is none of that id."""
        return self._call(lambda it: it.get(id))

    def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        order: str = "due",
        pool: str | None = None,
        state: str | None = None,
        label: str | None = None,
        queue: str | None = None,
        path: str | None = None,
    ) -> records.Page:
        """Return a page of live jobs by next attempt (`order="due"`) or by id; `limit` 1 to 1000."""
        return self._call(
            lambda it: it.list(
                cursor=cursor, limit=limit, order=order, pool=pool, state=state, label=label, queue=queue, path=path
            )
        )

    def list_all(self, *, order: str = "id", **filters: Any) -> Iterator[records.Record]:
        """Yield every live job, page by page."""
        cursor: str | None = None
        while True:
            page = self.list(cursor=cursor, limit=1000, order=order, **filters)
            yield from page.records
            if not page.truncated:
                return
            cursor = page.cursor

    def status(self) -> records.Status:
        """Count the jobs of this instance, exactly but for `due`; and tell its health."""
        return self._call(lambda it: it.status())

    def activity(self, minutes: int = 60) -> records.Activity:
        """Return what this scheduler did in each of the last minutes, up to 60, as far as its host remembers."""
        return self._call(lambda it: it.activity(minutes))

    def why(self, id: str) -> Sequence[records.Reason]:
        """Return every reason the job is not running now; empty only if it may start at this instant."""
        return self._call(lambda it: it.why(id))

    def history(self, id: str) -> Sequence[records.Attempt]:
        """Return how its attempts ended, the oldest first; kept for some days after the job is gone."""
        return self._call(lambda it: it.history(id))

    def changes(self, *, since: str | None = None) -> Generator[Change, None, None]:
        """Yield what changes, as it changes: first a snapshot, then at most ten frames a second.

        `since` is the `seq` of the last frame that was seen: the feed goes on behind it. Where that is not possible any
        more, a `resync` says so, and a snapshot follows. Frames have no args. The feed ends when the instance is
        removed; HostClosedError when the host stops.
        """
        while True:
            page = self._page_of_changes(since)
            for text in page.frames:
                yield read_frame(text)
            if page.ended:
                return
            since = page.seq

    def audit(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        action: str | None = None,
        who: str | None = None,
        since: datetime | int | None = None,
    ) -> AuditPage:
        """Return a page of what operators did with this instance, the newest first: who, what, when, and how much it
        changed. `who` is the name of a token or a user, or `python`, `http` or `dashboard`."""
        return self._call(lambda it: it.audit(cursor=cursor, limit=limit, action=action, who=who, since=since))
