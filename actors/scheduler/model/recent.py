"""How often something happened lately: bounded memory, and no timer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

STEPS: Final = 20


class Recent:
    """Counts what happened within the last `window_s` seconds, to a twentieth of that."""

    __slots__ = ("_monotonic", "_step_s", "_steps", "_total")

    def __init__(self, monotonic: Callable[[], float], window_s: float) -> None:
        self._monotonic, self._step_s = monotonic, window_s / STEPS
        self._steps: deque[list[int]] = deque()
        """Which step, and how many in it; the oldest first."""
        self._total = 0

    def note(self, count: int = 1, at: float | None = None) -> None:
        """Count what happens now, or what happened at a monotonic instant, later than what was counted before it."""
        step = int((self._monotonic() if at is None else at) / self._step_s)
        if not self._steps or self._steps[-1][0] < step:
            self._forget(step)
            self._steps.append([step, 0])
        self._steps[-1][1] += count
        self._total += count

    @property
    def total(self) -> int:
        """Return how many there were within the window."""
        if self._steps:
            self._forget(int(self._monotonic() / self._step_s))
        return self._total

    def clear(self) -> None:
        self._steps.clear()
        self._total = 0

    def _forget(self, now: int) -> None:
        while self._steps and self._steps[0][0] <= now - STEPS:
            self._total -= self._steps.popleft()[1]
