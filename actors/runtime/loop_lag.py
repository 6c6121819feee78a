"""How late the event loop is: told by timers that there are anyway, so an idle host is not woken for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tocsin.storage.histogram import Histogram, observe

WINDOW_S: Final = 60.0
KEPT: Final = 64
"""How many late timers are remembered: more of one minute would say nothing more."""
EDGES_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WORTH_S: Final = 0.05
"""Timers that ring this late are noted; less is a busy loop's every day."""
MOST_TIMERS: Final = 256
"""So many timers are counted together, or fewer when somebody asks."""


class LoopLag:
    """How late timers rang within the last minute."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._late: deque[tuple[float, int]] = deque(maxlen=KEPT)
        self.timers: list[float] = []
        """How late timers rang that are not counted yet, in seconds."""
        self._seen = Histogram(EDGES_S)

    def note(self, late_s: float) -> None:
        """Note how late the last timer rang, in seconds, and count those before it. To be called when one was late, or
        there are many."""
        if late_s >= WORTH_S:
            self._late.append((self._monotonic(), int(late_s * 1000)))
        self._count()

    @property
    def seen(self) -> Histogram:
        """How late all of them rang since the host was made."""
        self._count()
        return self._seen

    def _count(self) -> None:
        observe(self.timers, self._seen)
        self.timers.clear()

    def over(self, limit_ms: int) -> list[int]:
        """Return how late those timers of the last minute rang that were later than this, ms."""
        since = self._monotonic() - WINDOW_S
        return [late for at, late in self._late if at > since and late > limit_ms]
