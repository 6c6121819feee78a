"""What comes next, line by line, and which lines say that the clock changes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.actors.cron.cases import iso, ms
from tocsin.actors.cron.preview import MAX_COUNT, preview
from tocsin.actors.cron.rule import LATEST_MS, Rule
from tocsin.errors import InvalidInputError

NEW_YORK = "America/New_York"
TO_SUMMER = "DST: the clock went from UTC-05:00 to UTC-04:00 since the line before"
TO_WINTER = "DST: the clock went from UTC-04:00 to UTC-05:00 since the line before"


def lines(expression: str, zone: str, start: str, count: int = 4) -> list[tuple[str, str | None]]:
    return [(iso(line.at_ms), line.note) for line in preview(Rule(expression, zone), ms(start), count)]


def test_a_skipped_time_moves_to_after_the_gap() -> None:
    note = "DST: the clock skips from 02:00 to 03:00, what is due in between runs at 03:00"

    assert lines("30 2 * * *", NEW_YORK, "2025-03-07T12:00Z") == [
        ("2025-03-08T07:30:00Z", None),
        ("2025-03-09T07:00:00Z", note),
        ("2025-03-10T06:30:00Z", None),
        ("2025-03-11T06:30:00Z", None),
    ]


def test_a_time_next_to_the_gap_only_has_the_new_offset() -> None:
    assert lines("0 3 * * *", NEW_YORK, "2025-03-08T12:00Z", 2) == [
        ("2025-03-09T07:00:00Z", TO_SUMMER),
        ("2025-03-10T07:00:00Z", None),
    ]


def test_a_repeated_time_runs_the_first_time_only() -> None:
    assert lines("30 1 * * *", NEW_YORK, "2025-11-01T12:00Z", 3) == [
        ("2025-11-02T05:30:00Z", "DST: 01:30 comes twice, it runs the first time only"),
        ("2025-11-03T06:30:00Z", TO_WINTER),
        ("2025-11-04T06:30:00Z", None),
    ]


def test_in_real_time_both_passes_run() -> None:
    assert lines("*/30 * * * *", NEW_YORK, "2025-11-02T04:40Z", 6) == [
        ("2025-11-02T05:00:00Z", "DST: 01:00 comes twice and runs both times, this is the first"),
        ("2025-11-02T05:30:00Z", "DST: 01:30 comes twice and runs both times, this is the first"),
        ("2025-11-02T06:00:00Z", "DST: 01:00 comes twice and runs both times, this is the second"),
        ("2025-11-02T06:30:00Z", "DST: 01:30 comes twice and runs both times, this is the second"),
        ("2025-11-02T07:00:00Z", None),
        ("2025-11-02T07:30:00Z", None),
    ]


def test_two_spellings_of_every_two_hours() -> None:
    """In real time 02:00 is skipped; at fixed times it is moved."""
    assert lines("0 */2 * * *", NEW_YORK, "2025-03-09T04:30Z", 3) == [
        ("2025-03-09T05:00:00Z", None),
        ("2025-03-09T08:00:00Z", TO_SUMMER),
        ("2025-03-09T10:00:00Z", None),
    ]
    assert [note is not None for _, note in lines("0 0-23/2 * * *", NEW_YORK, "2025-03-09T04:30Z", 3)] == [
        False,
        True,
        False,
    ]


def test_a_deleted_day_is_named() -> None:
    skips = "the clock skips from 2011-12-30 00:00 to 2011-12-31 00:00"
    note = f"DST: {skips}, what is due in between runs at 2011-12-31 00:00"

    assert lines("0 12 * * 5", "Pacific/Apia", "2011-12-29T12:00Z", 2) == [
        ("2011-12-30T10:00:00Z", note),
        ("2012-01-05T22:00:00Z", None),
    ]


def test_offsets_with_seconds_are_written_out() -> None:
    [(_, note)] = lines("0 12 * * *", "Africa/Monrovia", "1972-01-06T13:00Z", 1)

    assert note == "DST: the clock went from UTC-00:44:30 to UTC+00:00 since the line before"


def test_utc_has_no_notes() -> None:
    assert all(note is None for _, note in lines("0 * * * *", "UTC", "2025-03-08T12:00Z", MAX_COUNT))


def test_there_may_be_fewer_lines() -> None:
    assert preview(Rule("@yearly"), LATEST_MS - 400 * 86_400_000, 5) != []
    assert len(preview(Rule("@yearly"), LATEST_MS - 400 * 86_400_000, 5)) == 1
    assert preview(Rule("@yearly"), LATEST_MS, 5) == []


@pytest.mark.parametrize("start_ms", [-(10**18), 0, 10**18])
def test_every_start_is_taken(start_ms: int) -> None:
    assert len(preview(Rule("0 0 * * *", NEW_YORK), start_ms, 3)) in (0, 3)


@pytest.mark.parametrize("count", [0, -1, MAX_COUNT + 1, pytest.param(10**5000, id="huge"), 1.0, "5", True, None])
def test_the_count_is_bounded(count: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"count must be a whole number from 1 to {MAX_COUNT}"):
        preview(Rule("* * * * *"), 0, count)
