"""How many times an expression matches between two instants, by arithmetic: nobody walks a year of seconds.

A day matches or not, and each day that does has the same times; what a change of the clock leaves out or repeats is
added up piece by piece, by the rules of `rule`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from typing import Final

from tocsin.actors.cron.expression import Expression
from tocsin.actors.cron.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field, Kind
from tocsin.actors.cron.zones import Change, Zone

DAY_S: Final = 86_400
YEARS: Final = 200
"""Between instants further apart nothing is counted: a clock that was wrong by so much says nothing."""
_FIRST: Final = date(1970, 1, 1).toordinal()
_MONTHS: Final = 4_000
"""So many months are remembered per expression."""


def count(expression: Expression, zone: Zone, first: int, last: int) -> int | None:
    """Count the instants from `first` to `last` (both in seconds, both included) at which it is due; None: too far
    apart."""
    if last < first:
        return 0
    if last - first > YEARS * 366 * DAY_S:
        return None
    tally = tally_of(expression)
    changes = list(_changes(zone, first, last))
    return (_real_time if expression.real_time else _fixed)(tally, zone, changes, first, last)


def _real_time(tally: Tally, zone: Zone, changes: Sequence[Change], first: int, last: int) -> int:
    """Count whatever the clock shows, also twice."""
    found, start, ahead = 0, first - 1, zone.offset(first - 1)
    for change in changes:
        found += tally.between(start + ahead, change.instant - 1 + ahead)
        start, ahead = change.instant - 1, change.after
    return found + tally.between(start + ahead, last + ahead)


def _fixed(tally: Tally, zone: Zone, changes: Sequence[Change], first: int, last: int) -> int:
    """Count each time of the clock once; those that are skipped are one, at the first instant after the gap."""
    found, start = 0, first - 1
    ahead, shown = zone.offset(start), _shown(zone, start)  # the latest time that the clock has shown so far
    for change in changes:
        found += tally.between(max(shown, start + ahead), change.instant - 1 + ahead)
        shown = max(shown, change.instant - 1 + ahead)
        if change.first_wall - 1 > shown:
            stands_in = tally.between(shown, change.first_wall - 1) > 0
            found += stands_in and not tally.between(change.first_wall - 1, change.first_wall)
            shown = change.first_wall - 1
        start, ahead = change.instant - 1, change.after
    return found + tally.between(max(shown, start + ahead), last + ahead)


def _shown(zone: Zone, instant: int) -> int:
    wall = zone.wall(instant)
    before, after = zone.offsets_at(wall)
    if before > after and wall - before < instant:  # the second pass
        return zone.change_at(wall, before, after).last_wall - 1
    return wall


# ---- On a clock without zone ---------------------------------------------------------------------


@lru_cache(1_024)
def tally_of(expression: Expression) -> Tally:
    return Tally(expression)


class Tally:
    """Counts matches of one expression: its days and its times of a day."""

    def __init__(self, expression: Expression) -> None:
        second, minute, hour, self._day, self._month, self._weekday = expression.fields
        self._seconds = [0] if second is None else _values(second, SECOND)
        self._minutes, self._hours = _values(minute, MINUTE), _values(hour, HOUR)
        self._months = frozenset(_values(self._month, MONTH))
        self._each_day = all(
            len(_values(field, kind)) == kind.size
            for field, kind in ((self._day, DAY), (self._month, MONTH))
        ) and len(_values(self._weekday, WEEKDAY)) == 7  # fmt: skip
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    def between(self, after: int, until: int) -> int:
        """Count the times of the clock that match and are later than `after`, and not later than `until`; in
        seconds."""
        if until <= after:
            return 0
        (from_day, from_s), (to_day, to_s) = divmod(after, DAY_S), divmod(until, DAY_S)
        per_day = len(self._hours) * len(self._minutes) * len(self._seconds)
        found = self._days(from_day, to_day - 1) * per_day
        found += self._times(to_s) if self._days(to_day, to_day) else 0
        return found - (self._times(from_s) if self._days(from_day, from_day) else 0)

    def _times(self, second_of_day: int) -> int:
        """Count the times of a day that matches, up to this second."""
        hour, rest = divmod(second_of_day, 3_600)
        minute, second = divmod(rest, 60)
        found = bisect_left(self._hours, hour) * len(self._minutes) * len(self._seconds)
        if hour in self._hours:
            found += bisect_left(self._minutes, minute) * len(self._seconds)
            if minute in self._minutes:
                found += bisect_right(self._seconds, second)
        return found

    def _days(self, first: int, last: int) -> int:
        """Count the days that match, of those from `first` to `last` since 1970, both included."""
        if last < first:
            return 0
        if self._each_day:
            return last - first + 1
        start, end = date.fromordinal(_FIRST + first), date.fromordinal(_FIRST + last)
        found = 0
        for year in range(start.year, end.year + 1):
            from_month = start.month if year == start.year else 1
            for month in range(from_month, (end.month if year == end.year else 12) + 1):
                found += len(self._month_days(year, month))
        found -= bisect_left(self._month_days(start.year, start.month), start.day)
        end_days = self._month_days(end.year, end.month)
        return found - (len(end_days) - bisect_right(end_days, end.day))

    def _month_days(self, year: int, month: int) -> tuple[int, ...]:
        if month not in self._months:
            return ()
        days = self._known.get((year, month))
        if days is None:
            if len(self._known) >= _MONTHS:
                self._known.clear()
            first = date(year, month, 1)
            length = ((first + timedelta(days=31)).replace(day=1) - first).days
            days = tuple(day for day in range(1, length + 1) if self._on(day, length, first.isoweekday()))
            self._known[year, month] = days
        return days

    def _on(self, day: int, length: int, of_first: int) -> bool:
        """Tell whether it matches on a day of a month. `length`: of the month; `of_first`: the weekday of its first
        day, Sunday being 7 or 0."""
        weekday = (of_first + day - 1) % 7
        by_day = any(_is_day(choice, day, length, of_first) for choice in self._day.choices)
        by_weekday = any(_is_weekday(choice, weekday, day, length) for choice in self._weekday.choices)
        if self._day.starred or self._weekday.starred:
            return by_day and by_weekday
        return by_day or by_weekday


def _is_day(choice: str, day: int, length: int, of_first: int) -> bool:
    if choice == "*":
        return True
    if choice == "l":
        return day == length
    if choice.endswith("w"):
        return day == _nearest(min(int(choice[:-1]), length), length, of_first)
    return str(day) in choice.split(",")


def _nearest(day: int, length: int, of_first: int) -> int:
    """Return the weekday nearest to it, within the month."""
    weekday = (of_first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _is_weekday(choice: str, weekday: int, day: int, length: int) -> bool:
    if choice == "*":
        return True
    if choice.startswith("l"):
        return int(choice[1:]) == weekday and day + 7 > length
    if "#" in choice:
        which, _, nth = choice.partition("#")
        return int(which) == weekday and (day - 1) // 7 + 1 == int(nth)
    return str(weekday) in choice.split(",")


def _values(field: Field, kind: Kind) -> list[int]:
    """Return the values that are mere numbers, in order."""
    if "*" in field.choices:
        return list(range(kind.least, kind.least + (7 if kind is WEEKDAY else kind.size)))
    return sorted(int(part) for choice in field.choices for part in choice.split(",") if part.isdigit())


# ---- Changes of the clock ------------------------------------------------------------------------


def _changes(zone: Zone, first: int, last: int) -> Iterator[Change]:
    """Return the changes from `first` to `last`. No zone changes its clock twice within a day."""
    if zone.name == "UTC":
        return
    for year in range(
        date.fromordinal(_FIRST + first // DAY_S).year, date.fromordinal(_FIRST + last // DAY_S).year + 1
    ):
        yield from (change for change in _of_year(zone.name, year) if first <= change.instant <= last)


@lru_cache(16_384)
def _of_year(name: str, year: int) -> tuple[Change, ...]:
    zone = Zone(name)
    start = (date(year, 1, 1).toordinal() - _FIRST) * DAY_S
    end = (date(year + 1, 1, 1).toordinal() - _FIRST) * DAY_S
    found: list[Change] = []
    before = zone.offset(start - 1)
    for instant in range(start + DAY_S - 1, end, DAY_S):
        after = zone.offset(instant)
        if after != before:
            low, high = instant - DAY_S, instant
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if zone.offset(middle) == before else (low, middle)
            found.append(Change(high, before, after))
        before = after
    return tuple(found)
