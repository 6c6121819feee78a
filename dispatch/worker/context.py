"""Access of a handler to its job and its attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

import msgspec

from tocsin.dispatch.job_options import OptionsOfJob
from tocsin.dispatch.pulled import Claimed, Parent
from tocsin.dispatch.receiver.outcomes import HandlerError, RetryLater, check_lease_ms
from tocsin.dispatch.receiver.received import Leased, fence_of
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.worker.ending import later_s
from tocsin.dispatch.worker.lease import Lease
from tocsin.errors import InvalidInputError

DAY_MS = 86_400_000
NO_CHANCE = Random(0)
"""For a delay without its jitter no number is drawn."""


class RunningAttempt(Protocol):
    """Answer what a context asks of the attempt that made it."""

    job: Claimed
    lease: Lease
    args: Any
    timeout_s: float | None

    @property
    def is_cancelled(self) -> bool: ...
    def now_ms(self) -> int: ...
    def remaining_s(self) -> float | None: ...
    async def extend(self, lease_ms: int | None) -> int: ...


class Context(OptionsOfJob):
    """The second argument of a handler. It has what a receiver's `Received` has too, so one handler serves both."""

    def __init__(self, attempt: RunningAttempt) -> None:
        self._attempt = attempt
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"Context({self.job!r})"

    @property
    def job(self) -> Claimed:
        """Return the job as it was claimed."""
        return self._attempt.job

    @property
    def attempt(self) -> int:
        """Return the count of dispatches, from 1; it never repeats for a webhook_id."""
        return self.job.attempt

    @property
    def parent(self) -> Parent | None:
        """Return what it follows: the job before it in a chain with its `result`, one that died, or a group."""
        return self.job.parent

    # ---- Asking ----------------------------------------------------------------------------------

    def assert_ownership(self) -> None:
        """Raise a LeaseLostError if this worker may have lost this attempt. Call it before effects are published.

        It only looks at this machine's clock, so it may be called often, and in any thread.
        """
        self._attempt.lease.check(self.job.id)

    async def extend(self, lease_ms: int | None = None) -> int:
        """Ask the host to hold the lease until `lease_ms` (1 s to 1 h) from now. Return epoch ms of its clock.

        The worker renews leases by itself, from now on for this length; call it before the event loop is blocked for
        longer than a lease. LeaseLostError if the attempt is over; UnreachableError and others without an answer.
        """
        check_lease_ms(lease_ms, "lease_ms")
        return await self._attempt.extend(lease_ms)

    def extend_from_thread(self, lease_ms: int | None = None) -> int:
        """Do as `extend`, in a handler that runs in a thread, and wait for the answer."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise InvalidInputError("extend_from_thread would wait for ever here: await extend() instead")
        return asyncio.run_coroutine_threadsafe(self.extend(lease_ms), self._loop).result()

    def will_retry(self, error: BaseException) -> bool:
        """Return whether the job would be tried again if this attempt ended now with `error`.

        The kind of error, the failures so far and the job's expiry decide. False for a job that was cancelled.
        """
        job, now = self.job, self._attempt.now_ms()
        if (isinstance(error, HandlerError) and not error.retryable) or self._attempt.is_cancelled:
            return False
        retry = job.retry or Retry()
        if isinstance(error, RetryLater) and now < job.scheduled_for + DAY_MS:
            delay = later_s(error) * 1000
        elif job.attempts >= retry.max_retries:
            return False
        elif isinstance(error, RetryLater):
            delay = later_s(error) * 1000
        else:
            delay = msgspec.structs.replace(retry, jitter=0).delay_ms(job.attempts + 1, NO_CHANCE)
        return job.expires_at is None or now + delay < job.expires_at

    def remaining_s(self) -> float | None:
        """Return seconds until this attempt times out; negative when it has; None if it has no timeout."""
        return self._attempt.remaining_s()

    # ---- As `Received` ---------------------------------------------------------------------------

    @property
    def args(self) -> Any:
        """Return the args as they were scheduled: tagged values are Python's types again."""
        return self._attempt.args

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def webhook_id(self) -> str:
        """Return `<id>:<incarnation>`, the same over all attempts: write it with your own writes to have them once."""
        return self.job.webhook_id

    @property
    def instance(self) -> str:
        """Return the scheduler's name."""
        return self.job.instance_name

    @property
    def function_path(self) -> str | None:
        return self.job.function_path

    @property
    def workflow(self) -> str | None:
        return self.job.workflow

    @property
    def target(self) -> str:
        """Return the function path or the workflow's name."""
        return self.job.function_path or self.job.workflow or ""

    @property
    def lease(self) -> str:
        return self.job.lease

    @property
    def leased(self) -> Leased:
        """Return what a `LeaseClient` needs, here or in another process."""
        return Leased(instance=self.instance, id=self.id, lease=self.lease, webhook_id=self.webhook_id)

    @property
    def fence(self) -> tuple[int, int]:
        """Return a number that is higher for each later attempt: store it with your writes, and refuse lower ones."""
        return fence_of(self.job.lease)

    @property
    def scheduled_for(self) -> int:
        """Return the original due instant, whatever retries did."""
        return self.job.scheduled_for

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def schedule(self) -> Mapping[str, Any] | None:
        """Return name, slot, and more of an occurrence of a recurring job, named as in JSON."""
        slot = self.job.schedule
        return None if slot is None else msgspec.to_builtins(slot)

    @property
    def timeout_s(self) -> float | None:
        """Return how long this attempt may take; None if nothing says so."""
        return self._attempt.timeout_s

    @property
    def traceparent(self) -> str | None:
        """Return the trace in which the job was scheduled, with a span of this attempt; None if there was none."""
        return self.job.traceparent
