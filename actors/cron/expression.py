"""A cron expression: five fields, or six with seconds first, and its next match on a clock without zone.

Read strictly by `fields`, searched by croniter, which gets plain lists only. Where both day fields hold something,
either may match, unless one starts with `*`: then both must (the rule of Vixie's cron). croniter joins some such pairs
in the other way, so each side is searched by itself and the earliest match counts.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from croniter import croniter
from croniter.croniter import CroniterBadDateError, CroniterError

from tocsin.actors.cron import fields
from tocsin.actors.cron.fields import Field
from tocsin.errors import InvalidCronError

MAX_LENGTH: Final = 256
MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
YEARS: Final = 40
"""Years without a match after which an expression counts as never firing: 29 February on a given weekday comes after 40
at most, and between 1970 and 2010 years began with each weekday, both common and leap."""
LATEST_S: Final = 250_246_627_200
"""The year 9900, in seconds since 1970: nothing is searched from there on, since datetime ends with 9999."""

_KINDS: Final = (fields.SECOND, fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)
_ZONE: Final = re.compile(r"[A-Za-z]+(/[A-Za-z_]+)+", re.ASCII)
_BLANKS: Final = " \t\r\n"
_EPOCH: Final = datetime(1970, 1, 1)


class Expression:
    """Made once per definition; InvalidCronError says what is wrong, and with which field."""

    def __init__(self, text: str) -> None:
        self.text = _checked(text)
        self.fields = self._read()
        """Second (None if there are five), minute, hour, day of month, month, day of week."""
        second, minute, hour, day, month, weekday = self.fields
        self.has_seconds = second is not None
        self.real_time = minute.starred or hour.starred
        """True if it runs through a clock change in real time; any other fires once for each of its times."""
        sides = [self._side(side) for side in _sides(second, minute, hour, day, month, weekday)]
        self._sides = [side for side in sides if _next(side, 0) is not None]
        """Without those that never match: each search would go through all the years for them."""
        if not self._sides:
            raise self._wrong("there is no such date in any year, so it never fires (the last day of a month is L)")

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def next_wall(self, wall: int) -> int | None:
        """Find the first match strictly later, in seconds since 1970 on a clock without zone; None from the year 9900
        on."""
        if wall >= LATEST_S:
            return None
        found = [match for side in self._sides if (match := _next(side, wall)) is not None]
        return min(found, default=None)

    def _read(self) -> tuple[Field | None, Field, Field, Field, Field, Field]:
        expanded = MACROS.get(self.text.lower(), self.text)
        if expanded.startswith("@"):
            raise self._wrong(f"write one of {', '.join(MACROS)}, or five fields; a mere interval is everyMs")
        parts = re.split(r"[ \t]+", expanded)
        if "=" in parts[0] or _ZONE.fullmatch(parts[-1]):
            raise self._wrong("the time zone does not belong into it, give it as timezone")
        if len(parts) not in (5, 6):
            has = f"{len(parts)} field{'' if len(parts) == 1 else 's'}"
            raise self._wrong(f"it has {has}, not 5 (minute hour day month weekday) or 6 (second first)")
        kinds = _KINDS[-len(parts) :]
        try:
            read = [fields.read(part, kind) for part, kind in zip(parts, kinds, strict=True)]
        except InvalidCronError as error:
            raise self._wrong(error.message) from None
        second = read.pop(0) if len(read) == 6 else None
        minute, hour, day, month, weekday = read
        return second, minute, hour, day, month, weekday

    def _side(self, canonical: str) -> croniter:
        try:
            return croniter(
                canonical, _EPOCH, day_or=False, max_years_between_matches=YEARS, second_at_beginning=self.has_seconds
            )
        except CroniterError as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, why: str) -> InvalidCronError:
        return InvalidCronError(f"cron {self.text!r}: {why}", expression=self.text)


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidCronError(f"cron must be a text, not {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise InvalidCronError(f"cron has {len(text)} characters, at most {MAX_LENGTH} are allowed")
    stripped = text.strip(_BLANKS)
    if not stripped:
        raise InvalidCronError("cron is empty: give five fields, like '0 9 * * mon-fri'")
    if not stripped.isascii() or not stripped.replace("\t", " ").isprintable():
        raise InvalidCronError(f"cron {text!r}: only ASCII letters, digits, blanks and * ? / - , # are allowed")
    return stripped


def _sides(second: Field | None, minute: Field, hour: Field, day: Field, month: Field, weekday: Field) -> list[str]:
    """Return the expressions of which any may match: one, or one for each choice of the day fields."""
    pairs = [(of_month, of_week) for of_month in day.choices for of_week in weekday.choices]
    if not (day.starred or weekday.starred):
        pairs = [(of_month, "*") for of_month in day.choices] + [("*", of_week) for of_week in weekday.choices]
    clock = [*(second.choices if second else ()), *minute.choices, *hour.choices]
    return [" ".join([*clock, of_month, *month.choices, of_week]) for of_month, of_week in pairs]


def _next(side: croniter, wall: int) -> int | None:
    try:
        found: datetime = side.get_next(datetime, start_time=_EPOCH + timedelta(seconds=wall))
    except CroniterBadDateError:
        return None
    return int((found - _EPOCH).total_seconds())
