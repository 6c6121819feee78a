"""When late occurrences start: one after the other, so that a catch-up does not fire everything in one second; those of
one schedule in the order of their slots."""

from __future__ import annotations

from typing import Final

SPREAD_MS: Final = 300_000
SPREAD_OVER: Final = 3_000
"""Late occurrences start 100 ms apart, within five minutes: the more of them, the closer."""
AT_ONCE: Final = 20
"""So many schedules start at once, each with the first of its late ones: the others stand behind those."""


class Spread:
    """Of one scheduler, in memory. Instants that only a clock which stepped back explains count for nothing."""

    def __init__(self) -> None:
        self._firsts_until = 0
        self._others_until = 0

    def place(self, now: int, not_before: int, expires_at: int | None) -> tuple[int, int]:
        """When a late one may start, and from when on the next one of its schedule. `not_before`: an earlier one of
        that starts until then; if that has passed, this is a first one. What would expire meanwhile is not spread."""
        first = not_before <= now
        until = self._firsts_until - (AT_ONCE - 1) * _apart(0) if first else self._others_until
        at = max(now, not_before, until if until <= now + SPREAD_MS else now)
        if expires_at is not None and at >= expires_at:
            at = max(now, not_before)
            return at, at
        after = at + _apart(at - now)
        if first:
            since = self._firsts_until if self._firsts_until <= now + 2 * SPREAD_MS else now
            self._firsts_until = max(since, now) + _apart(at - now)
        else:
            self._others_until = after
        return at, after


def not_before(now: int, earlier: int | None) -> int:
    """Of what a schedule's cursor says."""
    return earlier if earlier is not None and earlier <= now + SPREAD_MS else 0


def _apart(ahead: int) -> int:
    return max(SPREAD_MS - ahead, 0) // SPREAD_OVER
