"""The clock of receivers and workers. They run without a host, so they bring their own; a host's clock fits as well."""

from __future__ import annotations

import time
from typing import Protocol


class DispatchClock(Protocol):
    """Tell wall time for signatures and claims, and monotonic time for how long is left."""

    def now_ms(self) -> int:
        """Return integer ms since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, which never step."""
        ...


class SystemDispatchClock:
    """The clock of this machine. It asks the module `time` at each call: a lab puts virtual time in its place."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
