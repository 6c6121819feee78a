"""Line plots as plain SVG: axes with ticks, lines with points, a legend. Nothing but text is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 48, 44, 52
ROOM = 1.2
"""Above the highest point, for the legend."""
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b4fa3", "#a67c00", "#4a4a4a")
FONT = 'font-family="sans-serif" font-size="12"'
Points = Sequence[tuple[float, float]]


def line_plot(title: str, x_title: str, y_title: str, lines: Mapping[str, Points], *, log_x: bool = False) -> str:
    """An SVG document. With `log_x`, x is shown by powers of ten, and 0 one power before the least."""
    points = [point for line in lines.values() for point in line]
    x = Axis([at for at, _ in points], LEFT, WIDTH - RIGHT, log=log_x)
    y = Axis([0.0, *(value * ROOM for _, value in points)], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
        *(_mark(x.place(at), HEIGHT - BOTTOM, words, upright=True) for at, words in x.ticks()),
        *(_mark(LEFT, y.place(at), words, upright=False) for at, words in y.ticks()),
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#333"/>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_title)}</text>',
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_title)}</text>",
    ]
    for number, (name, line) in enumerate(lines.items()):
        parts += _line(name, [(x.place(at), y.place(value)) for at, value in line], number)
    return "\n".join([*parts, "</svg>"]) + "\n"


class Axis:
    """Where values are drawn, and at which of them a tick stands."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool = False) -> None:
        self._start, self._end, self._log = start, end, log
        positive = [value for value in values if value > 0]
        self._zero = math.floor(math.log10(min(positive, default=1))) - 1
        at = sorted(map(self._scaled, values)) or [0.0]
        self._least, self._most = at[0], at[-1] if at[-1] > at[0] else at[0] + 1
        if not log:
            self._step = _round_step((self._most - self._least) / 5)
            self._most = math.ceil(self._most / self._step) * self._step

    def _scaled(self, value: float) -> float:
        if not self._log:
            return value
        return math.log10(value) if value > 0 else float(self._zero)

    def place(self, value: float) -> float:
        share = (self._scaled(value) - self._least) / (self._most - self._least)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[tuple[float, str]]:
        if self._log:
            powers = range(math.ceil(self._least), math.floor(self._most) + 1)
            return [(0.0, "0") if power == self._zero else (10.0**power, f"{10**power:,}") for power in powers]
        steps = range(math.ceil(self._least / self._step), round(self._most / self._step) + 1)
        return [(step * self._step, f"{step * self._step:,g}") for step in steps]


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, at least as much."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(nice * power for nice in (1, 2, 5, 10) if nice * power >= step)


def _mark(x: float, y: float, words: str, *, upright: bool) -> str:
    if upright:
        tick = f'<path d="M{x:.1f} {y}v5" stroke="#333"/>'
        return f'{tick}<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{words}</text>'
    grid = f'<path d="M{x} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
    return f'{grid}<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'


def _line(name: str, at: Points, number: int) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    below = TOP + 14 + 18 * number
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at),
        f'<path d="M{LEFT + 14} {below}h22" stroke="{colour}" stroke-width="2"/>',
        f'<text x="{LEFT + 42}" y="{below + 4}">{escape(name)}</text>',
    ]
