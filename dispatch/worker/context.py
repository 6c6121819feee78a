"""What a handler is told of its job and its attempt, and what it may ask."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

import msgspec

from tocsin.dispatch.job_options import OptionsOfJob
from tocsin.dispatch.pulled import Claimed, Parent
from tocsin.dispatch.receiver.outcomes import RetryLater, TerminalError, check_lease_ms
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
        """The job as it was claimed."""
        return self._attempt.job

    @property
    def attempt(self) -> int:
        """Counts dispatches from 1; never repeats for a webhook_id."""
        return self.job.attempt

    @property
    def parent(self) -> Parent | None:
        """In a chain: the job before this one, with its `result`."""
        return self.job.parent

    # ---- Asking ----------------------------------------------------------------------------------

    def assert_ownership(self) -> None:
        """LeaseLostError if this attempt is not surely this worker's any more; before effects are published.

        Looks at this machine's clock and asks nobody, so it may be called often, and in any thread. `extend` asks.
        """
        self._attempt.lease.check(self.job.id)

    async def extend(self, lease_ms: int | None = None) -> int:
        """Ask the host to hold the lease until `lease_ms` (1 s to 1 h) from now; until when, epoch ms of its clock.

        The worker renews leases by itself, from now on for this length; say it before the event loop is blocked for
        longer than a lease. LeaseLostError if the attempt is over; UnreachableError and others if nobody answers.
        """
        check_lease_ms(lease_ms, "lease_ms")
        return await self._attempt.extend(lease_ms)

    def extend_from_thread(self, lease_ms: int | None = None) -> int:
        """`extend` for handlers that run in a thread: waits for the answer."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            raise InvalidInputError("extend_from_thread would wait for ever here: await extend() instead")
        return asyncio.run_coroutine_threadsafe(self.extend(lease_ms), self._loop).result()

    def will_retry(self, error: BaseException) -> bool:
        """Whether the job would be tried again if this attempt ended now with `error`.

        The kind of error, the failures so far and the job's expiry decide. False for a job that was cancelled.
        """
        job, now = self.job, self._attempt.now_ms()
        if isinstance(error, TerminalError) or self._attempt.is_cancelled:
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
        """Seconds until this attempt times out; negative when it has; None if it has no timeout."""
        return self._attempt.remaining_s()

    # ---- As `Received` ---------------------------------------------------------------------------

    @property
    def args(self) -> Any:
        """As they were scheduled: tagged values are Python's types again."""
        return self._attempt.args

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def webhook_id(self) -> str:
        """`<id>:<incarnation>`: the same over all attempts, so write it with your own writes to have them once."""
        return self.job.webhook_id

    @property
    def instance(self) -> str:
        """The scheduler's name."""
        return self.job.instance_name

    @property
    def function_path(self) -> str | None:
        return self.job.function_path

    @property
    def workflow(self) -> str | None:
        return self.job.workflow

    @property
    def target(self) -> str:
        """The function path or the workflow's name."""
        return self.job.function_path or self.job.workflow or ""

    @property
    def lease(self) -> str:
        return self.job.lease

    @property
    def leased(self) -> Leased:
        """For a `LeaseClient`, here or in another process."""
        return Leased(instance=self.instance, id=self.id, lease=self.lease, webhook_id=self.webhook_id)

    @property
    def fence(self) -> tuple[int, int]:
        """Higher for each later attempt: store it with your writes, and refuse lower ones."""
        return fence_of(self.job.lease)

    @property
    def scheduled_for(self) -> int:
        """The original due instant, whatever retries did."""
        return self.job.scheduled_for

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def schedule(self) -> Mapping[str, Any] | None:
        """For an occurrence of a recurring job: name, slot, and more, named as in JSON."""
        slot = self.job.schedule
        return None if slot is None else msgspec.to_builtins(slot)

    @property
    def timeout_s(self) -> float | None:
        """How long this attempt may take; None if nothing says so."""
        return self._attempt.timeout_s

    @property
    def traceparent(self) -> None:
        """No trace comes with a job that is pulled."""
        return None
