"""One attempt from its claim to its settlement: run the handler, keep the lease, say how it ended."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from sys import modules
from typing import Any, Final

from tocsin.dispatch.clock import DispatchClock
from tocsin.dispatch.pulled import Claimed, Settlement
from tocsin.dispatch.receiver.outcomes import Accepted, RetryLater
from tocsin.dispatch.tracing import API, Tracing
from tocsin.dispatch.worker import ending as endings
from tocsin.dispatch.worker.context import Context
from tocsin.dispatch.worker.ending import HandlerOutcome
from tocsin.dispatch.worker.handlers import Handlers, Handling
from tocsin.dispatch.worker.lease import RENEWALS, Lease, Over, SettleClient
from tocsin.dispatch.worker.source import Source
from tocsin.dispatch.worker.trouble import Missed, Pauses, may_pass
from tocsin.errors import StaleLeaseError

log = logging.getLogger("tocsin.worker")

GRACE_S: Final = 5.0
"""How long a cancelled coroutine may take to clean up before it counts as one that does not stop."""
THREAD_GRACE_S: Final = 0.1
"""The same where a thread is concerned: it may not have begun, or be through."""

HEARD_EVERY_S: Final = 1.0
"""How often a failing renewal is logged: near the end of a lease it is tried again sooner and sooner."""


class Why(Enum):
    """Why a handler is interrupted."""

    LOST = "its lease is over"
    CANCELLED = "its job was cancelled"
    TIMED_OUT = "its time is over"
    SHUTDOWN = "its worker stops"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The parts that all attempts of a worker share."""

    source: Source
    handlers: Handlers
    threads: ThreadPoolExecutor
    clock: DispatchClock
    random: Random
    missed: Missed = field(default_factory=Missed)
    tracing: Tracing = field(default_factory=Tracing)


@dataclass(frozen=True, slots=True)
class Report:
    """How an attempt ended for the worker. Without a settlement the host has not heard of it, or refused it."""

    ending: HandlerOutcome | None = None
    settlement: Settlement | None = None
    lost: bool = False


class Attempt:
    """Made when a job was claimed. `run` is its life, in a task of its own, whose cancellation is a shutdown."""

    def __init__(self, job: Claimed, asked_at: float, bench: Bench) -> None:
        self.job, self.started_at = job, bench.clock.now_ms()
        self.lease = Lease(job.lease, job.lease_ms, asked_at, bench.clock.monotonic)
        self.timeout_s: float | None = None
        self.args: Any = None
        self._bench, self._loop = bench, asyncio.get_running_loop()
        self._monotonic = bench.clock.monotonic
        self._began = self._monotonic()
        self._why: Why | None = None
        self._tells = log.isEnabledFor(logging.DEBUG)
        self._interrupted: asyncio.Future[None] = self._loop.create_future()
        self._abandoned: asyncio.Future[None] = self._loop.create_future()
        self._work: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._extending = asyncio.Lock()
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[bool] | None = None
        self._settling = SettleClient(bench.source, bench.random, job, self.lease)

    # ---- Asked by the context --------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._bench.clock.now_ms()

    @property
    def is_cancelled(self) -> bool:
        return self.lease.over is Over.CANCELLED

    def remaining_s(self) -> float | None:
        return None if self.timeout_s is None else self.timeout_s - (self._monotonic() - self._began)

    async def extend(self, lease_ms: int | None) -> int:
        """Ask the host once. What it answers counts for the handler too."""
        async with self._extending:
            self.lease.check(self.job.id)
            asked, length = self._monotonic(), lease_ms or self.lease.length_ms
            try:
                until = await self._bench.source.extend(self.job.id, self.lease.token, length)
            except StaleLeaseError as error:
                self._refused(error)
                self.lease.check(self.job.id)
                raise
            self.lease.granted(asked, length)
            if self._renewal is not None:
                self._renew_later()
            return until

    # ---- The attempt -----------------------------------------------------------------------------

    async def run(self) -> Report:
        """Return when nothing of it runs any more. Raise nothing."""
        if self.lease.left_s < self.lease.length_ms / 1000 / RENEWALS:
            await self._first_of({asyncio.create_task(self._make_sure())})
            if not self.lease.held:
                self._lease_over("it was over before anything began")
                return Report(lost=True)
        self._renew_later()
        try:
            report = await self._run()
            if self.lease.over is None:
                self.lease.end(Over.SETTLED)
            await self._left_behind()
            return report
        finally:
            await self._renew_no_more()

    def is_running_in(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether that task is its handler's."""
        return task is not None and task is self._work

    def interrupt(self, why: Why) -> None:
        """Cancel the handler, for the first reason that there is; a function in a thread runs on."""
        if why is Why.SHUTDOWN and not self._abandoned.done():
            self._abandoned.set_result(None)
        if self._why is None:
            self._why = why
            self._interrupted.set_result(None)
            if self._work is not None:
                self._work.cancel()

    async def _run(self) -> Report:
        if self._why is Why.SHUTDOWN:
            return await self._settled(endings.interrupted())
        handling = self._bench.handlers.find(self.job)
        if handling is None:
            ending = endings.unknown(self.job)
            if self._bench.missed.is_news(self._target, self._bench.clock.monotonic()):
                where = f"job {self.job.id} goes back to queue {self.job.queue}"
                log.warning("%s for %g s: %s", where, ending.delay_s, ending.error)
            return await self._settled(ending)
        return await self._ended(handling)

    async def _ended(self, handling: Handling) -> Report:
        times = [ms for ms in (handling.timeout_ms, self.job.timeout_ms) if ms is not None]
        self.timeout_s = min(times) / 1000 if times else None
        if self._tells:
            log.debug("job %s: attempt %d begins", self.job.id, self.job.attempt, extra=endings.fields_of(self.job))
        self._work = work = asyncio.create_task(self._handled(handling))
        if not await self._first_of({work, self._interrupted}, self.timeout_s):
            log.warning("timed_out: job %s: %s is not done after %g s", self.job.id, self._target, self.timeout_s)
            self.interrupt(Why.TIMED_OUT)
        if self._why is not None and not work.done():
            await self._stopping(work, handling)
        if not work.done():
            return await self._does_not_stop(handling)
        result, error = work.result()
        if error is None and (isinstance(result, Accepted) or result is Accepted):
            return await self._accepted(result if isinstance(result, Accepted) else Accepted())
        if error is None or self._why is None:
            return await self._settled(HandlerOutcome(ok=True, result=result) if error is None else self._failed(error))
        return await self._settled_interrupted(error)

    def _failed(self, error: BaseException) -> HandlerOutcome:
        ending = endings.failed(error)
        if isinstance(error, RetryLater):
            log.info(
                "job %s: %s asks to be called again in %d s: %s", self.job.id, self._target, ending.delay_s,
                ending.error,
            )  # fmt: skip
        else:
            log.warning(
                "job %s: the handler of %s failed", self.job.id, self._target, exc_info=error,
                extra=endings.fields_of(self.job),
            )  # fmt: skip
        return ending

    async def _handled(self, handling: Handling) -> tuple[Any, BaseException | None]:
        """Return what the handler returned or raised, both as values: its end must not be the worker's."""
        try:
            self.args = self.job.args
            if API in modules:
                result = await self._traced(handling)
            else:
                result = await handling(self.args, Context(self), self._bench.threads)
            if isinstance(result, Exception):
                return None, result  # returned where it should have been raised, as in the receiver kit
            return result, None
        except KeyboardInterrupt:
            raise  # the process ends here, and the lease after it
        except BaseException as error:  # SystemExit, GeneratorExit and groups too
            return None, error

    async def _traced(self, handling: Handling) -> Any:
        """Run the handler in its span, if there are any, which notes what it raises, or returns in place of that."""
        job = self.job
        with self._bench.tracing.handling(job, job.instance_name, job.queue):
            result = await handling(self.args, Context(self), self._bench.threads)
            if isinstance(result, Exception):
                raise result
        return result

    async def _stopping(self, work: asyncio.Task[Any], handling: Handling) -> None:
        """Give a cancelled handler time to clean up, without a limit once the lease is over."""
        if self._why in (Why.LOST, Why.CANCELLED):
            await self._first_of({work, self._abandoned})
        await self._first_of({work}, GRACE_S if handling.is_async else THREAD_GRACE_S)

    async def _does_not_stop(self, handling: Handling) -> Report:
        """Settle an attempt whose thread, or coroutine, is still running."""
        how = "it did not stop and is" if handling.is_async else "its thread cannot be stopped and is"
        goes_on = f"; {how} still running"
        if self._why is Why.LOST:
            return Report(lost=True)
        if self._why is Why.CANCELLED:
            return await self._settled(endings.cancelled())
        if self._why is Why.TIMED_OUT:
            return await self._settled(endings.timed_out(self.timeout_s or 0, goes_on=goes_on))
        # Not before the lease would have ended: until then the thread may be through.
        return await self._settled(endings.interrupted(delay_s=max(self.lease.left_s, 0), goes_on=goes_on))

    async def _settled_interrupted(self, error: BaseException) -> Report:
        """Settle an attempt that was interrupted and has raised, mostly a CancelledError."""
        if self._why is Why.LOST:
            return Report(lost=True)
        if self._why is Why.CANCELLED:
            return await self._settled(endings.cancelled())
        said = endings.failed(error)
        if not said.retryable or not said.charge:
            return await self._settled(said)  # it said what is to become of the job
        if self._why is Why.TIMED_OUT:
            return await self._settled(endings.timed_out(self.timeout_s or 0))
        return await self._settled(endings.interrupted())

    async def _left_behind(self) -> None:
        """Keep its place in the worker for a handler that is still running; its result is only logged."""
        work = self._work
        if work is None or work.done():
            return
        await self._first_of({work, self._abandoned})
        if work.done():
            log.warning("job %s: %s ended after its attempt; its result is ignored", self.job.id, self._target)
        else:
            log.warning(
                "job %s: %s is still running after its attempt ended; its result is ignored", self.job.id, self._target
            )

    # ---- Settling --------------------------------------------------------------------------------

    async def _settled(self, ending: HandlerOutcome) -> Report:
        try:
            settlement, ending = await self._settling.settle(ending)
        except asyncio.CancelledError:  # the event loop ends: the host is told nothing, and the lease runs out
            self.interrupt(Why.SHUTDOWN)
            return Report(ending, lost=True)
        if self._tells:
            state, fields = settlement and settlement.state, endings.fields_of(self.job)
            log.debug("job %s: attempt %d is settled: %s", self.job.id, self.job.attempt, state, extra=fields)
        return Report(ending, settlement, lost=settlement is None)

    async def _accepted(self, how: Accepted) -> Report:
        """Hold the lease for work that continues elsewhere: whoever does it settles the attempt."""
        self.lease.length_ms = how.held_ms
        task = asyncio.create_task(self._renew())
        await self._first_of({task})
        return Report(lost=task.cancelled() or not task.result())

    # ---- The lease -------------------------------------------------------------------------------

    async def _make_sure(self) -> None:
        """Renew a lease at once whose claim waited for most of a lease: only the host knows when the lease began."""
        arrived, length = self._monotonic(), self.lease.length_ms
        self.lease.granted(arrived, length)  # for so long it may be asked, if it is not over before
        if await self._renew():
            return
        self.lease.end(Over.LOST)

    def _renew_later(self) -> None:
        """Renew when a third of the lease is gone; each renewal calls this again."""
        if self._renewal is not None:
            self._renewal.cancel()
        self._renewal = self._loop.call_later(max(self.lease.renew_at - self._monotonic(), 0), self._renew_now)

    def _renew_now(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()  # it failed before this lease was granted, and may pause for longer than that lasts
        if self.lease.over is None:
            self._renewing = self._loop.create_task(self._renew())

    async def _renew_no_more(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._renewing is not None and not self._renewing.done():
            self._renewing.cancel()
            await asyncio.wait([self._renewing])

    async def _renew(self) -> bool:
        """Ask until the host answers or the lease is over. Return whether it is held."""
        pauses, heard_at = Pauses(self._bench.random), float("-inf")
        while True:
            if self.lease.over is not None:
                return False
            if (left := self.lease.left_s) <= 0:
                self._lease_over("it could not be renewed in time")
                return False
            try:
                async with asyncio.timeout(left):
                    await self.extend(self.lease.length_ms)
                return True
            except StaleLeaseError:
                if self._settling.asked:
                    return False
                continue
            except TimeoutError:
                continue
            except Exception as error:  # a source may fail in any way, and while the lease lives it may recover
                if (now := self._monotonic()) >= heard_at + HEARD_EVERY_S:
                    heard_at = now
                    log.log(
                        logging.INFO if may_pass(error) else logging.ERROR,
                        "job %s: its lease could not be renewed yet: %s", self.job.id, endings.described(error),
                    )  # fmt: skip
            await asyncio.sleep(pauses.next(within=self.lease.left_s))

    def _refused(self, error: StaleLeaseError) -> None:
        if self._settling.asked:
            return  # the host books the settlement first, and refuses this question after it
        if error.details.get("cancelled"):
            if self.lease.end(Over.CANCELLED):
                log.info("job %s was cancelled while it ran here", self.job.id)
                self.interrupt(Why.CANCELLED)
        else:
            self._lease_over("the host says so")

    def _lease_over(self, how: str) -> None:
        if self.lease.end(Over.LOST):
            log.warning(
                "lease_lost: job %s, attempt %d of %s: %s; another attempt may run",
                self.job.id, self.job.attempt, self._target, how,
            )  # fmt: skip
            self.interrupt(Why.LOST)

    # ---- Waiting ---------------------------------------------------------------------------------

    @property
    def _target(self) -> str:
        return (self.job.function_path or self.job.workflow or "")[:200]

    async def _first_of(self, waiting: set[asyncio.Future[Any]], timeout_s: float | None = None) -> bool:
        """Return whether one of them was done in time. A cancellation meanwhile means that the process stops."""
        end = None if timeout_s is None else self._loop.time() + timeout_s
        while not any(one.done() for one in waiting):
            try:
                if not await _one_done(self._loop, waiting, end):
                    return False
            except asyncio.CancelledError:
                self.interrupt(Why.SHUTDOWN)
        return True


async def _one_done(loop: asyncio.AbstractEventLoop, waiting: set[asyncio.Future[Any]], end: float | None) -> bool:
    """Wait as `asyncio.wait` does for the first of them, at half its cost: every job waits so."""
    waiter: asyncio.Future[bool] = loop.create_future()

    def tell(done: asyncio.Future[Any] | None) -> None:
        if not waiter.done():
            waiter.set_result(done is not None)

    timer = None if end is None else loop.call_at(end, tell, None)
    for one in waiting:
        one.add_done_callback(tell)
    try:
        return await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for one in waiting:
            one.remove_done_callback(tell)
