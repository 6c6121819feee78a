"""Saying how an attempt ended: again and again while that may help, and never for a lease that is another's."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Final

from tocsin.dispatch.clock import DispatchClock
from tocsin.dispatch.pulled import Claimed, Settlement
from tocsin.dispatch.worker.ending import HandlerOutcome, described, unstorable
from tocsin.dispatch.worker.lease import Lease, Over
from tocsin.dispatch.worker.source import Source
from tocsin.dispatch.worker.trouble import Pauses, gives_up, may_pass
from tocsin.errors import InvalidInputError, PayloadTooLargeError, StaleLeaseError

log = logging.getLogger("tocsin.worker")

LATE_S: Final = 30.0
"""How long a success is offered, though the lease is over: it counts if the job has not begun again."""


class SettleClient:
    """Of one attempt."""

    def __init__(self, source: Source, clock: DispatchClock, random: Random, job: Claimed, lease: Lease) -> None:
        self._source, self._clock, self._random = source, clock, random
        self._job, self._lease = job, lease
        self.asked = False
        """From then on the lease may have been used up by the settlement itself."""

    async def settle(self, ending: HandlerOutcome) -> tuple[Settlement | None, HandlerOutcome]:
        """What the host answered, and to what; None if it did not, or would not hear of it."""
        pauses, began = Pauses(self._random), self._clock.monotonic()
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
            return await self._source.settle(
                self._job.id,
                self._lease.token,
                ok=ending.ok,
                error=ending.error,
                retryable=ending.retryable,
                delay=ending.delay_s,
                charge=ending.charge,
                result=ending.result,
            )

    def _left_s(self, ending: HandlerOutcome, began: float) -> float:
        """For how long it may still be said. A failure is nobody's business once another attempt may run."""
        held = self._lease.left_s if self._lease.over is None else 0.0
        if not ending.ok and self._lease.over is not Over.CANCELLED:
            return held
        return max(held, began + LATE_S - self._clock.monotonic())

    def _rejected(self, error: StaleLeaseError) -> None:
        if self._lease.over is Over.CANCELLED or error.details.get("cancelled"):
            return
        log.warning(
            "stale_settle_rejected: job %s, attempt %d: its lease was over, and what came of it counts no more",
            self._job.id, self._job.attempt,
        )  # fmt: skip
