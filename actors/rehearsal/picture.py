"""Draw a rehearsal as an SVG: starts and lateness hour by hour, and how full each pool is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from tocsin.actors.rehearsal.report import PoolFound, Rehearsal
from tocsin.actors.rehearsal.saturation import HOUR_MS
from tocsin.dispatch.durations import span

LEFT, RIGHT, WIDTH = 170, 20, 1_000
CHART, STRIP, GAP = 130, 18, 34
"""Heights: of a chart, of the strip of a pool, and between them."""
DAY_MS: Final = 86_400_000
MOST_POOLS: Final = 40
MOST_TICKS: Final = 14
STYLE: Final = """\
svg { background: #fff; color: #1f2937; font: 12px system-ui, sans-serif }
text { fill: currentColor } .dim { opacity: .6 } .line { stroke: currentColor; stroke-opacity: .2 }
.fires { fill: #2563eb } .late { fill: #d97706 } .full { fill: #dc2626 }
.strip { fill: currentColor; fill-opacity: .06 }
@media (prefers-color-scheme: dark) { svg { background: #111827; color: #e5e7eb } }"""


def picture(found: Rehearsal, named: str) -> str:
    """Return the SVG; `named` says what was rehearsed. Of many pools it shows those whose jobs wait longest."""
    pools = sorted(found.pools, key=lambda one: (-one.longest_wait_ms, -one.full, one.name))[:MOST_POOLS]
    height = 60 + 2 * (CHART + GAP) + (len(pools) + 1) * (STRIP + 6)
    drawn = _Drawing(found)
    late = "longest delay of a start in each hour"
    body = [
        f'<text x="{LEFT}" y="20">{escape(named)}</text>',
        f'<text x="{LEFT}" y="36" class="dim">{escape(_said(found))}</text>',
        *drawn.chart("fires", "starts in each hour", 60, {one.at: one.fires for one in found.hours}, "{:,}".format),
        *drawn.chart("late", late, 60 + CHART + GAP, {one.at: one.late.most_ms for one in found.hours}, span),
        *drawn.strips(pools, 60 + 2 * (CHART + GAP)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(named)}">\n<style>{STYLE}</style>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _said(found: Rehearsal) -> str:
    late = found.late
    return (
        f"{found.fires:,} starts, late: p50 {span(late.p50_ms)}, p99 {span(late.p99_ms)}, at most {span(late.most_ms)}"
    )


class _Drawing:
    """Places instants on the width of the picture."""

    def __init__(self, found: Rehearsal) -> None:
        self._start, self._until = found.start, found.until
        self._scale = (WIDTH - LEFT - RIGHT) / (found.until - found.start)

    def _x(self, ms: int) -> float:
        return LEFT + (min(max(ms, self._start), self._until) - self._start) * self._scale

    def _bar(self, kind: str, at: int, top: float, height: float, more: str = "", title: str = "") -> str:
        left = self._x(at)
        wide = max(self._x(at + HOUR_MS) - left - 0.3, 0.3)
        return (
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{height:.1f}"{more}>'
            f"<title>{_hour(at)}: {escape(title)}</title></rect>"
        )

    def chart(
        self, kind: str, title: str, top: int, values: dict[int, int], written: Callable[[int], str]
    ) -> Iterator[str]:
        """Yield a chart of bars."""
        most = max(values.values(), default=0)
        bottom = top + CHART
        yield f'<text x="{LEFT - 8}" y="{top + 10}" text-anchor="end">{written(most)}</text>'
        yield f'<text x="{LEFT}" y="{top - 4}" class="dim">{title}</text>'
        yield f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>'
        for at, value in values.items():
            if value:
                height = CHART * value / most
                yield self._bar(kind, at, bottom - height, height, title=written(value))
        for at, text in self._ticks():
            x = self._x(at)
            yield f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom + 4}"/>'
            yield f'<text x="{x + 3:.1f}" y="{bottom + 14}" class="dim">{text}</text>'

    def _ticks(self) -> Iterator[tuple[int, str]]:
        """Yield instants to be named: days, or hours where there are few days."""
        length = self._until - self._start
        unit = DAY_MS if length > 2 * DAY_MS else 3 * HOUR_MS if length > 6 * HOUR_MS else HOUR_MS
        step = unit * -(-(length // unit) // MOST_TICKS or -1)
        for at in range(-(-self._start // unit) * unit, self._until, step):
            yield at, f"{datetime.fromtimestamp(at / 1000, UTC):{'%a %d' if unit == DAY_MS else '%H:%M'}}"

    def strips(self, pools: Sequence[PoolFound], top: int) -> Iterator[str]:
        """Yield a strip for each pool, the darker the fuller it is."""
        if not pools:
            return
        yield f'<text x="{LEFT}" y="{top - 4}" class="dim">how full each pool is</text>'
        several = len({one.instance for one in pools}) > 1
        for n, pool in enumerate(pools):
            y = top + 4 + n * (STRIP + 6)
            name = f"{pool.instance}/{pool.name}" if several else pool.name
            yield f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(_short(name))}</text>'
            yield f'<rect class="strip" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{STRIP}"/>'
            for hour in pool.hours:
                if hour.full:
                    said = f"full {hour.full:.0%}, {hour.fires:,} starts"
                    yield self._bar("full", hour.at, y, STRIP, f' fill-opacity="{0.15 + 0.85 * hour.full:.2f}"', said)
            words = f"cap {pool.max_concurrency:,}, full {pool.full:.1%}, longest wait {span(pool.longest_wait_ms)}"
            yield f'<text x="{WIDTH - RIGHT - 6}" y="{y + 13}" text-anchor="end">{escape(words)}</text>'


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


def _hour(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%a %d %b %H:%M}"
