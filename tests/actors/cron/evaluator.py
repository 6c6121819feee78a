"""What a cron expression means, said a second time: stepping through real time and asking each instant.

Knows nothing of `tocsin.actors.cron` and uses no cron library: its own reading of the fields, zoneinfo, and the rules
in the member `policy` of `data/cron_cases.json`. Slow and plain on purpose; `compare` holds both against each other.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable
from datetime import date, datetime, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

EPOCH = date(1970, 1, 1).toordinal()
DAY_S = 86_400
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


# ---- Reading -------------------------------------------------------------------------------------


class Expression:
    """The fields of an expression that is right; nothing is refused here."""

    def __init__(self, text: str) -> None:
        words = MACROS.get(text.strip().lower(), text).lower().replace("?", "*").split()
        second, minute, hour, self.day, month, self.weekday = words if len(words) == 6 else ["0", *words]
        self.seconds = spread(second, 0, 59)
        self.minutes = spread(minute, 0, 59)
        self.hours = spread(hour, 0, 23)
        self.months = spread(month, 1, 12, MONTHS, 1)
        self.real_time = minute.startswith("*") or hour.startswith("*")
        self.both_days = self.day.startswith("*") or self.weekday.startswith("*")
        self._days: dict[int, bool] = {}

    def matches(self, wall: int) -> bool:
        """Whether a clock that shows `wall`, in seconds since 1970 without zone, shows a time of the expression."""
        return (
            wall // 60 % 60 in self.minutes
            and wall // 3600 % 24 in self.hours
            and wall % 60 in self.seconds
            and self.on(wall // DAY_S)
        )

    def on(self, day: int) -> bool:
        """Whether it has times on this day, counted from 1970-01-01."""
        if day not in self._days:
            self._days[day] = self._on(date.fromordinal(EPOCH + day))
        return self._days[day]

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month = any(in_month(item, day) for item in self.day.split(","))
        of_week = any(in_week(item, day) for item in self.weekday.split(","))
        return of_month and of_week if self.both_days else of_month or of_week


@cache
def spread(text: str, least: int, most: int, words: tuple[str, ...] = (), first: int = 0) -> frozenset[int]:
    """The values of a field: a list of `*`, values and ranges, each perhaps with a step."""
    named = {word: n for n, word in enumerate(words, first)}
    found: set[int] = set()
    for item in text.split(","):
        of, _, step = item.partition("/")
        if of == "*":
            low, high = least, most
        else:
            start, _, end = of.partition("-")
            low = named[start] if start in named else int(start)
            high = named[end] if end in named else int(end) if end else most if step else low
            if end == "sun" and low:
                high = 7
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def in_month(item: str, day: date) -> bool:
    last = monthrange(day.year, day.month)[1]
    if item == "l":
        return day.day == last
    if not item.endswith("w"):
        return day.day in spread(item, 1, 31)
    meant = day.replace(day=min(int(item[:-1]), last))
    near = [meant + timedelta(days=n) for n in (0, -1, 1, -2, 2)]  # the nearest weekday first
    return day == next(it for it in near if it.weekday() < 5 and it.month == day.month)


def in_week(item: str, day: date) -> bool:
    today = day.isoweekday() % 7
    if "#" in item:
        which, nth = item.split("#")
        return today in weekdays(which) and (day.day - 1) // 7 + 1 == int(nth)
    if item.endswith("l") and item != "l":
        return today in weekdays(item[:-1]) and (day + timedelta(days=7)).month != day.month
    return today in weekdays(item)


@cache
def weekdays(text: str) -> frozenset[int]:
    return frozenset(n % 7 for n in spread(text, 0, 7, WEEKDAYS))


# ---- Stepping ------------------------------------------------------------------------------------


def walls(zone: tzinfo, instants: range) -> list[int]:
    """What the clock shows at each instant, in seconds since 1970 without zone."""
    return [instant + offset(zone, instant) for instant in instants]


def offset(zone: tzinfo, instant: int) -> int:
    there = datetime.fromtimestamp(instant, zone).utcoffset()
    assert there is not None
    return there.days * DAY_S + there.seconds


def fires(expression: Expression, instants: range, shown: Iterable[int]) -> list[int]:
    """The instants at which it is due, `shown` being what the clock shows at each.

    Steps are minutes or seconds. What was repeated before the first instant is not known here: begin early enough.
    """
    if expression.real_time:
        return [instant for instant, wall in zip(instants, shown, strict=True) if expression.matches(wall)]
    found, passed = [], set()
    before: int | None = None
    for instant, wall in zip(instants, shown, strict=True):
        skipped = range(wall if before is None else before + instants.step, wall, instants.step)
        if (wall not in passed and expression.matches(wall)) or any(
            w not in passed and expression.matches(w) for w in skipped
        ):
            found.append(instant)
        passed.add(wall)
        before = wall
    return found


def changes(zone: ZoneInfo, instants: range) -> list[tuple[int, int]]:
    """Where the offset changes, to the second, and by how many seconds; found by looking at each instant."""
    found = []
    before = offset(zone, instants[0])
    for instant in instants[1:]:
        now = offset(zone, instant)
        if now != before:
            low, high = instant - instants.step, instant
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(zone, middle) == before else (low, middle)
            found.append((high, now - before))
        before = now
    return found
