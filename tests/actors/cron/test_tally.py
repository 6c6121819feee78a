"""What is counted by arithmetic is what one comes to step by step."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from time import process_time
from zoneinfo import ZoneInfo, available_timezones

import pytest

from tests.actors.cron import evaluator, expressions
from tests.actors.cron.cases import ms
from tests.actors.cron.test_comparison import ODD
from tocsin.actors.cron import tally
from tocsin.actors.cron.rule import Rule
from tocsin.errors import InvalidCronError

SEED = 20_261_130
YEAR = 366 * 86_400
RECENT = range(1_000_000_000, 1_900_000_000, 6 * 3_600)


def walked(rule: Rule, after: int, until: int, most: int = 3_000) -> list[int]:
    """Instants in seconds."""
    found: list[int] = []
    at = rule.next_ms(after * 1000)
    while at is not None and at <= until * 1000 and len(found) < most:
        found.append(at // 1000)
        at = rule.next_ms(at)
    return found


def compare(random: Random, rule: Rule, after: int, until: int) -> int:
    """From any of its instants, and any other, to any."""
    found = walked(rule, after, until)
    if len(found) == 3_000:
        until = found[-1]
    for _ in range(12):
        first = random.choice([*found, after + 1, until, random.randint(after + 1, until)]) + random.choice(
            (-1, 0, 0, 1)
        )
        last = random.choice([*found, until, random.randint(after + 1, until)]) + random.choice((-1, 0, 0, 1))
        first, last = max(first, after + 1), min(last, until)
        expected = sum(first <= at <= last for at in found)
        assert rule.count(first * 1000, last * 1000) == expected, f"{rule!r} from {first} to {last}"
    return len(found)


def rule_of(random: Random, text: str, zone: str) -> Rule | None:
    try:
        return Rule(text, zone)
    except InvalidCronError:  # there is no such day in any year
        return None


@pytest.mark.parametrize("part", range(4))
def test_around_changes_of_the_clock(part: int) -> None:
    random = Random(SEED + part)
    zones = [*ODD, *random.sample(sorted(available_timezones() - {"Factory", "localtime"}), 6)]
    counted = 0
    for zone in zones:
        changes = evaluator.changes(ZoneInfo(zone), RECENT)
        for change, _ in random.sample(changes, min(len(changes), 6)):
            seconds = random.random() < 0.3
            text = expressions.with_seconds(random) if seconds else expressions.of_clock(random)
            if (rule := rule_of(random, text, zone)) is not None:
                wide = 1_200 if seconds and random.random() < 0.7 else random.choice((4 * 3_600, 3 * 86_400))
                counted += compare(random, rule, change - wide, change + wide)
    assert counted > 1_000


@pytest.mark.parametrize("part", range(3))
def test_days_of_any_kind(part: int) -> None:
    random, counted = Random(SEED + part), 0
    for _ in range(12):
        start = random.choice((0, 900_000_000, 1_800_000_000)) + random.randrange(YEAR)
        if (
            rule := rule_of(random, expressions.of_calendar(random), random.choice(("UTC", "Europe/Berlin")))
        ) is not None:
            counted += compare(random, rule, start, start + 7 * YEAR)
    assert counted > 1_000


def test_what_is_counted_in_two_parts_is_what_is_counted_in_one() -> None:
    """Over all of a century, where nobody walks."""
    random = Random(SEED)
    for zone in ODD:
        rule = rule_of(random, expressions.with_seconds(random), zone)
        start = ms("1990-01-01T00:00Z")
        ends = sorted(random.randrange(100 * YEAR) * 1000 for _ in range(20))
        if rule is not None:
            parts = [rule.count(start + low, start + high - 1) for low, high in pairwise(ends)]
            assert sum(part or 0 for part in parts) == rule.count(start + ends[0], start + ends[-1] - 1)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"])
def test_ten_years_of_minutes(zone: str) -> None:
    first, last = ms("2026-11-30T00:00Z"), ms("2036-11-30T00:00Z")
    minutes = (last - first) // 60_000 + 1

    assert Rule("* * * * *", zone).count(first, last) == minutes
    assert Rule("0 * * * *", "UTC").count(first, last) == (minutes + 59) // 60
    assert Rule("30 9 * * *", zone).count(first, last) == 3_653


def test_a_century_takes_milliseconds() -> None:
    first, last = ms("2026-01-01T00:00Z"), ms("2098-01-01T00:00Z")
    rules = [Rule("* * * * * *", "Europe/Berlin"), Rule("*/7 9-17 1,15,L * mon#2", "America/New_York")]

    def took(rule: Rule) -> float:
        tally.tally_of.cache_clear()
        tally._of_year.cache_clear()
        began = process_time()
        assert rule.count(first, last)
        return process_time() - began

    assert max(min(took(rule) for _ in range(3)) for rule in rules) < 0.25


def test_what_is_too_far_apart_is_not_counted() -> None:
    rule = Rule("* * * * *")
    assert rule.count(0, ms("2500-01-01T00:00Z")) is None
    assert (rule.count(60_001, 60_000), rule.count(60_000, 60_000), rule.count(60_001, 119_999)) == (0, 1, 0)
