"""Durations as users write them: `timedelta`, seconds as a number, or text like "90s", "5m", "2h", "1d"."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from tocsin.dispatch.instants import show
from tocsin.errors import InvalidInputError

Duration = timedelta | float | str

LONGEST_MS: Final = 10**15 - 1
"""Some 31,000 years. Nothing may take longer, and no larger number goes through JSON unharmed."""

_TEXT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", re.ASCII)
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(value: object, name: str, most: int | None = LONGEST_MS) -> int:
    """Return milliseconds, fractions rounded up. InvalidInputError names the argument.

    `most` is None where the caller cuts off what is too long.
    """
    if isinstance(value, timedelta):
        ms = math.ceil(value / timedelta(milliseconds=1))
    elif isinstance(value, str):
        match = _TEXT.fullmatch(value)
        if match is None:
            raise InvalidInputError(f'{name} must look like "90s", "5m", "2h" or "1d", not {show(value)}')
        ms = _whole(float(match[1]) * _UNITS[match[2]], name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        ms = value * 1000 if isinstance(value, int) else _whole(value * 1000, name)
    else:
        raise InvalidInputError(f"{name} must be a timedelta, seconds or a text like '5m', not {type(value).__name__}")
    if ms < 0:
        raise InvalidInputError(f"{name} must not be negative, not {show(ms)} ms")
    if most is not None and ms > most:
        longest = f"{most // _UNITS['d']}d" if most >= _UNITS["d"] else f"{most}ms"
        raise InvalidInputError(f"{name} must be at most {longest}, not {show(value)}")
    return ms


def _whole(ms: float, name: str) -> int:
    if not math.isfinite(ms):
        raise InvalidInputError(f"{name} must be finite, and not as long as this")
    return math.ceil(ms)


def span(ms: int) -> str:
    """Format a duration in at most two units: `0s`, `850ms`, `4m 10s`, `3d 2h`."""
    if 0 < ms < 1_000:
        return f"{ms}ms"
    seconds = ms // 1_000
    for unit, size, next_unit, next_size in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = seconds % size // next_size
            return f"{seconds // size}{unit}" + (f" {rest}{next_unit}" if rest else "")
    return f"{seconds}s"
