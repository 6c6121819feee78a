"""The clock of a receiver. It runs without a host, so it brings its own; a host's clock fits as well."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for signatures and claims, monotonic time for how long is left."""

    def now_ms(self) -> int:
        """Integer ms since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never steps."""
        ...


class SystemClock:
    """The real one."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
