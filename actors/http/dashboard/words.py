"""Instants, durations and numbers as the pages write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from tocsin.dispatch.durations import span as span

LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, after which there are no dates."""


def iso(ms: int) -> str:
    """Return an instant for programs, or nothing if it is in no year that they know."""
    if not 0 <= ms <= LAST_MS:
        return ""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03}Z"


def exact(ms: int) -> str:
    """Return an instant to the second, in UTC."""
    return f"{iso(ms)[:19].replace('T', ' ')} UTC" if iso(ms) else f"{ms} ms"


def relative(ms: int, now: int) -> str:
    """Return how far an instant is from now, in one or two units."""
    away = abs(ms - now)
    if away < 1_000:
        return "now"
    return f"in {span(away)}" if ms > now else f"{span(away)} ago"


def count(number: int) -> str:
    return f"{number:,}"


def amount(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def pace_s(rate: str, number: int) -> int:
    """Return how many seconds so many things take at a rate that somebody filled in; 0 if it is none."""
    if not (rate.isascii() and rate.isdecimal() and len(rate) <= 9) or int(rate) == 0:
        return 0
    return max(1, number // int(rate))


def size(number: int) -> str:
    """Return bytes in the unit that suits them."""
    value = float(number)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
