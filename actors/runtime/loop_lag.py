"""How late the event loop is: told by timers that there are anyway, so an idle host is not woken for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 60.0
KEPT: Final = 64
"""How many late timers are remembered: more of one minute would say nothing more."""
WORTH_MS: Final = 50
"""Timers that ring this late are noted; less is a busy loop's every day."""


class LoopLag:
    """How late timers rang within the last minute."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._late: deque[tuple[float, int]] = deque(maxlen=KEPT)
        self.last_ms = 0
        """How late the last timer rang."""

    def note(self, late_s: float) -> None:
        """Note how late a timer rang, in seconds."""
        self.last_ms = max(int(late_s * 1000), 0)
        if self.last_ms >= WORTH_MS:
            self._late.append((self._monotonic(), self.last_ms))

    def over(self, limit_ms: int) -> list[int]:
        """Return how late those timers of the last minute rang that were later than this, ms."""
        since = self._monotonic() - WINDOW_S
        return [late for at, late in self._late if at > since and late > limit_ms]
