"""`Worker`: claims as many jobs as it has room for, runs each in a task of its own, and stops without losing one."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random, SystemRandom
from typing import Any, Final, Self

from tocsin.dispatch.clock import DispatchClock, SystemDispatchClock
from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.pulled import Claimed, WorkerInfo, WorkerJob, WorkerSnapshot
from tocsin.dispatch.receiver.handlers import Handler
from tocsin.dispatch.tracing import Tracers, Tracing
from tocsin.dispatch.worker import options
from tocsin.dispatch.worker.announcer import Announcer, Listener
from tocsin.dispatch.worker.attempt import Attempt, Bench, Report, Why
from tocsin.dispatch.worker.ending import described
from tocsin.dispatch.worker.handlers import Handlers
from tocsin.dispatch.worker.hooks import Hooks, OnFinalFailure, OnRetry, Tally
from tocsin.dispatch.worker.source import Source
from tocsin.dispatch.worker.trouble import Pauses, is_closed, is_refusal, told_to_stop
from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.worker")

MAX_CLAIM: Final = 100
SOON_S: Final = 0.5
"""A claim that is answered with nothing sooner than this did not wait: the next one is not asked at once."""


class Worker:
    """Serves queues. `jobs` is a `Scheduler`, of a host in this process or of a `Client`.

    `handlers` is a `Handlers`, or a mapping from function paths to functions: `(args)` or `(args, context)`,
    `async def` in the event loop or `def` in a thread. `queues` is "*" (all but `exclude`), a name, or names; at most
    `concurrency` jobs (1 to 1,000) run at once. Each is held by a lease of `lease_ms` (1 s to 1 h), renewed while it
    runs; `wait` (1 s to 5 min) is how long a claim waits at the host. `on_retry(job, error, next_attempt_at)` and
    `on_final_failure(job, error, reason)` run when that is on disk at the host, `on_heartbeat(snapshot)` every ten
    seconds and at each change; sync or async, and what they raise goes to the log. `tracing` as for `ActorHost.open`.
    Raises SettingsError.

    `async with worker:` runs it beside other work and stops it at the end, where jobs have `drain` (25 s; None: as
    long as they need) before they are interrupted; `await worker.run()` is done when it was stopped. Both raise what
    the host says to the first claim, if it can never be served: see `refused`.
    """

    def __init__(
        self,
        jobs: Source,
        handlers: Handlers | Mapping[str, Handler],
        queues: str | Sequence[str] = options.ALL,
        exclude: Sequence[str] = (),
        concurrency: int = 8,
        *,
        lease_ms: int = 60_000,
        wait: Duration = 20,
        drain: Duration | None = 25,
        name: str | None = None,
        on_retry: OnRetry | None = None,
        on_final_failure: OnFinalFailure | None = None,
        on_heartbeat: Listener | None = None,
        clock: DispatchClock | None = None,
        random: Random | None = None,
        tracing: bool | Tracers = True,
    ) -> None:
        self._source = options.source_of(jobs)
        self._options = options.checked(queues, exclude, concurrency, lease_ms, wait, drain, name)
        self._clock, self._random = clock or SystemDispatchClock(), random or SystemRandom()
        self.handlers, self._tracing = options.handlers_of(handlers), Tracing(tracing)
        self.tally = Tally()
        self._hooks = Hooks(self.tally, on_retry, on_final_failure)
        self.info = self._new_info()
        self._announcer = Announcer(self.snapshot, self._source.announce, on_heartbeat, self._hooks.failed)
        self._attempts: dict[Attempt, asyncio.Task[Report]] = {}
        self._room = asyncio.Event()
        self._started_at = 0
        self._stopping = self._stopped = self._ending = False
        self._claiming: asyncio.Task[None] | None = None
        self._life: asyncio.Task[None] | None = None
        self.refused: BaseException | None = None
        """Why the worker has stopped: the refusal of its first claim, if that can never be served."""

    @property
    def drain_s(self) -> float | None:
        """Return how long jobs may take to end at a stop; None: as long as they need."""
        return self._options.drain_s

    def __repr__(self) -> str:
        return f"Worker({self.info.id!r}, {self.status})"

    def _new_info(self) -> WorkerInfo:
        """Make an id that is never that of another start, whose pid and hostname may come again."""
        pid, hostname = os.getpid(), socket.gethostname()
        id = f"{pid}-{self._random.getrandbits(80):020x}"
        return WorkerInfo(id=id, name=self._options.name or hostname, hostname=hostname, pid=pid)

    # ---- Life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to claim, in this event loop. A worker starts once: its id is that of one run."""
        if self._life is not None:
            raise SettingsError("this worker was started already: make another one")
        self._start(self._claim_on)

    def _start(self, claiming: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        if self.info.pid != os.getpid():  # made before a fork
            self.info = self._new_info()
        threads = ThreadPoolExecutor(self._options.concurrency, thread_name_prefix="tocsin-worker")
        bench = Bench(
            source=self._source, handlers=self.handlers, threads=threads, clock=self._clock, random=self._random,
            tracing=self._tracing,
        )  # fmt: skip
        if self.handlers.is_empty:
            log.warning("this worker has no handlers yet: each job that it claims goes back to its queue")
        self._started_at = self._clock.now_ms()
        self._room.set()
        self._announcer.start()
        self._claiming = asyncio.create_task(claiming(bench))
        self._life = asyncio.create_task(self._live(self._claiming, threads))
        if self._stopping:
            self._claiming.cancel()

    async def run(self) -> None:
        """Start, if that was not done, and be done when it was stopped and its jobs have ended.

        Cancelled, it interrupts what runs, gives that back uncharged, and ends. Raises what the host says to the
        first claim if it can never be served: UnauthenticatedError, ForbiddenError, InvalidInputError, SettingsError.
        """
        if self._life is None:
            self.start()
        assert self._life is not None
        try:
            await asyncio.shield(self._life)
        except asyncio.CancelledError:
            await self._end_now()
            raise
        if self.refused is not None:
            raise self.refused

    async def run_once(self) -> int:
        """Claim what is due, work it off, and go on until nothing more is due. Return how many jobs were claimed.

        For cron jobs and tests; it may be called again, but not beside `start`, `run` or another `run_once`. What ran
        has ended and is settled at the host when this returns. Cancelled or stopped, it ends as `run` does. Raises
        what the host says to a claim, after the jobs that run have ended.
        """
        if self._life is not None:
            raise SettingsError("this worker was started already: run_once() is for one that was not")
        before = self.tally.claimed
        self._start(self._claim_until_none)
        try:
            await self.run()
        finally:
            if not self._stopped:
                self._life = self._claiming = None
                self._stopping, self.refused, self.info = False, None, self._new_info()
        return self.tally.claimed - before

    def stop(self) -> Awaitable[None]:
        """Claim nothing more, and end a claim that waits; running jobs are not stopped. It may be awaited."""
        self._stopped = True
        if not self._stopping:
            self._stopping = True
            self._announcer.changed.set()
            if self._claiming is not None:
                self._claiming.cancel()
        return _Ended(self._claiming)

    async def stop_and_drain(self, timeout: Duration | None = None) -> int:
        """Stop, and wait until all jobs have ended. Return how many had to be interrupted.

        After `timeout` coroutines are cancelled, and what does not end by itself goes back to its queue, uncharged,
        with the words "interrupted by shutdown". Functions in threads cannot be stopped: their jobs are given back for
        when their leases would have ended. Cancelled, it does that at once.
        """
        left_s = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        if any(one.is_running_in(asyncio.current_task()) for one in self._attempts):
            raise SettingsError("a handler that waits for its own worker would wait for ever: call stop()")
        stopped = self.stop()
        if self._life is None:
            return 0
        try:
            await stopped
            await asyncio.wait([self._life], timeout=left_s)
        except asyncio.CancelledError:
            await self._end_now()
            raise
        return 0 if self._life.done() else await self._end_now()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self.stop_and_drain(self.drain_s)
        if self.refused is None or error is self.refused:
            return
        if error is None or isinstance(error, Exception):
            raise self.refused  # what the body raised, waiting for jobs that nobody ran, is its context

    async def _end_now(self) -> int:
        """Interrupt the jobs that run, and wait for their end. A cancelled wait stops none of that."""
        self.stop()
        self._ending = True
        interrupted = list(self._attempts)
        for attempt in interrupted:
            attempt.interrupt(Why.SHUTDOWN)
        if self._life is not None:
            await asyncio.wait([self._life])
        return len(interrupted)

    async def _live(self, claiming: asyncio.Task[None], threads: ThreadPoolExecutor) -> None:
        """End claims, then wait for jobs and their settlement, then for hooks, then announce for the last time."""
        await asyncio.wait([claiming])
        self._stopping = True
        if not claiming.cancelled() and (error := claiming.exception()) is not None:
            log.error("this worker stops: it can claim nothing: %s", described(error))
            self.refused = error
        while self._attempts:
            self._announcer.changed.set()
            await asyncio.wait(self._attempts.values(), return_when=asyncio.FIRST_COMPLETED)
        await self._hooks.ended()
        threads.shutdown(wait=False)
        await self._announcer.stop()

    # ---- Claiming --------------------------------------------------------------------------------

    async def _claim_on(self, bench: Bench) -> None:
        pauses: Pauses | None = None
        served = failing = False
        while True:
            await self._room.wait()
            asked = self._clock.monotonic()
            try:
                jobs = await self._claim()
            except Exception as error:  # a source may fail in any way, and comes back
                if told_to_stop(error):
                    return
                if not served and is_closed(error):
                    raise SettingsError(
                        "the host of this worker is not open: open it first, and close it last"
                    ) from error
                if not served and is_refusal(error):
                    raise
                if not failing:
                    log.warning("no jobs can be claimed; trying again: %s", described(error))
                failing, pauses = True, pauses or Pauses(self._random)
                await asyncio.sleep(pauses.next())
                continue
            if failing:
                log.warning("jobs can be claimed again")
            served, failing = True, False
            for job in jobs:
                self._begin(job, asked, bench)
            if jobs or self._clock.monotonic() - asked >= SOON_S:
                pauses = None
            else:
                pauses = pauses or Pauses(self._random)
                await asyncio.sleep(pauses.next())

    async def _claim_until_none(self, bench: Bench) -> None:
        """Claim until a claim is given nothing while no job runs: one that runs may make others due."""
        while True:
            await self._room.wait()
            running, asked = list(self._attempts.values()), self._clock.monotonic()
            jobs = await self._claim(wait_s=0)
            for job in jobs:
                self._begin(job, asked, bench)
            if not jobs:
                if not running:
                    return
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)

    async def _claim(self, wait_s: float | None = None) -> list[Claimed]:
        return await self._source.claim(
            self._options.queues,
            max=min(self._options.concurrency - len(self._attempts), MAX_CLAIM),
            lease_ms=self._options.lease_ms,
            wait=self._options.wait_ms / 1000 if wait_s is None else wait_s,
            worker=self.info,
            exclude=self._options.exclude,
        )

    def _begin(self, job: Claimed, asked_at: float, bench: Bench) -> None:
        attempt = Attempt(job, asked_at, bench)
        self.tally.claimed += 1
        self._attempts[attempt] = task = asyncio.create_task(attempt.run())
        task.add_done_callback(partial(self._ended, attempt))
        if self._ending:  # what a claim brought in the instant it was cancelled goes back
            attempt.interrupt(Why.SHUTDOWN)
        self._changed()

    def _ended(self, attempt: Attempt, task: asyncio.Task[Report]) -> None:
        del self._attempts[attempt]
        self._changed()
        if task.cancelled():
            return
        if (error := task.exception()) is None:
            self._hooks.heard(attempt.job, task.result())
        else:  # a fault of ours: the lease runs out, and other jobs are not affected
            log.error("job %s: its attempt failed here, not in its handler", attempt.job.id, exc_info=error)

    def _changed(self) -> None:
        if len(self._attempts) < self._options.concurrency:
            self._room.set()
        else:
            self._room.clear()
        self._announcer.changed.set()

    # ---- Announcing --------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> None:
        """Give snapshots to one more listener."""
        self._announcer.listeners.append(listener)

    @property
    def status(self) -> str:
        """Return the status that `GET /workers` shows."""
        if self._stopping:
            at_work = self._attempts or (self._claiming is not None and not self._claiming.done())
            return "stopping" if at_work else "stopped"
        return "busy" if self._attempts else "idle"

    def snapshot(self) -> WorkerSnapshot:
        """Return how the worker is now."""
        jobs = [
            WorkerJob(
                id=one.job.id,
                function_path=one.job.function_path,
                workflow=one.job.workflow,
                attempt=one.job.attempt,
                started_at=one.started_at,
            )
            for one in self._attempts
        ]
        info: dict[str, Any] = {name: getattr(self.info, name) for name in ("id", "name", "hostname", "pid")}
        return WorkerSnapshot(
            **info,
            queues=self._options.queues,
            exclude=self._options.exclude,
            concurrency=self._options.concurrency,
            status=self.status,
            jobs=jobs[:MAX_CLAIM],
            started_at=self._started_at,
            heartbeat_at=self._clock.now_ms(),
        )


class _Ended:
    """Waits for a task when it is awaited, and does nothing else."""

    def __init__(self, task: asyncio.Task[None] | None) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, None]:
        if self._task is not None:
            yield from asyncio.wait([self._task]).__await__()
