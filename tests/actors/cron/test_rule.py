"""Next is always later than its start, near changes of the clock, at the ends of time and between milliseconds."""

from __future__ import annotations

from zoneinfo import available_timezones

import pytest

from tests.actors.cron.cases import following, iso, ms
from tocsin.actors.cron.rule import LATEST_MS, Rule
from tocsin.errors import TocsinError

EXPRESSIONS = ["* * * * *", "30 2 * * *", "*/7 * * * * *", "0 0 29 2 */7", "@yearly"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("start_ms", [-(10**18), -62_135_596_800_000, -1, 0, 1, 999, LATEST_MS - 1, LATEST_MS, 10**18])
def test_every_start_has_a_later_next_or_none(expression: str, start_ms: int) -> None:
    for zone in ("UTC", "Europe/Berlin", "Asia/Manila", "Pacific/Kiritimati"):
        found = Rule(expression, zone).next_ms(start_ms)

        assert found is None if start_ms >= LATEST_MS else found is None or start_ms < found < LATEST_MS
        assert found is not None or start_ms > 10**14


def test_milliseconds_count() -> None:
    rule = Rule("0 0 * * *")
    midnight = ms("2025-03-14T00:00Z")

    assert rule.next_ms(midnight - 1) == midnight
    assert rule.next_ms(midnight) == midnight + 86_400_000
    assert rule.next_ms(midnight + 1) == midnight + 86_400_000


def test_the_last_minute_there_is() -> None:
    assert iso(Rule("* * * * *").next_ms(LATEST_MS - 60_001)) == "9899-12-31T23:59:00Z"
    assert Rule("* * * * *").next_ms(LATEST_MS - 60_000) is None
    assert Rule("0 0 29 2 */7").next_ms(ms("9890-01-01T00:00Z")) is None


def test_before_1970() -> None:
    assert following("0 12 * * *", "Europe/Berlin", "1945-05-22T12:00Z") == [
        "1945-05-23T10:00:00Z",
        "1945-05-24T09:00:00Z",  # a second hour of summer time since that night
        "1945-05-25T09:00:00Z",
    ]


def test_a_skipped_time_runs_at_the_very_second_after() -> None:
    """Until 1972 Monrovia was 44 min 30 s behind, then it was not: on 7 January midnight was followed by 00:44:30."""
    assert following("0 0 * * *", "Africa/Monrovia", "1972-01-06T12:00Z") == [
        "1972-01-07T00:44:30Z",
        "1972-01-08T00:00:00Z",
        "1972-01-09T00:00:00Z",
    ]
    assert following("*/15 * * * *", "Africa/Monrovia", "1972-01-07T00:30:00Z") == [
        "1972-01-07T00:45:00Z",
        "1972-01-07T01:00:00Z",
        "1972-01-07T01:15:00Z",
    ]


def test_a_rule_that_would_go_back_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule("30 1 * * *", "America/New_York")
    monkeypatch.setattr(rule, "_fixed", lambda start: start)

    with pytest.raises(TocsinError, match="is not after"):
        rule.next_ms(0)


def test_a_long_second_pass_is_not_walked_through() -> None:
    """From inside a pass that shows everything again a rule that is due each second goes on where the pass ends."""
    rule = Rule("* 0-59 0-23 * * *", "America/New_York")
    second_pass = ms("2025-11-02T06:00:00Z")

    assert iso(rule.next_ms(second_pass - 1000)) == "2025-11-02T07:00:00Z"
    assert iso(rule.next_ms(second_pass)) == "2025-11-02T07:00:00Z"
    assert iso(rule.next_ms(second_pass + 3_599_999)) == "2025-11-02T07:00:00Z"


def test_every_zone_has_a_next() -> None:
    start = ms("2025-03-14T00:00Z")
    for zone in available_timezones() - {"Factory", "localtime"}:
        found = Rule("0 12 * * *", zone).next_ms(start)

        assert found is not None and start < found <= start + 36 * 3_600_000
