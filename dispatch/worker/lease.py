"""A lease as its holder sees it: until when it surely holds, by the holder's own clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Final

from tocsin.errors import StaleLeaseError

KEPT_BACK: Final = 1 / 100
"""Of a lease: the host counts in whole milliseconds, and no two clocks run at the same rate."""
RENEWALS: Final = 3
"""A lease is renewed when a third of it is gone, so two renewals may fail."""


class LeaseLostError(StaleLeaseError):
    """This attempt is not, or not surely, this worker's any more: another one may run, so publish nothing."""


class Over(Enum):
    """Why a lease is no longer held."""

    LOST = "the lease is over: another attempt may run"
    CANCELLED = "the job was cancelled"
    SETTLED = "the attempt was settled"


class Lease:
    """Held until `deadline`, counted from before the request that gave it was sent, and a hundredth less: never longer
    than the host says.

    `held` may be asked in any thread, also of one whose event loop has been blocked: it looks at the clock.
    """

    def __init__(self, token: str, length_ms: int, asked_at: float, monotonic: Callable[[], float]) -> None:
        self.token, self.length_ms = token, length_ms
        self.over: Over | None = None
        self.changed = asyncio.Event()
        self._monotonic = monotonic
        self.granted(asked_at, length_ms)

    def granted(self, asked_at: float, length_ms: int) -> None:
        """The host said yes to a request sent at `asked_at`."""
        self.length_ms = length_ms
        self.deadline = asked_at + length_ms / 1000 * (1 - KEPT_BACK)
        self.renew_at = asked_at + length_ms / 1000 / RENEWALS
        self.changed.set()

    def end(self, why: Over) -> bool:
        """Whether this is news."""
        news, self.over = self.over is None, self.over or why
        return news

    @property
    def left_s(self) -> float:
        """Seconds; negative when it is over."""
        return self.deadline - self._monotonic()

    @property
    def held(self) -> bool:
        return self.over is None and self.left_s > 0

    def check(self, job_id: str) -> None:
        """LeaseLostError if it is not held."""
        if not self.held:
            over = self.over or Over.LOST
            raise LeaseLostError(
                f"job {job_id!r} is not this worker's any more: {over.value}",
                id=job_id,
                **({"cancelled": True} if over is Over.CANCELLED else {}),
            )
