"""The clock of a host whose store several hosts share: all of them go by the store's, so that they agree on what is
due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tocsin.actors.runtime.clock import Clock

LOOKS: Final = 5
"""The middle one of so many looks counts: one that a pause of this process or of the network falls into is wrong."""
LOOK_S: Final = 1.0
"""At most so often it looks."""
BAND_MS: Final = 50
"""A computer whose clock is no further off is right: a look is not more exact than the way to the store."""


class StoreClock:
    """This computer's clock, put right by the store's. `store_ms()` tells that one's time, or None while it is not
    known."""

    def __init__(self, own: Clock, store_ms: Callable[[], int | None]) -> None:
        self.own, self._store_ms = own, store_ms
        self.monotonic, self.sleep = own.monotonic, own.sleep
        self.ahead_ms = 0
        """The time by which this computer's clock is ahead of the store's, as far as it is put right."""
        self.measured_ms = 0
        """The same, as it was measured last."""
        self._seen: deque[int] = deque(maxlen=LOOKS)
        self._look_at = float("-inf")
        self._began_ms = 0.0  # what this computer's clock showed when the monotonic one began, at the last look

    @property
    def look_again_s(self) -> float:
        return self.own.look_again_s

    def now_ms(self) -> int:
        now = self.monotonic()
        shown = self.own.now_ms()
        stepped = abs(shown - now * 1000 - self._began_ms) > BAND_MS
        if stepped or now >= self._look_at:
            self._look(now, shown, stepped)
        return shown - self.ahead_ms

    def _look(self, now: float, shown: int, stepped: bool) -> None:
        """Compare the clocks. What was seen before this computer's clock was stepped says nothing any more."""
        store_ms = self._store_ms()
        if store_ms is None:
            return
        self._look_at, self._began_ms = now + LOOK_S, shown - now * 1000
        if stepped:
            self._seen.clear()
        self._seen.append(shown - store_ms)
        self.measured_ms = sorted(self._seen)[(len(self._seen) - 1) // 2]
        if abs(self.measured_ms - self.ahead_ms) > BAND_MS:
            self.ahead_ms = self.measured_ms

    def forget(self) -> None:
        """Begin anew, at the start of a host."""
        self._seen.clear()
        self.ahead_ms, self.measured_ms, self._look_at = 0, 0, float("-inf")
