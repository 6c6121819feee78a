"""The clock seam: the only module above `storage` that reads the time or waits for it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for due instants and signatures, monotonic time for intervals."""

    def now_ms(self) -> int:
        """Return wall time, integer ms since the epoch. It may step in either direction."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; they never step."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    @property
    def look_again_s(self) -> float:
        """How long a step of the wall clock, or a suspension of the machine, may go unnoticed."""
        ...


class SystemClock:
    """The real one."""

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @property
    def look_again_s(self) -> float:
        return 1.0
