"""What is refused when it is defined, and what the message says: which field, and what to write instead."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.actors.cron.cases import SYNTAX, following
from tocsin.actors.cron.expression import MAX_LENGTH, Expression
from tocsin.errors import InvalidCronError

CASES: list[dict[str, Any]] = SYNTAX["cases"]
FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week")

REFUSED: dict[str, tuple[str | None, str]] = {
    "CS001": (None, "give five fields"),
    "CS003": (None, "4 fields, not 5"),
    "CS004": (None, "8 fields, not 5"),
    "CS009": ("minute", "60 is not 0..59"),
    "CS010": ("hour", "24 is not 0..23"),
    "CS012": ("day of month", "32 is not 1..31"),
    "CS013": ("month", "0 is not 1..12"),
    "CS015": ("day of week", "8 is not 0..7"),
    "CS016": ("minute", "whole number from 1"),
    "CS018": ("minute", "use everyMs instead"),
    "CS019": ("hour", "use everyMs instead"),
    "CS021": ("minute", "values are 0..59, ranges like 0-3"),
    "CS022": ("minute", "values are 0..59, ranges like 0-3"),
    "CS024": ("hour", "write its two pieces: 22-23,0-2"),
    "CS025": ("day of week", "write its two pieces: 5-7,0-1"),
    "CS036": ("day of week", "list the days"),
    "CS037": ("minute", "remove the comma"),
    "CS039": ("minute", "remove the comma"),
    "CS042": ("minute", "steps like */2"),
    "CS043": ("minute", "steps like */2"),
    "CS045": ("minute", "values are 0..59"),
    "CS046": ("minute", "values are 0..59"),
    "CS048": ("minute", "values are 0..59"),
    "CS051": (None, "only ASCII"),
    "CS052": ("month", "1..12 or jan/feb"),
    "CS054": ("day of week", "is written 'mon'"),
    "CS064": ("day of week", "write 1 to 5 after #"),
    "CS069": ("minute", "choose one: 0..59"),
    "CS070": ("minute", "choose one: 0..59"),
    "CS076": (None, "write one of @yearly"),
    "CS078": (None, "everyMs"),
    "CS079": (None, "everyMs"),
    "CS081": (None, "never fires"),
    "CS082": (None, "the last day of a month is L"),
    "CS088": (None, "only ASCII"),
    "CS090": (None, "7 fields, not 5"),
    "CS091": ("day of week", "values are 0..7"),
    "CS093": (None, "give it as timezone"),
    "CS094": (None, "give it as timezone"),
}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_verdict(case: dict[str, Any]) -> None:
    if case["verdict"] == "accept":
        Expression(case["expr"])
        return
    field, says = REFUSED[case["id"]]

    message = refusal(case["expr"])

    named = re.match(rf"cron .*: ({'|'.join(FIELDS)}) field '", message)
    assert (named[1] if named else None) == field
    assert says in message


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("10-5 * * * *", "minute field '10-5': from 10 to 5 descends, write its two pieces: 10-59,0-5"),
        ("0 0 1 11-2/3 *", "month field '11-2/3': from 11 to 2 descends, list its values: 11,2"),
        ("0 0 1 dec-feb *", "write its two pieces: 12,1-2"),
        ("0 0 * * 6-1/2", "list its values: 6,1"),
        ("*/60 * * * *", "above the field's largest value, 59"),
        ("0 */24 * * *", "above the field's largest value, 23"),
        ("0 0 */32 * *", "above the field's largest value, 31"),
        ("0 0 1 */13 *", "above the field's largest value, 12"),
        ("0 0 * * */8", "above the field's largest value, 7"),
        ("0 0 LW * *", "written 31W"),
        ("0 0 15W,20 * *", "'15W' has a field to itself"),
        ("0 0 * * 5L,1", "'5L' has a field to itself"),
        ("0 0 * * fri#3,mon", "'fri#3' has a field to itself"),
        ("0 0 * * L", "5L is the last Friday"),
        ("0 0 L-3 * *", "day of month field"),
        ("0 0 R * *", "choose one: 1..31"),
        ("0 0 1 january *", "is written 'jan'"),
        ("*-5 * * * *", "* is all of it already"),
        ("0 0 */30 * 1#2", "never fires"),
        ("0 0 15W * */7", "never fires"),
        ("0\n0 * * *", "only ASCII letters, digits, blanks"),
        ("0 0 * *\x00*", "only ASCII letters, digits, blanks"),
        ("٣ * * * *", "only ASCII"),
        ("@every 5m", "a mere interval is everyMs"),
        ("0 0 * * " + "x" * 200, "'" + "x" * 37 + "...'"),
    ],
)
def test_what_else_is_refused_says_what_to_write(expression: str, says: str) -> None:
    assert says in refusal(expression)


@pytest.mark.parametrize("text", [None, 5, b"* * * * *", ["*"] * 5])
def test_what_is_no_text_is_refused(text: Any) -> None:
    assert "must be a text" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "0," * 100_000 + "0 * * * *",
        "*/" + "9" * 5000 + " * * * *",
        ",".join(["0-59"] * 20_000) + " * * * *",
        " " * 1_000_000,
        "\ud800 * * * *",
    ],
)
def test_hostile_texts_are_refused_before_they_are_read(text: str) -> None:
    message = refusal(text)

    assert len(message) < 200


def test_the_length_is_looked_at_before_blanks_are_cut() -> None:
    assert Expression("* * * * *".ljust(MAX_LENGTH)).text == "* * * * *"
    assert f"at most {MAX_LENGTH}" in refusal("* * * * *".ljust(MAX_LENGTH + 1))


@pytest.mark.parametrize("name", ["@Daily", "@MIDNIGHT", "\t@daily ", "0\t0  * * *"])
def test_names_are_read_in_any_case_and_blanks_do_not_count(name: str) -> None:
    assert following(name, "UTC", "2025-03-14T12:00Z", 1) == ["2025-03-15T00:00:00Z"]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        (
            "0 0 * * sun-sun",
            "2025-01-01T00:00Z",
            ["2025-01-05T00:00:00Z", "2025-01-12T00:00:00Z", "2025-01-19T00:00:00Z"],
        ),
        (
            "0 0 * * 0-sun",
            "2025-01-01T00:00Z",
            ["2025-01-05T00:00:00Z", "2025-01-12T00:00:00Z", "2025-01-19T00:00:00Z"],
        ),
        ("0 0 L * *", "2024-02-01T00:00Z", ["2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z", "2024-04-30T00:00:00Z"]),
        ("0 0 L,1 * *", "2025-02-01T00:00Z", ["2025-02-28T00:00:00Z", "2025-03-01T00:00:00Z", "2025-03-31T00:00:00Z"]),
        ("0 0 * * 5L", "2025-01-01T00:00Z", ["2025-01-31T00:00:00Z", "2025-02-28T00:00:00Z", "2025-03-28T00:00:00Z"]),
        (
            "0 0 * * FRI#5",
            "2025-01-01T00:00Z",
            ["2025-01-31T00:00:00Z", "2025-05-30T00:00:00Z", "2025-08-29T00:00:00Z"],
        ),
        ("0 0 1W 2,3 *", "2025-01-01T00:00Z", ["2025-02-03T00:00:00Z", "2025-03-03T00:00:00Z", "2026-02-02T00:00:00Z"]),
        ("0 0 31W * *", "2025-01-31T00:00Z", ["2025-02-28T00:00:00Z", "2025-03-31T00:00:00Z", "2025-04-30T00:00:00Z"]),
        ("0 0 15W * 1", "2025-06-01T00:00Z", ["2025-06-02T00:00:00Z", "2025-06-09T00:00:00Z", "2025-06-16T00:00:00Z"]),
        (
            "0 0 */2 * 1#1",
            "2025-01-01T00:00Z",
            ["2025-02-03T00:00:00Z", "2025-03-03T00:00:00Z", "2025-04-07T00:00:00Z"],
        ),
        ("0 0 13 * 5L", "2025-01-01T00:00Z", ["2025-01-13T00:00:00Z", "2025-01-31T00:00:00Z", "2025-02-13T00:00:00Z"]),
        ("0 0 29 2 */7", "2025-01-01T00:00Z", ["2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z", "2088-02-29T00:00:00Z"]),
    ],
)
def test_days_that_are_no_plain_numbers(expression: str, start: str, expected: list[str]) -> None:
    assert following(expression, "UTC", start) == expected


def refusal(text: Any) -> str:
    with pytest.raises(InvalidCronError) as caught:
        Expression(text)
    return caught.value.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 0 LW * *", "'LW'"),
        ("0 0 * * MONDAY", "'MONDAY' is written 'mon'"),
        ("H * * * *", "'H' would be a random value"),
        ("0 0 5,15W * *", "'15W' has a field to itself"),
        ("0 0 * * MON#6", "field 'MON#6'"),
        ("X", "it has 1 field, not 5"),
    ],
)
def test_a_refusal_shows_what_was_written(text: str, says: str) -> None:
    with pytest.raises(InvalidCronError) as caught:
        Expression(text)
    assert says in caught.value.message
