"""The clock seam: the only place above `storage` that tells the time or waits for it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for due instants and signatures, monotonic time for intervals."""

    def now_ms(self) -> int:
        """Wall time, integer ms since the epoch. May step in either direction."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never steps."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    @property
    def look_again_s(self) -> float:
        """For how long a step of the wall clock, or a suspended machine, may go unnoticed."""
        ...


class SystemClock:
    """The real one."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def look_again_s(self) -> float:
        return 1.0
