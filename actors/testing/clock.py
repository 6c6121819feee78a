"""A clock on the running loop's own time: virtual under `SimLoop`, with steps of the wall clock on request."""

from __future__ import annotations

import asyncio
import math

START_MS = 1_800_000_000_000


class VirtualClock:
    """A `Clock`. Wall time begins at `start_ms` with the loop and may be stepped; monotonic time is the loop's."""

    def __init__(self, start_ms: int = START_MS, look_again_s: float = 60.0) -> None:
        self.look_again_s = look_again_s
        self._offset_ms = start_ms

    def now_ms(self) -> int:
        """Return wall time, ms since the epoch."""
        # A timer set for the n-th millisecond rings at n / 1000 as a float, which may lie a hair below it.
        return self._offset_ms + math.floor(self.monotonic() * 1000 + 1e-3)

    def monotonic(self) -> float:
        """Return seconds since the loop was made; steps of the wall clock do not change it."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time; steps of the wall clock do not shorten it."""
        await asyncio.sleep(seconds)

    def step(self, ms: int) -> None:
        """Move the wall clock forward, or back (negative)."""
        self._offset_ms += ms
