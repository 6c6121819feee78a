"""Schedules: when each fires next, and how its last slots ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.asked import Asked
from tocsin.actors.http.dashboard.marks import Mark, legend, marks_of
from tocsin.actors.http.dashboard.page import Page
from tocsin.actors.http.dashboard.words import exact, span
from tocsin.actors.scheduler.model.schedule_records import ScheduleRecord

SHOWN: Final = 50
LAST: Final = 8
"""Slots shown of each schedule of a list."""


@dataclass(frozen=True, slots=True)
class Line:
    """A schedule in the list: its rule in words, and the marks of its last slots."""

    schedule: ScheduleRecord
    rule: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Schedules:
    """A page of the schedules of an instance."""

    lines: Sequence[Line]
    legend: Sequence[tuple[str, str]]
    next: str | None
    later: bool
    """True where this is not the first page."""


async def show(asked: Asked) -> Schedules:
    cursor = asked.query("cursor").text("cursor") or None
    schedules = asked.port.schedules
    page = await schedules.list(cursor=cursor, limit=SHOWN)
    lines = []
    for one in page.schedules:
        marks: Sequence[Mark] = ()
        if await asked.may("schedules.occurrences", one.name):
            marks = marks_of((await schedules.occurrences(one.name, cursor=None, limit=LAST)).occurrences)
        lines.append(Line(one, rule_of(one), marks))
    return Schedules(lines, legend([mark for line in lines for mark in line.marks]), page.cursor, cursor is not None)


def rule_of(one: ScheduleRecord) -> str:
    """Return a rule in words."""
    if one.cron is not None:
        return f"{one.cron} ({one.timezone})"
    if one.every_ms is not None:
        return f"every {span(one.every_ms)}"
    return "once" if one.at is None else f"once, {exact(one.at)}"


PLACES: Final = (Page(path="/schedules", action="schedules.list", name="schedules", title="Schedules", show=show),)
