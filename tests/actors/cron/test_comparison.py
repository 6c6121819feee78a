"""Rules agree with the evaluator: a sample of `python -m tests.actors.cron.compare`."""

from __future__ import annotations

from random import Random
from zoneinfo import ZoneInfo, available_timezones

import pytest

from tests.actors.cron import evaluator
from tests.actors.cron.cases import CASES, iso, ms
from tests.actors.cron.compare import Report, _compare_calendar, compare
from tests.actors.cron.expressions import of_calendar
from tocsin.actors.cron.rule import Rule

SEED = 20_260_729
ODD = [
    "Africa/Casablanca",  # changes twice a year around Ramadan
    "America/Sao_Paulo",  # days without midnight
    "Antarctica/Troll",  # two hours
    "Asia/Manila",  # lost a day, and gained one
    "Australia/Lord_Howe",  # half an hour
    "Europe/Dublin",  # winter time is what is saved
    "Pacific/Apia",  # a deleted day
    "Pacific/Chatham",  # at 02:45
]


def test_a_sample_of_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    others = sorted(available_timezones() - {"Factory", "localtime"})
    report = compare(SEED, 1_500, [*ODD, *Random(SEED).sample(others, 4)])

    with capsys.disabled():
        print(f"\ncron comparison: {report}")
    assert report.points >= 1_500
    assert not report.disagreements


def test_a_sample_of_calendars() -> None:
    random, report = Random(SEED), Report(SEED)
    for _ in range(12):
        _compare_calendar(random, report, of_calendar(random))

    assert report.points > 100
    assert not report.disagreements


@pytest.mark.parametrize("case", CASES[::4], ids=[case["id"] for case in CASES[::4]])
def test_the_evaluator_itself_has_the_known_answers(case: dict[str, str]) -> None:
    start = ms(case["start"]) // 1000
    last = ms(case["expected"][0]) // 1000
    if last - start > 10 * 86_400:
        start = last - 86_400
    instants = range((start - 26 * 3600) // 60 * 60, last + 60, 60)
    shown = evaluator.walls(ZoneInfo(case["tz"]), instants)

    due = evaluator.fires(evaluator.Expression(case["expr"]), instants, shown)

    assert iso(next(at for at in due if at > start) * 1000) == case["expected"][0]


def test_the_comparison_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that treat a repeated time like any other do not pass."""
    monkeypatch.setattr(Rule, "_fixed", Rule._real_time)

    assert compare(SEED, 200, ODD[:2]).disagreements
