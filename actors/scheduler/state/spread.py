"""Spread late occurrences over time, so that a catch-up does not fire all of them in one second. Those of one schedule
start in the order of their slots."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.rows import DAY_MS

SPREAD_MS: Final = 300_000
SPREAD_OVER: Final = 3_000
"""Late occurrences start 100 ms apart within five minutes; the more there are, the smaller the distance."""
AT_ONCE: Final = 20
"""How many schedules start at once, each with its first late occurrence; all others come after those."""


class Spread:
    """Until when late occurrences of one scheduler are spread, in memory. Instants further ahead than the spread are
    ignored: the clock has stepped back."""

    def __init__(self) -> None:
        self._firsts_until = 0
        self._others_until = 0

    def place(self, now: int, not_before: int, expires_at: int | None) -> tuple[int, int]:
        """Return when a late occurrence may start, and from when on the next one of its schedule.

        `not_before` is when the earlier one of the schedule starts; if that has passed, this is a first one. An
        occurrence that would expire meanwhile is not spread, nor one that waits for a clock that stepped back.
        """
        if not_before > now + SPREAD_MS:  # to others that says nothing
            return not_before, not_before
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
    """Return when the earlier late occurrence starts, as the cursor says; 0 if it says nothing, or the clock stepped
    back by more than a day: until then a schedule waits for the clock, and its slots stay in order."""
    return earlier if earlier is not None and earlier <= now + DAY_MS + SPREAD_MS else 0


def _apart(ahead: int) -> int:
    return max(SPREAD_MS - ahead, 0) // SPREAD_OVER
