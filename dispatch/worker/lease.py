"""A lease as its holder sees it: until when it surely holds, by the holder's own clock, and how its attempt is settled.

Its token is a fencing token: each later attempt has a higher one, and the host refuses what comes with a lower one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final

from tocsin.dispatch.pulled import Claimed, Settlement
from tocsin.dispatch.worker.ending import HandlerOutcome, described, unstorable
from tocsin.dispatch.worker.source import Source
from tocsin.dispatch.worker.trouble import Pauses, gives_up, may_pass
from tocsin.errors import InvalidInputError, PayloadTooLargeError, StaleLeaseError

log = logging.getLogger("tocsin.worker")

KEPT_BACK: Final = 1 / 100
"""Of a lease: the host counts in whole milliseconds, and no two clocks run at the same rate."""
RENEWALS: Final = 3
"""A lease is renewed when a third of it is gone, so two renewals may fail."""
LATE_S: Final = 30.0
"""How long a success is offered, though the lease is over: it counts if the job has not begun again."""


class LeaseLostError(StaleLeaseError):
    """This worker may have lost this attempt: another attempt may run, so publish nothing."""


class Over(Enum):
    """Why a lease is no longer held."""

    LOST = "the lease is over: another attempt may run"
    CANCELLED = "the job was cancelled"
    SETTLED = "the attempt was settled"


class Lease:
    """Held until `deadline`, which is never later than the host's: it counts from before the request that the host
    granted, and leaves out a hundredth.

    `held` looks at the clock, so any thread may ask, also while the event loop is blocked.
    """

    def __init__(self, token: str, length_ms: int, asked_at: float, monotonic: Callable[[], float]) -> None:
        self.token, self.length_ms = token, length_ms
        self.over: Over | None = None
        self.monotonic = monotonic
        self.granted(asked_at, length_ms)

    def granted(self, asked_at: float, length_ms: int) -> None:
        """Count from `asked_at`, when the request was sent that the host granted."""
        self.length_ms = length_ms
        self.deadline = asked_at + length_ms / 1000 * (1 - KEPT_BACK)
        self.renew_at = asked_at + length_ms / 1000 / RENEWALS

    def end(self, why: Over) -> bool:
        """End it for `why`, unless it is over. Return whether it was held until now."""
        news, self.over = self.over is None, self.over or why
        return news

    @property
    def left_s(self) -> float:
        """Return seconds; negative when it is over."""
        return self.deadline - self.monotonic()

    @property
    def held(self) -> bool:
        return self.over is None and self.left_s > 0

    def check(self, job_id: str) -> None:
        """Raise a LeaseLostError if it is not held."""
        if not self.held:
            over = self.over or Over.LOST
            raise LeaseLostError(
                f"job {job_id!r} is not this worker's any more: {over.value}",
                id=job_id,
                **({"cancelled": True} if over is Over.CANCELLED else {}),
            )


class SettleClient:
    """Settles one attempt: again and again while that may help, and never for a lease that is another's."""

    def __init__(self, source: Source, random: Random, job: Claimed, lease: Lease) -> None:
        self._source, self._random = source, random
        self._job, self._lease = job, lease
        self.asked = False
        """From then on the lease may have been used up by the settlement itself."""

    async def settle(self, ending: HandlerOutcome) -> tuple[Settlement | None, HandlerOutcome]:
        """Return what the host answered, None if it refused or did not answer, and the outcome that it was told."""
        pauses: Pauses | None = None
        began = self._lease.monotonic()
        while (left := self._left_s(ending, began)) > 0:
            try:
                return await self._once(ending, left), ending
            except StaleLeaseError as error:
                self._rejected(error)
                return None, ending
            except Exception as error:  # a source may fail in any way
                if not gives_up(error):
                    log.log(
                        logging.INFO if may_pass(error) else logging.ERROR,
                        "job %s: its end could not be booked yet: %s", self._job.id, described(error),
                    )  # fmt: skip
                    pauses = pauses or Pauses(self._random)
                    await asyncio.sleep(pauses.next(within=self._left_s(ending, began)))
                elif ending.result is not None and isinstance(error, (InvalidInputError, PayloadTooLargeError)):
                    ending = unstorable(error)
                    log.error("job %s: %s", self._job.id, ending.error)
                else:
                    log.error("job %s: its end could not be booked", self._job.id, exc_info=error)
                    return None, ending
        if self._lease.end(Over.LOST):
            log.warning(
                "lease_lost: job %s, attempt %d: its end could not be booked in time", self._job.id, self._job.attempt
            )
        return None, ending

    async def _once(self, ending: HandlerOutcome, timeout_s: float) -> Settlement:
        self.asked = True
        async with asyncio.timeout(timeout_s):
            settlement = await self._source.settle(
                self._job.id,
                self._lease.token,
                ok=ending.ok,
                error=ending.error,
                retryable=ending.retryable,
                delay=ending.delay_s,
                charge=ending.charge,
                result=ending.result,
            )
        self._lease.end(Over.SETTLED)
        return settlement

    def _left_s(self, ending: HandlerOutcome, began: float) -> float:
        """Return for how long it may still be said; a failure only until another attempt may run."""
        held = self._lease.left_s if self._lease.over is None else 0.0
        if not ending.ok and self._lease.over is not Over.CANCELLED:
            return held
        return max(held, began + LATE_S - self._lease.monotonic())

    def _rejected(self, error: StaleLeaseError) -> None:
        if self._lease.over is Over.CANCELLED or error.details.get("cancelled"):
            return
        log.warning(
            "stale_settle_rejected: job %s, attempt %d: its lease was over, and what came of it counts no more",
            self._job.id, self._job.attempt,
        )  # fmt: skip
