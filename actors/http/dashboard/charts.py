"""Draw the last hour: bars of what ended, lines of how late attempts started. Numbers here, markup in the template.

Coordinates are of a box of 600 by 100, which the page stretches; words stand outside of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.http.dashboard.words import amount, span
from tocsin.actors.scheduler.model.activity import Activity, ActivityMinute

MINUTES: Final = 60
WIDTH: Final = 600
HEIGHT: Final = 100
STEP: Final = WIDTH / MINUTES
GAP: Final = 1.5
MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of the bar of one minute."""

    kind: str
    x: float
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute: its place, and what the pointer is told over it."""

    x: float
    at: int
    words: str
    of: ActivityMinute


@dataclass(frozen=True, slots=True)
class Charts:
    """Both charts, their scales, and what they say in one sentence each."""

    minutes: Sequence[Minute]
    bars: Sequence[Bar]
    most: int
    lines: Sequence[tuple[str, str]]
    """Each its kind and the path of the line, with a gap where nothing started."""
    latest: int
    """The top of the second chart, ms."""
    ended: str
    late: str
    width: float = STEP - GAP

    @property
    def busy(self) -> Sequence[Minute]:
        """Return the minutes in which anything happened, the newest first."""
        return [
            one for one in reversed(self.minutes) if one.of.started or _ended(one.of) or one.of.accepted or one.of.died
        ]


def of(activity: Activity) -> Charts:
    """Draw the charts of the last hour. A host that is younger has nothing on the left."""
    now = activity.minutes[-1].at if activity.minutes else activity.now
    minutes = [
        Minute(WIDTH - STEP * (1 + (now - one.at) // MINUTE_MS), one.at, _words(one, now), one)
        for one in activity.minutes
        if now - one.at < MINUTES * MINUTE_MS
    ]
    most = nice(max((_ended(one.of) for one in minutes), default=0))
    values = [value for one in minutes for value in (one.of.late_p50_ms, one.of.late_p95_ms) if value is not None]
    latest = nice(max(values, default=0))
    return Charts(
        minutes,
        [bar for one in minutes for bar in _bars(one, most)],
        most,
        [
            ("p95", _line([(one.x, one.of.late_p95_ms) for one in minutes], latest)),
            ("p50", _line([(one.x, one.of.late_p50_ms) for one in minutes], latest)),
        ],
        latest,
        _ended_in_words(minutes),
        _late_in_words(minutes, values),
    )


def nice(value: int) -> int:
    """Return the next number with one digit that is not zero and no smaller: a scale that leaves little room above."""
    power = 1
    while True:
        for factor in range(1, 10):
            if factor * power >= value:
                return factor * power
        power *= 10


def _ended(one: ActivityMinute) -> int:
    return one.done + one.failed + one.returned


def _bars(minute: Minute, most: int) -> Sequence[Bar]:
    found, top = [], float(HEIGHT)
    for kind, number in (("ok", minute.of.done), ("failed", minute.of.failed), ("other", minute.of.returned)):
        if number:
            height = HEIGHT * number / most
            top -= height
            found.append(Bar(kind, minute.x, top, height))
    return found


def _line(points: Sequence[tuple[float, int | None]], most: int) -> str:
    """Return the path through the middles of minutes, begun anew behind each gap; one minute alone is a dash."""
    path, last = [], None
    for x, value in points:
        if value is None:
            last = None
            continue
        y = HEIGHT - HEIGHT * min(value, most) / most
        middle = x + STEP / 2
        path.append(
            f"L{middle:.1f} {y:.1f}" if last == x - STEP else f"M{middle - STEP / 4:.1f} {y:.1f}L{middle:.1f} {y:.1f}"
        )
        last = x
    return "".join(path)


def _words(one: ActivityMinute, now: int) -> str:
    ago = (now - one.at) // MINUTE_MS
    said = [f"{one.done:,} done", f"{one.failed:,} failed"]
    said += [f"{one.returned:,} sent back"] if one.returned else []
    if one.late_p50_ms is not None and one.late_p95_ms is not None:
        said.append(f"late {span(one.late_p50_ms)}, 95% within {span(one.late_p95_ms)}")
    return f"{'This minute' if not ago else amount(ago, 'minute') + ' ago'}: {', '.join(said)}"


def _ended_in_words(minutes: Sequence[Minute]) -> str:
    done, failed, died = (sum(getattr(one.of, name) for one in minutes) for name in ("done", "failed", "died"))
    return f"{amount(done, 'job')} done, {amount(failed, 'attempt')} failed, {amount(died, 'job')} died"


def _late_in_words(minutes: Sequence[Minute], values: Sequence[int]) -> str:
    if not values:
        return "Nothing started"
    worst = max((one.of.late_max_ms or 0 for one in minutes), default=0)
    return f"The latest attempt started {span(worst)} late"
