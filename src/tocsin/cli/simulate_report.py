"""Print what a rehearsal found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tocsin.cli.output import Column, instant, key_values, plural, print_rows, put, span
from tocsin.cli.words import printable

if TYPE_CHECKING:
    from tocsin.actors.rehearsal.report import HourOf, Late, PoolFound, Rehearsal

DAY_MS: Final = 86_400_000
HOURS: Final = (Column("HOUR (UTC)", 17), Column("STARTS", 9, right=True), Column("LATE P50", 9, right=True),
                Column("P99", 9, right=True), Column("AT MOST", 9, right=True), Column(""))  # fmt: skip
DAYS: Final = (Column("DAY (UTC)", 17), Column("STARTS", 9, right=True), Column("BUSIEST HOUR", 19, right=True),
               Column("LATE AT MOST", 12, right=True), Column(""))  # fmt: skip
POOLS: Final = (Column("POOL", 30), Column("CAP", 7, right=True), Column("STARTS", 9, right=True),
                Column("FULL", 7, right=True), Column("LATE P99", 9, right=True), Column("AT MOST", 9, right=True),
                Column("", below=True))  # fmt: skip
SLOTS: Final = (Column("SCHEDULE", 36), Column("SLOTS", 13, right=True), Column("", whole=True))
CHANGES: Final = (Column("SCHEDULE", 28), Column("SLOT", 21), Column("", whole=True))
MOST: Final = 30
"""Rows of each table; --json has all."""
BAR: Final = 18


def print_rehearsal(found: Rehearsal) -> None:
    """Print a summary, then a table of each kind that has something to tell."""
    key_values(
        ("starts", f"{found.fires:,}"),
        ("late", _late(found.late)),
        ("ended", ", ".join(f"{count:,} {name}" for name, count in found.outcomes.items()) or "nothing"),
        ("died", ", ".join(f"{count:,} {reason}" for reason, count in found.deaths.items()) or None),
        ("at the end", f"{plural(found.waiting, 'due job')} not started, {plural(found.running, 'attempt')} running"),
        ("calls", _calls(found)),
    )
    if found.hours:
        put()
        _print_hours(found)
    _table(POOLS, [_pool(one, found.instances > 1) for one in sorted(found.pools, key=_by_wait)])
    _table(
        SLOTS,
        [
            (
                _name(found, one.instance, one.schedule),
                f"{one.count:,}",
                ", ".join(filter(None, (one.state, one.reason))),
            )
            for one in found.missed
        ],
    )
    _table(
        CHANGES,
        [
            (
                _name(found, one.instance, one.schedule),
                instant(one.at).replace(":00.000Z", "Z"),
                f"{one.timezone}: {one.note}",
            )
            for one in found.clock_changes
        ],
    )


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        put()
        print_rows(columns, rows[:MOST])
    if len(rows) > MOST:
        put(f"and {len(rows) - MOST:,} more: --json has all")


def _calls(found: Rehearsal) -> str:
    if found.attempts_known:
        return f"drawn from {plural(found.attempts_known, 'attempt')} of the history"
    return f"{span(found.call_ms)} each, none fails: the history tells of none"


def _late(late: Late) -> str:
    return f"p50 {span(late.p50_ms)}, p99 {span(late.p99_ms)}, at most {span(late.most_ms)}"


def _print_hours(found: Rehearsal) -> None:
    """Print hours, or days where there are many hours."""
    most = max(one.fires for one in found.hours)
    if len(found.hours) <= MOST:
        rows: Iterable[tuple[str, ...]] = (
            (_hour(one), f"{one.fires:,}", span(one.late.p50_ms), span(one.late.p99_ms), span(one.late.most_ms),
             _bar(one.fires, most))
            for one in found.hours
        )  # fmt: skip
        print_rows(HOURS, rows)
        return
    days = [[*hours] for _, hours in groupby(found.hours, lambda one: one.at // DAY_MS)]
    counts = [sum(one.fires for one in hours) for hours in days]
    rows = []
    for hours, count in zip(days, counts, strict=True):
        busiest = max(hours, key=lambda one: one.fires)
        late = max(one.late.most_ms for one in hours)
        rows.append(
            (_hour(hours[0])[:10], f"{count:,}", f"{_hour(busiest)[11:]}: {busiest.fires:,}", span(late),
             _bar(count, max(counts)))
        )  # fmt: skip
    print_rows(DAYS, rows)


def _hour(one: HourOf) -> str:
    return f"{datetime.fromtimestamp(one.at / 1000, UTC):%Y-%m-%d %H:%M}"


def _bar(count: int, most: int) -> str:
    return "#" * -(-count * BAR // most) if most else ""


def _by_wait(pool: PoolFound) -> tuple[int, float, str]:
    return -pool.longest_wait_ms, -pool.full, pool.name


def _pool(pool: PoolFound, several: bool) -> tuple[str, ...]:
    facts = [
        "paused" if pool.paused else "",
        "" if pool.rate is None else f"{pool.rate}: {pool.rate_used or 0:.0%} in the busiest hour",
        f"{pool.waiting:,} wait" if pool.waiting else "",
    ]
    return (
        printable(f"{pool.instance}/{pool.name}" if several else pool.name),
        f"{pool.max_concurrency:,}",
        f"{pool.fires:,}",
        f"{pool.full:.1%}",
        span(pool.late.p99_ms),
        span(pool.longest_wait_ms),
        ", ".join(filter(None, facts)),
    )


def _name(found: Rehearsal, instance: str, schedule: str) -> str:
    return printable(f"{instance}/{schedule}" if found.instances > 1 else schedule)
