"""Nothing takes more than 50 ms, whatever the expression: counted in steps of the search, and in CPU time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import product
from time import process_time
from typing import Any

import pytest

from tests.actors.cron.cases import SYNTAX, ms
from tocsin.actors.cron.expression import Expression
from tocsin.actors.cron.rule import Rule
from tocsin.errors import InvalidCronError

WORST = [
    # Never: all years are searched, month by month, and each day that one field offers the other refuses.
    *(f"59 59 23 {day} * {weekday}" for day, weekday in product(["*/30", "*/15,17-31"], ["1#2", "sat#2"])),
    *(f"59 59 23 {day} * {weekday}" for day, weekday in product(["15W", "1W", "31W"], ["*/7", "*/6"])),
    *(f"59 59 23 {day} * {weekday}" for day, weekday in product(["*/31", "*/31,2-20"], ["5L", "0#5"])),
    "59 59 23 */27,2,L * 1#2",  # the worst of 30,000 that were tried
    "59 59 23 31 4,6,9,11 *",
    "59 59 23 30,31 2 */6",
]
RARE = [
    "59 59 23 29 2 */7",
    "59 59 23 */28,L 2 6#5",
    "59 59 23 29W 2 */3",
    "59 59 23 */31,29 2 0#5",
    "59 59 23 30,31 2 6#5",
    "59 59 23 31 2 5L",
    "* * * 29 2 */7",
    "1-59/58 1-59/58 1-23/22 31 */6 */7",
]
MOST_STEPS = 3_000
"""Of about 10 µs each, so the 50 ms are not reached."""


class Steps:
    """Counts what croniter adds to a date: once for each step of its search."""

    def __init__(self, real: Any) -> None:
        self.real, self.taken = real, 0

    def __call__(self, *args: Any, **given: Any) -> Any:
        self.taken += 1
        return self.real(*args, **given)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    searched: Any = import_module("croniter.croniter")  # `import ... as` would give the class of that name
    counted = Steps(searched.relativedelta)
    monkeypatch.setattr(searched, "relativedelta", counted)
    yield counted
    assert counted.taken > 0, "croniter does not step as it did: count something else"


@pytest.mark.parametrize("expression", WORST)
def test_what_never_fires_is_found_out_in_bounded_steps(expression: str, steps: Steps) -> None:
    with pytest.raises(InvalidCronError, match="never fires"):
        Expression(expression)

    assert steps.taken < MOST_STEPS


@pytest.mark.parametrize("expression", RARE)
def test_what_rarely_fires_is_found_in_bounded_steps(expression: str, steps: Steps) -> None:
    rule = Rule(expression, "America/New_York")
    at = ms("2072-01-01T00:00Z")  # after this 29 February comes on some weekdays only after 40 years
    for _ in range(10):
        before = steps.taken
        found = rule.next_ms(at)
        assert found is not None and found > at
        assert steps.taken - before < MOST_STEPS // 5
        at = found


@pytest.mark.parametrize("expression", ["* 0-59 0-23 * * *", "* * * * * *", "59 2 1-31 * *", "0-59 0-23 * * 0-6"])
def test_changes_of_the_clock_take_no_walk(expression: str, steps: Steps) -> None:
    for zone, change in [
        ("America/New_York", "2025-03-09T07:00Z"),
        ("America/New_York", "2025-11-02T06:00Z"),
        ("Pacific/Apia", "2011-12-30T10:00Z"),
        ("Antarctica/Troll", "2025-10-26T01:00Z"),
        ("Asia/Manila", "1899-09-06T04:00Z"),
    ]:
        rule = Rule(expression, zone)
        for around in range(-7_200_000, 7_200_000, 900_001):
            before = steps.taken
            rule.next_ms(ms(change) + around)
            assert steps.taken - before < 60


@pytest.mark.parametrize("expression", RARE)
def test_definition_and_next_stay_under_50_ms_of_processor_time(expression: str) -> None:
    assert min(_took(expression) for _ in range(3)) < 0.05


def test_the_hostile_ones_too() -> None:
    assert len(SYNTAX["hostile"]) == 4, "and those that are written out below are all"
    for expression in [
        "0," * 100_000 + "0 * * * *",
        "*/" + "9" * 5000 + " * * * *",
        ",".join(["0-59"] * 20_000) + " * * * *",
        "0 0 * 2 1#5",
        "0 0 29 2 */7",
    ]:
        assert min(_took(expression) for _ in range(3)) < 0.05


def _took(expression: str) -> float:
    began = process_time()
    with suppress(InvalidCronError):
        Rule(expression).next_ms(ms("2025-03-14T00:00Z"))
    return process_time() - began
