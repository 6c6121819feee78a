"""A cron rule: an expression on the wall clock of a zone, and the real instants it makes.

A rule whose minute or hour starts with `*` runs through a clock change in real time: whatever the clock shows counts,
both times where it comes twice, and nothing is made up where it is skipped. Any other rule has each of its times once:
the first pass of a repeated one, and for skipped ones the first instant after the gap. (Contract, section 6.)
"""

from __future__ import annotations

from typing import Final
from zoneinfo import ZoneInfo

from tocsin.actors.cron import tally
from tocsin.actors.cron.expression import LATEST_S, Expression
from tocsin.actors.cron.zones import Change, Zone
from tocsin.errors import TocsinError

LATEST_MS: Final = LATEST_S * 1000
"""The year 9900: nothing recurs from there on."""
EARLIEST_S: Final = -5_364_662_400
"""The year 1800, before any clock was changed: earlier starts count as this."""


class Rule:
    """InvalidCronError or UnknownTimezoneError if it cannot be."""

    def __init__(self, expression: str, timezone: str | ZoneInfo = "UTC") -> None:
        self.expression, self.zone = Expression(expression), Zone(timezone)

    def __repr__(self) -> str:
        return f"Rule({self.expression.text!r}, {self.zone.name!r})"

    def next_ms(self, after_ms: int) -> int | None:
        """Find the first instant strictly later, in epoch ms; None if there is none before the year 9900."""
        if after_ms >= LATEST_MS:
            return None
        start = max(after_ms // 1000, EARLIEST_S)
        found = self._real_time(start) if self.expression.real_time else self._fixed(start)
        if found is None or found >= LATEST_S:
            return None
        if found <= start:
            raise TocsinError(f"{self!r} came to {found}, which is not after {start}")
        return found * 1000

    def count(self, first_ms: int, last_ms: int) -> int | None:
        """Count the instants from the first to the last, both included; None if they are two hundred years
        apart."""
        first, last = max(-(-first_ms // 1000), EARLIEST_S), min(last_ms // 1000, LATEST_S - 1)
        return tally.count(self.expression, self.zone, first, last)

    # ---- Each time once ----------------------------------------------------------------------

    def _fixed(self, start: int) -> int | None:
        """Find the next instant of a rule of fixed times. Instants rise with wall times here, so the first match
        later on the clock that is later in time counts."""
        wall = self.zone.wall(start)
        before, after = self.zone.offsets_at(wall)
        if before > after and wall - before < start:  # the second pass: all of its times were in the first
            wall = self.zone.change_at(wall, before, after).last_wall - 1
        match = self.expression.next_wall(wall)
        while match is not None and (instant := self._first(match)) <= start:
            match = self.expression.next_wall(match)
        return None if match is None else instant

    def _first(self, wall: int) -> int:
        before, after = self.zone.offsets_at(wall)
        return wall - before if before >= after else self.zone.change_at(wall, before, after).instant

    # ---- In real time ------------------------------------------------------------------------

    def _real_time(self, start: int) -> int | None:
        wall = self.zone.wall(start)
        again = self._repeated_after(start, wall)
        match = self.expression.next_wall(wall)
        if again is not None and (match is None or match >= again.last_wall):
            second = self.expression.next_wall(again.first_wall - 1)
            if second is not None and second < again.last_wall:
                return second - again.after
        while match is not None:
            before, after = self.zone.offsets_at(match)
            if before < after:
                match = self.expression.next_wall(self.zone.change_at(match, before, after).first_wall - 1)
                continue
            instant = match - before
            return instant if instant > start else match - after
        return None

    def _repeated_after(self, start: int, wall: int) -> Change | None:
        """Find the change after which the clock comes back to before this wall time; only in a first pass."""
        before, after = self.zone.offsets_at(wall)
        if before <= after or wall - before != start:
            return None
        return self.zone.change_at(wall, before, after)
