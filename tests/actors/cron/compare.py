"""Rules against the evaluator, on random (expression, zone, start).

    python -m tests.actors.cron.compare --points 250000 [--seed N]

Starts crowd around the changes of the clock: every one of every zone between 2000 and 2037 if the points suffice
(250,000 do), the odd ones from before 1970, and elsewhere. Ends with 1 if there was a disagreement.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom
from zoneinfo import ZoneInfo, available_timezones

from tests.actors.cron import evaluator, expressions
from tocsin.actors.cron.rule import Rule
from tocsin.errors import InvalidCronError

HOUR_S, DAY_S = 3600, 86_400
LONGEST_S = 26 * HOUR_S
"""The longest stretch of time that ever came twice, and a bit."""
CROWDED = range(946_684_800, 2_145_916_800, DAY_S // 2)
"""From 2000 to 2037. No two changes of a zone are closer than some days."""
OLD = range(-3_786_912_000, 0, DAY_S // 2)
"""From 1850 to 1969: local mean time with odd seconds, days that came twice, double summer times."""


@dataclass
class Report:
    seed: int
    points: int = 0
    zones: int = 0
    changes: int = 0
    of_changes: int = 0
    refused: int = 0
    disagreements: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.points} points, {self.changes} of {self.of_changes} changes of {self.zones} "
            f"zones, {self.refused} expressions that never fire, {len(self.disagreements)} disagreements"
        )


@dataclass(frozen=True)
class Window:
    """A stretch of real time in a zone, what the clock shows at each step, and from where on starts may be."""

    zone: str
    instants: range
    first_start: int
    shown: list[int]
    crowd: tuple[int, int] | None
    """Where starts gather: a change, and by how many seconds the clock moved."""

    @classmethod
    def around(cls, zone: str, change: int, shift: int, step: int, hours: int) -> Window:
        start = change - hours * HOUR_S - abs(shift)
        return cls._seen(zone, start, change + hours * HOUR_S + abs(shift), step, (change, shift))

    @classmethod
    def anywhere(cls, zone: str, start: int, step: int, hours: int) -> Window:
        return cls._seen(zone, start, start + hours * HOUR_S, step, None)

    @classmethod
    def _seen(cls, zone: str, start: int, end: int, step: int, crowd: tuple[int, int] | None) -> Window:
        lead = LONGEST_S if crowd is None else 0
        instants = range((start - lead) // 60 * 60, end, step)
        return cls(zone, instants, start, evaluator.walls(ZoneInfo(zone), instants), crowd)

    def start_ms(self, random: Random, due: list[int]) -> int:
        low, high = self.first_start * 1000, self.instants[-1] * 1000
        kind = random.randrange(6)
        if kind == 0 and due:
            chosen = random.choice(due) * 1000 + random.choice([-1001, -1000, -1, 0, 1, 999, 1000])
        elif kind < 4 and self.crowd is not None:
            change, shift = self.crowd
            chosen = random.choice(
                [
                    change * 1000 + random.choice([-60_000, -1000, -1, 0, 1, 999, 1000, 60_000]),
                    (change - abs(shift)) * 1000 + random.choice([-1000, -1, 0, 1]),
                    (change + abs(shift)) * 1000 + random.choice([-1000, -1, 0, 1]),
                    (change * 1000 + random.randrange(-abs(shift), abs(shift) + 1) * 1000) // 60_000 * 60_000,
                    change * 1000 + random.randrange(-abs(shift), abs(shift) + 1) * 1000 + random.randrange(1000),
                ]
            )
        else:
            chosen = random.randrange(low, high)
        return min(max(chosen, low), high)


def compare(seed: int, points: int, zones: list[str]) -> Report:
    """Everything is drawn from the seed. Stops at so many points, or a little later."""
    random = Random(seed)
    report = Report(seed, zones=len(zones))
    for window in _windows(random, zones, report):
        for _ in range(3):
            seconds = window.instants.step == 1 and random.random() < 0.8
            text = expressions.with_seconds(random) if seconds else expressions.of_clock(random)
            _compare_clock(random, report, text, window)
        if random.random() < 0.08:
            _compare_calendar(random, report, expressions.of_calendar(random))
        if report.points >= points:
            break
    return report


def _windows(random: Random, zones: list[str], report: Report) -> Iterator[Window]:
    """Every change once, in any order, other times between; then again."""
    changes = [(zone, *change) for zone in zones for change in evaluator.changes(ZoneInfo(zone), CROWDED)]
    old = [
        (zone, *change)
        for zone in random.sample(zones, 1 + len(zones) // 12)
        for change in evaluator.changes(ZoneInfo(zone), OLD)
    ]
    report.of_changes = len(changes)
    while True:
        random.shuffle(changes)
        for n, (zone, change, shift) in enumerate(changes):
            yield Window.around(zone, change, shift, 60, random.choice([4, 4, 30]))
            report.changes = max(report.changes, n + 1)
            if n % 40 == 0:
                yield Window.around(zone, change, shift, 1, 1)
            if n % 40 == 10 and old:
                name, at, by = random.choice(old)
                yield Window.around(name, at, by, 1, 1)
            if n % 20 == 5:
                year = random.choice([1975, 1990, 2005, 2026, 2040, 2100, 2400, 9000, 9898])
                start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) + random.randrange(366 * DAY_S)
                yield Window.anywhere(random.choice(zones), start, 60, 48)


def _compare_clock(random: Random, report: Report, text: str, window: Window) -> None:
    expression = evaluator.Expression(text)
    due = evaluator.fires(expression, window.instants, window.shown)
    rule = _rule(report, text, window.zone)
    if rule is None:
        if due:
            report.disagreements.append(f"{text!r} in {window.zone} is refused, and due at {_iso(due[0] * 1000)}")
        return
    for _ in range(4):
        _compare_next(report, rule, window.start_ms(random, due), due, window.instants[-1])


def _compare_calendar(random: Random, report: Report, text: str) -> None:
    """Day by day over a generation, in UTC."""
    first = random.choice([0, 0, 10_957, 40_000]) + random.randrange(366)
    days = range(first, first + 45 * 366)
    expression = evaluator.Expression(text)
    [minute], [hour] = expression.minutes, expression.hours
    due = [day * DAY_S + hour * HOUR_S + minute * 60 for day in days if expression.on(day)]
    rule = _rule(report, text, "UTC")
    if rule is None:
        if due:
            report.disagreements.append(f"{text!r} is refused, and due at {_iso(due[0] * 1000)}")
        return
    for _ in range(12):
        start = random.choice([random.choice(due or [days[0] * DAY_S]), random.randrange(days[0], days[-1]) * DAY_S])
        _compare_next(report, rule, start * 1000 + random.choice([-1, 0, 0, 1]), due, days[-1] * DAY_S)


def _rule(report: Report, text: str, zone: str) -> Rule | None:
    try:
        return Rule(text, zone)
    except InvalidCronError as error:
        if "never fires" not in error.message:
            raise
        report.refused += 1
        return None


def _compare_next(report: Report, rule: Rule, start_ms: int, due: list[int], end: int) -> None:
    """After the last instant that was looked at, anything later than that is right."""
    report.points += 1
    later = bisect_right(due, start_ms // 1000)
    expected = due[later] * 1000 if later < len(due) else None
    found = rule.next_ms(start_ms)
    right = found == expected if expected is not None else found is None or found > end * 1000
    if not right or (found is not None and found <= start_ms):
        report.disagreements.append(f"{rule!r} after {_iso(start_ms)}: {_iso(found)}, not {_iso(expected)}")


def _iso(ms: int | None) -> str:
    return "none" if ms is None else (datetime(1970, 1, 1) + timedelta(milliseconds=ms)).isoformat() + "Z"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.actors.cron.compare")
    parser.add_argument("--points", type=int, default=250_000)
    parser.add_argument("--seed", type=int, default=None, help="drawn and printed if not given")
    options = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}, {options.points} points", flush=True)
    report = compare(seed, options.points, sorted(available_timezones() - {"Factory", "localtime"}))
    for disagreement in report.disagreements[:40]:
        print(disagreement)
    print(report)
    sys.exit(1 if report.disagreements else 0)


if __name__ == "__main__":
    main()
