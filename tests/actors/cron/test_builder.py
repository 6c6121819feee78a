"""Schedules declared in code: what each call means, and that a mistake raises at once and names the schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tocsin.actors.cron.builder import WEEKDAYS, Cron, Declared
from tocsin.dispatch.retry import Retry
from tocsin.errors import InvalidCronError, InvalidInputError, UnknownTimezoneError

TARGET = "reports:send"


def only(cron: Cron) -> Declared:
    [declared] = cron.schedules()
    return declared


@pytest.mark.parametrize(
    ("declare", "expression"),
    [
        (lambda cron: cron.every_minute("x", target=TARGET), "* * * * *"),
        (lambda cron: cron.hourly("x", minute=17, target=TARGET), "17 * * * *"),
        (lambda cron: cron.daily("x", hour=6, minute=0, target=TARGET), "0 6 * * *"),
        (lambda cron: cron.weekly("x", day="Monday", hour=6, minute=30, target=TARGET), "30 6 * * 1"),
        (lambda cron: cron.monthly("x", day=31, hour=23, minute=59, target=TARGET), "59 23 31 * *"),
        (lambda cron: cron.interval("x", minutes=1, target=TARGET), "* * * * *"),
        (lambda cron: cron.interval("x", minutes=30, target=TARGET), "*/30 * * * *"),
        (lambda cron: cron.interval("x", hours=1, target=TARGET), "0 * * * *"),
        (lambda cron: cron.interval("x", hours=12, target=TARGET), "0 */12 * * *"),
        (lambda cron: cron.cron("x", " @daily ", target=TARGET), "@daily"),
        (lambda cron: cron.cron("x", "0 0 12 ? * MON", target=TARGET), "0 0 12 ? * MON"),
    ],
)
def test_each_call_is_an_expression(declare: Callable[[Cron], Cron], expression: str) -> None:
    declared = only(declare(Cron()))

    assert declared == Declared("x", expression, "UTC", TARGET, None, {})


def test_calls_are_chained_and_keep_their_order() -> None:
    cron = Cron()

    chained = cron.hourly("sweep", minute=17, target="m:sweep").every_minute("beat", workflow="beat")
    before = cron.schedules()
    chained.daily("a", hour=1, minute=2, target="m:a")

    assert chained is cron
    assert [declared.name for declared in before] == ["sweep", "beat"], "what was taken is not changed by a later call"
    assert [declared.name for declared in cron] == ["sweep", "beat", "a"]
    assert len(cron) == 3


@pytest.mark.parametrize("number", range(7))
def test_d11_weekly_takes_the_day_in_any_case(number: int) -> None:
    """The ancestor documented this and matched lower case only."""
    word = WEEKDAYS[number]
    for day in (
        word,
        word.title(),
        word.upper(),
        word[:3],
        word[:3].title(),
        word[:3].upper(),
        word[0] + word[1:].upper(),
    ):
        declared = only(Cron().weekly("x", day=day, hour=0, minute=0, target=TARGET))

        assert declared.cron == f"0 0 * * {number}", day


def test_options_and_zone_go_through() -> None:
    declared = only(
        Cron().daily(
            "x",
            hour=6,
            minute=30,
            timezone="Europe/Berlin",
            workflow="report",
            args={"n": 1},
            pool="reports",
            priority=3,
            labels=["a"],
            retry=Retry(max_retries=1),
            misfire="all",
            catch_up_limit=None,
            overlap="queue",
            jitter="10m",
            grace=5,
            expires_after=timedelta(hours=1),
            paused=True,
        )
    )

    assert (declared.timezone, declared.target, declared.workflow) == ("Europe/Berlin", None, "report")
    assert declared.options == {
        "args": {"n": 1},
        "pool": "reports",
        "priority": 3,
        "labels": ["a"],
        "retry": Retry(max_retries=1),
        "misfire": "all",
        "catch_up_limit": None,
        "overlap": "queue",
        "jitter": "10m",
        "grace": 5,
        "expires_after": timedelta(hours=1),
        "paused": True,
    }
    with pytest.raises(TypeError):
        declared.options["pool"] = "other"  # type: ignore[index]


@pytest.mark.parametrize("minutes", [n for n in range(1, 60) if 60 % n == 0])
def test_minutes_that_divide_an_hour_are_intervals(minutes: int) -> None:
    Cron().interval("x", minutes=minutes, target=TARGET)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"minutes": 7}, "minutes=7 does not divide 60, so its steps would be uneven; possible: 1, 2, 3, 4, 5, 6, 10"),
        ({"minutes": 45}, "does not divide 60"),
        ({"minutes": 60}, "ends at 59, not 60; for once an hour write hours=1"),
        ({"minutes": 90}, 'register a pair instead: (\'sweep\', {"path": ..., "every": "90m"})'),
        ({"hours": 36}, '"every": "36h"'),
        ({"minutes": 0}, "minutes must be a whole number from 1 to 59, not 0"),
        ({"minutes": -5}, "from 1 to 59"),
        ({"minutes": 2.0}, "whole number"),
        ({"minutes": True}, "whole number"),
        ({"minutes": "5"}, "whole number"),
        ({"hours": 5}, "hours=5 does not divide 24, so its steps would be uneven; possible: 1, 2, 3, 4, 6, 8, 12"),
        ({"hours": 24}, "ends at 23, not 24; for once a day write .daily(...)"),
        ({"hours": 10**400}, "not a number of 1329 bits; for any period"),
        ({"hours": 0}, "from 1 to 23"),
        ({"seconds": 30}, "no seconds, its floor is minutes=1"),
        ({"seconds": 30, "minutes": 1}, "no seconds"),
        ({"minutes": 5, "hours": 1}, "given: minutes, hours; for once a day write .daily(...)"),
        ({}, "given: none; for once a day"),
        (
            {"days": 1},
            "minutes or hours, no days=1; for once a day write .daily(...), for any other period register a pair",
        ),
        ({"days": 3}, """('sweep', {"path": ..., "every": "3d"})"""),
        ({"day": 2, "hours": 1}, "no day=2; for once a day write .daily(...)"),
        ({"weeks": 2}, '"every": "14d"'),
        ({"months": 1}, "no months=1; for once a month write .monthly(...)"),
        ({"years": 1}, '.cron(name, "@yearly")'),
        ({"minute": 5}, "no minute=5; write minutes="),
        ({"hour": 5}, "no hour=5; write hours="),
        ({"second": 5}, "no second=5; its floor is minutes=1"),
        ({"milliseconds": 500}, "no milliseconds=500; its floor is minutes=1"),
        ({"every": "90m"}, "\"every\": '90m'"),
        ({"every": timedelta(minutes=5)}, "write minutes= or hours="),
        ({"days": 0}, "no days=0"),
        ({"days": 0.5}, "no days=0.5"),
        ({"days": 10**400}, "no days=a number of 1329 bits"),
        ({"seconds": 0}, "no seconds, its floor is minutes=1"),
        ({"minutes": 1.5}, "minutes must be a whole number from 1 to 59, not 1.5"),
        ({"minutes": True}, "not True"),
        ({"minutes": timedelta(minutes=5)}, "not datetime.timedelta"),
        ({"fortnights": 1, "minutes": 5}, "there is no option 'fortnights'"),
        ({"minutes": 5, "overlaps": "skip"}, "there is no option 'overlaps' (do you mean overlap?)"),
    ],
)
def test_intervals_that_are_none_name_the_job(given: dict[str, Any], says: str) -> None:
    refused(lambda cron: cron.interval("sweep", target=TARGET, **given), "schedule 'sweep': ", says)


@pytest.mark.parametrize("value", [-1, 60, 1.0, "1", None, True])
def test_minutes_are_whole_and_in_range(value: Any) -> None:
    says = "minute must be a whole number from 0 to 59"
    refused(lambda cron: cron.hourly("x", minute=value, target=TARGET), "schedule 'x': ", says)
    refused(lambda cron: cron.daily("x", hour=1, minute=value, target=TARGET), "schedule 'x': ", says)


@pytest.mark.parametrize(("hour", "day"), [(24, 1), (-1, 1), (0, 0), (0, 32), (0, "1"), (0, 1.5)])
def test_hours_and_days_of_the_month_too(hour: Any, day: Any) -> None:
    refused(
        lambda cron: cron.monthly("x", day=day, hour=hour, minute=0, target=TARGET), "schedule 'x': ", " must be a "
    )


@pytest.mark.parametrize("day", ["", "mo", "tues", "Montag", "someday", 1, None, "mon,tue"])
def test_days_of_the_week_are_english_names(day: Any) -> None:
    says = "day must be one of Sunday, Monday"
    refused(lambda cron: cron.weekly("x", day=day, hour=0, minute=0, target=TARGET), "schedule 'x': ", says)


@pytest.mark.parametrize("name", ["a b", "ü", "x/y"])
def test_names_have_the_characters_of_names(name: str) -> None:
    refused(lambda cron: cron.every_minute(name, target=TARGET), f"schedule {name!r}: its name must be characters of")


@pytest.mark.parametrize("name", ["", " ", "\t\n", None, 5])
def test_names_are_not_empty(name: Any) -> None:
    refused(lambda cron: cron.every_minute(name, target=TARGET), "the name of a schedule must be")


@pytest.mark.parametrize("again", ["x", " x "])
def test_names_are_unique(again: str) -> None:
    cron = Cron().every_minute("x", target=TARGET)

    with pytest.raises(InvalidInputError, match="schedule 'x' is declared twice"):
        cron.hourly(again, minute=1, target=TARGET)
    assert only(cron).cron == "* * * * *"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "neither is given"),
        ({"target": TARGET, "workflow": "x"}, "both are given"),
        ({"target": " "}, "target must be a text that is not empty"),
        ({"workflow": ""}, "workflow must be a text that is not empty"),
        ({"target": print}, "target must be a text"),
        (
            {"target": TARGET, "misfires": "one"},
            "there is no option 'misfires' (do you mean misfire?), there are args, queue, pool",
        ),
        ({"target": TARGET, "revision": 1}, "there is no option 'revision'"),
        ({"target": TARGET, "misfire": "some"}, "misfire must be one of skip, one, all, not 'some'"),
        ({"target": TARGET, "overlap": "some"}, "overlap must be one of skip, queue, allow, not 'some'"),
        ({"target": TARGET, "priority": 10}, "priority must be a whole number from -9 to 9, not 10"),
    ],
)
def test_targets_and_options_that_are_none_name_the_job(given: dict[str, Any], says: str) -> None:
    refused(lambda cron: cron.every_minute("x", **given), "schedule 'x': ", says)


def test_expressions_and_zones_that_are_none_name_the_job() -> None:
    with pytest.raises(
        InvalidCronError, match=r"^schedule 'x': cron '60 .*minute field '60': 60 is not 0\.\.59"
    ) as caught:
        Cron().cron("x", "60 * * * *", target=TARGET)
    assert caught.value.details == {"expression": "60 * * * *"}
    with pytest.raises(UnknownTimezoneError, match=r"^schedule 'x': timezone 'Europe/Berln'"):
        Cron().daily("x", hour=1, minute=1, timezone="Europe/Berln", target=TARGET)


def test_a_zone_may_be_given_as_python_has_it() -> None:
    given = Cron().daily("x", hour=1, minute=1, timezone=ZoneInfo("Europe/Berlin"), target=TARGET)

    assert only(given).timezone == "Europe/Berlin"


def test_what_was_refused_is_not_declared() -> None:
    cron = Cron()
    with pytest.raises(InvalidInputError):
        cron.every_minute("x")

    assert not cron.schedules()
    assert only(cron.every_minute("x", target=TARGET)).name == "x"


def refused(declare: Callable[[Cron], Cron], *says: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        declare(Cron())
    for part in says:
        assert part in caught.value.message
