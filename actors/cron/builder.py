"""Schedules declared in code: `Cron().daily("report", hour=6, minute=30, target="reports:send")`.

A wrong name, rule, zone, target, option, misfire, overlap or priority raises where it is written, the rest when the set
is registered; both name the schedule. Nothing is registered here: `schedules()` are values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TypedDict, Unpack, get_args
from zoneinfo import ZoneInfo

from tocsin.actors.cron.rule import Rule
from tocsin.dispatch.durations import Duration
from tocsin.dispatch.job_options import SharedOptions
from tocsin.errors import InvalidCronError, InvalidInputError, UnknownTimezoneError

WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
Misfire = Literal["skip", "one", "all"]
Overlap = Literal["skip", "queue", "allow"]
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+")


class _Args(TypedDict, total=False):
    args: Any


class Options(_Args, SharedOptions, total=False):
    """Options of a schedule besides its rule and target: the arguments of `put`, with its limits. Durations may be
    given in ms, too."""

    expires_after: Duration | None
    misfire: Misfire
    grace: Duration
    catch_up_limit: int | None
    overlap: Overlap
    jitter: Duration
    paused: bool | None
    expires_after_ms: int | None
    grace_ms: int
    jitter_ms: int


class _Given(Options, total=False):
    timezone: str | ZoneInfo
    target: str | None
    workflow: str | None


@dataclass(frozen=True, slots=True)
class Declared:
    """One schedule as it was declared: its rule is checked, its options are as they were given."""

    name: str
    cron: str
    timezone: str
    target: str | None
    workflow: str | None
    options: Mapping[str, Any]


class Cron:
    """Declares schedules, one call each, chained as you like; `timezone` (IANA, UTC if left out) holds for each."""

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}

    def __iter__(self) -> Iterator[Declared]:
        return iter(self.schedules())

    def __len__(self) -> int:
        return len(self._declared)

    def schedules(self) -> tuple[Declared, ...]:
        """Return the schedules declared until now, in order."""
        return tuple(self._declared.values())

    # ---- Rules -------------------------------------------------------------------------------

    def every_minute(self, name: str, **given: Unpack[_Given]) -> Self:
        return self.cron(name, "* * * * *", **given)

    def hourly(self, name: str, *, minute: int, **given: Unpack[_Given]) -> Self:
        """Declare one that comes once in each hour, also in each of two that look the same."""
        return self.cron(name, f"{_whole(name, 'minute', minute, 0, 59)} * * * *", **given)

    def daily(self, name: str, *, hour: int, minute: int, **given: Unpack[_Given]) -> Self:
        return self.cron(name, f"{_time(name, hour, minute)} * * *", **given)

    def weekly(self, name: str, *, day: str, hour: int, minute: int, **given: Unpack[_Given]) -> Self:
        """Declare a weekly one. `day` in English, `Monday` or `mon`, in any case."""
        return self.cron(name, f"{_time(name, hour, minute)} * * {_weekday(name, day)}", **given)

    def monthly(self, name: str, *, day: int, hour: int, minute: int, **given: Unpack[_Given]) -> Self:
        """Declare a monthly one. `day` 1 to 31; months without it are passed over. For the last day: `.cron(name, "30
        6 L * *")`."""
        of_month = _whole(name, "day", day, 1, 31)
        return self.cron(name, f"{_time(name, hour, minute)} {of_month} * *", **given)

    def interval(
        self,
        name: str,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        seconds: object = None,
        **given: Unpack[_Given],
    ) -> Self:
        """Declare one for every so many minutes or hours, counted from the full hour or from midnight, so it must
        divide 60 or 24.

        Any other period is not of a `Cron`: register a pair with `every`.
        """
        for unit, value in given.items():
            if unit in _INSTEAD:
                instead = _instead(name, unit, value)
                raise _wrong(name, f"an interval has minutes or hours, no {unit}={_cut(value)}; {instead}")
        units = {"minutes": minutes, "hours": hours, "seconds": seconds}
        named = [unit for unit, value in units.items() if value is not None]
        if seconds is not None:
            raise _wrong(
                name,
                "an interval has no seconds, its floor is minutes=1; for less write a cron of six fields, or "
                f"{_pair(name, seconds, 's')}",
            )
        if len(named) != 1:
            both = ", ".join(named) or "none"
            raise _wrong(
                name, f"an interval has one of minutes and hours, given: {both}; for once a day write .daily(...)"
            )
        if minutes is not None:
            every = _dividing(name, "minutes", minutes, 60, "for once an hour write hours=1")
            return self.cron(name, "* * * * *" if every == 1 else f"*/{every} * * * *", **given)
        every = _dividing(name, "hours", hours, 24, "for once a day write .daily(...)")
        return self.cron(name, "0 * * * *" if every == 1 else f"0 */{every} * * *", **given)

    def cron(self, name: str, expression: str, **given: Unpack[_Given]) -> Self:
        """Declare one with any expression of docs/cron.md."""
        name = _name(name)
        if name in self._declared:
            raise InvalidInputError(f"schedule {_cut(name)} is declared twice, give one of them another name")
        timezone = given.pop("timezone", "UTC")
        target, workflow = _target(name, given.pop("target", None), given.pop("workflow", None))
        for option in given:
            if option not in Options.__annotations__:
                near = get_close_matches(str(option), Options.__annotations__, 1)
                meant = f" (do you mean {near[0]}?)" if near else ""
                raise _wrong(
                    name, f"there is no option {_cut(option)}{meant}, there are {', '.join(Options.__annotations__)}"
                )
        _options(name, given)
        try:
            rule = Rule(expression, timezone)
        except (InvalidCronError, UnknownTimezoneError) as error:
            raise type(error)(f"schedule {_cut(name)}: {error.message}", **error.details) from None
        self._declared[name] = Declared(
            name, rule.expression.text, rule.zone.name, target, workflow, MappingProxyType(dict(given))
        )
        return self


_INSTEAD: Final[Mapping[str, str]] = {
    "minute": "write minutes=",
    "hour": "write hours=",
    "second": "its floor is minutes=1, for less write a cron of six fields",
    "milliseconds": "its floor is minutes=1",
    "day": "for once a day write .daily(...)",
    "days": "for once a day write .daily(...)",
    "week": "for once a week write .weekly(...)",
    "weeks": "for once a week write .weekly(...)",
    "month": "for once a month write .monthly(...)",
    "months": "for once a month write .monthly(...)",
    "year": 'for once a year write .cron(name, "@yearly")',
    "years": 'for once a year write .cron(name, "@yearly")',
    "every": "write minutes= or hours=",
    "interval": "write minutes= or hours=",
    "period": "write minutes= or hours=",
}
"""Of periods that an interval does not take: what to write."""
_DAYS: Final = {"day": 1, "days": 1, "week": 7, "weeks": 7}


def _instead(name: str, unit: str, value: object) -> str:
    """Say how to give the period with a pair, which takes any."""
    whole = value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6 else None
    if unit in _DAYS and whole is not None:
        return f"{_INSTEAD[unit]}, for any other period register {_pair(name, whole * _DAYS[unit], 'd')}"
    if unit in ("every", "interval", "period") and isinstance(value, str) and len(value) < 20:
        return f'{_INSTEAD[unit]}, or register a pair instead: ({name!r}, {{"path": ..., "every": {value!r}}})'
    return f"{_INSTEAD[unit]}, for any other period register {_pair(name, None, 's')}"


# ---- Checks --------------------------------------------------------------------------------------


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InvalidInputError(f"the name of a schedule must be a text that is not empty, not {_cut(name)}")
    stripped = name.strip()
    if not _NAME.fullmatch(stripped):
        raise _wrong(stripped, "its name must be characters of [A-Za-z0-9_.:-]")
    return stripped


def _options(name: str, given: Mapping[str, Any]) -> None:
    """Check the options that can be checked without knowing jobs; None is the default."""
    for field, choices in (("misfire", get_args(Misfire)), ("overlap", get_args(Overlap))):
        value = given.get(field)
        if value is not None and value not in choices:
            raise _wrong(name, f"{field} must be one of {', '.join(choices)}, not {_cut(value)}")
    if given.get("priority") is not None:
        _whole(name, "priority", given["priority"], -9, 9)


def _target(name: str, target: object, workflow: object) -> tuple[str | None, str | None]:
    if (target is None) == (workflow is None):
        both = "both are given" if target is not None else "neither is given"
        raise _wrong(name, f"it calls a target='path:function' or a workflow='name', and {both}")
    for field, value in (("target", target), ("workflow", workflow)):
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise _wrong(name, f"{field} must be a text that is not empty, not {_cut(value)}")
    return (target if isinstance(target, str) else None), (workflow if isinstance(workflow, str) else None)


def _whole(name: str, field: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _wrong(name, f"{field} must be a whole number from {least} to {most}, not {_cut(value)}")
    return value


def _time(name: str, hour: object, minute: object) -> str:
    return f"{_whole(name, 'minute', minute, 0, 59)} {_whole(name, 'hour', hour, 0, 23)}"


def _weekday(name: str, day: object) -> int:
    if isinstance(day, str):
        given = day.strip().lower()
        for number, word in enumerate(WEEKDAYS):
            if given in (word, word[:3]):
                return number
    names = ", ".join(word.title() for word in WEEKDAYS)
    raise _wrong(name, f"day must be one of {names} (or its first three letters), not {_cut(day)}")


def _dividing(name: str, unit: str, value: object, period: int, instead: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= period:
        if value > period:
            instead = f"for any period register {_pair(name, value, unit[0])}"
        raise _wrong(name, f"an interval in {unit} ends at {period - 1}, not {_cut(value)}; {instead}")
    every = _whole(name, unit, value, 1, period - 1)
    if period % every:
        fitting = ", ".join(str(n) for n in range(1, period) if period % n == 0)
        raise _wrong(
            name,
            f"{unit}={every} does not divide {period}, so its steps would be uneven; possible: {fitting}; for any "
            f"other period register {_pair(name, every, unit[0])}",
        )
    return every


def _pair(name: str, value: object, unit: str) -> str:
    every = f"{value}{unit}" if isinstance(value, int) and 0 < value < 10**9 else f"90{unit}"
    return f'a pair instead: ({name!r}, {{"path": ..., "every": "{every}"}})'


def _wrong(name: object, why: str) -> InvalidInputError:
    return InvalidInputError(f"schedule {_cut(name)}: {why}")


def _cut(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
