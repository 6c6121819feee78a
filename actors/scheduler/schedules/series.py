"""The slots of a rule: the first one after an instant, the last one before it, and how many lie between two of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Protocol

from tocsin.actors.cron.rule import Rule
from tocsin.actors.scheduler.model.rows import LARGEST_MS
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow

RULES: Final = 4_096
"""So many are kept in memory: reading one takes ten times as long as a step of it."""

NEXTS: Final = 8_192

Next = Callable[[int], int | None]
"""The first slot strictly after an instant."""


class Counts(Protocol):
    """How many slots there are from one instant to another, both included; None: too far apart to say."""

    def __call__(self, first: int, last: int, /) -> int | None: ...


class Paced(Protocol):
    """Told of each slot that is computed."""

    def step(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Series:
    """Gives the first slot strictly after an instant when it is called with it."""

    following: Next
    count: Counts

    def __call__(self, after: int) -> int | None:
        return self.following(after)

    def paced(self, pace: Paced) -> Series:
        """Return the same slots; `pace` is told of each step."""

        def following(after: int) -> int | None:
            pace.step()
            return self.following(after)

        def count(first: int, last: int) -> int | None:
            pace.step()
            return self.count(first, last)

        return Series(following, count)

    def back(self, first: int, top: int, wanted: int) -> int:
        """Find the first of the `wanted` newest slots up to the slot `top`; of those from `first` on, which are
        more."""

        def enough(at: int) -> bool:
            count = self.count(at, top)
            return count is None or count >= wanted

        width = 1_000
        while top - width > first and not enough(top - width):
            width *= 2
        low, high = max(top - width, first), top + 1  # enough from `low` on, too few from `high` on
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if enough(middle) else (low, middle)
        return low


def next_of(row: DefinitionRow) -> Series:
    """Return the slots of a rule. InvalidCronError or UnknownTimezoneError if it means nothing here (any more)."""
    if row.cron is not None:
        rule = rule_of(row.cron, row.timezone)
        return Series(partial(_next, rule), rule.count)
    if row.every_ms is not None:
        return _every(row.anchor, row.every_ms)
    assert row.at is not None
    return _once(row.at)


def rule_of(cron: object, timezone: object) -> Rule:
    """Return the rule; parsed once if the two come again soon."""
    if isinstance(cron, str) and isinstance(timezone, str):
        return _rule(cron, timezone)
    return Rule(cron, timezone)  # type: ignore[arg-type]  # it says what is wrong


@lru_cache(RULES)
def _rule(cron: str, timezone: str) -> Rule:
    return Rule(cron, timezone)


@lru_cache(NEXTS)
def _next(rule: Rule, after: int) -> int | None:
    """Return the next slot, cached: many schedules have the same rule, and come to the same instants together."""
    return rule.next_ms(after)


def _every(anchor: int, every: int) -> Series:
    """Return the slots anchor + k·every. The first look is from the anchor on, so only a clock that was wrong meets a
    k below 1."""

    def following(after: int) -> int | None:
        slot = anchor + ((after - anchor) // every + 1) * every
        return slot if slot <= LARGEST_MS else None

    def count(first: int, last: int) -> int:
        return max((last - anchor) // every - (first - anchor - 1) // every, 0)

    return Series(following, count)


def _once(at: int) -> Series:
    return Series(lambda after: at if after < at else None, lambda first, last: int(first <= at <= last))


def unused(series: Series, used: Collection[int]) -> Series:
    """Leave out slots that have their rows already."""
    if not used:
        return series
    own: list[int] = []  # computed when they are first counted: not all of these need be slots of this rule

    def following(after: int) -> int | None:
        slot = series.following(after)
        while slot is not None and slot in used:
            slot = series.following(slot)
        return slot

    def count(first: int, last: int) -> int | None:
        if not own:
            own.extend(sorted(slot for slot in used if series.following(slot - 1) == slot))
        found = series.count(first, last)
        return None if found is None else found - (bisect_right(own, last) - bisect_left(own, first))

    return Series(following, count)


def before(following: Next, at: int, guess: int = 1_000) -> int:
    """Find the newest slot before `at`; the caller knows that there is one. `guess`: how far back it may be."""
    width = max(guess, 1)
    while (slot := following(max(at - width - 1, 0))) is None or slot >= at:
        if width > at:
            raise ValueError(f"there is no slot before {at}")
        width *= 2
    low, high = slot, at - 1  # no slot lies between `high` and `at`
    while (later := following(low)) is not None and later < at:
        low = later
        middle = (low + high) // 2
        jump = following(middle)
        if jump is not None and jump < at:
            low = jump
        else:
            high = middle
    return low
