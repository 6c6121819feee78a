"""Instants as users give them: an aware `datetime`, or integer epoch milliseconds. The one place that converts them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import InvalidInputError

SMALLEST_MS: Final = 10**11
"""Instants below this are refused: as milliseconds they lie before 1973, so they are seconds by mistake."""
LARGEST_MS: Final = 10**15 - 1
_LATEST_MS: Final = 253_402_300_800_000
"""The year 10000, in UTC: no `datetime` can show it there."""
_EPOCH: Final = datetime(1970, 1, 1)


def instant_ms(value: object, name: str) -> int:
    """Return epoch milliseconds; fractions round up. InvalidInputError names the argument."""
    if not isinstance(value, datetime):
        if not SPEAKS_JSON.get() and (isinstance(value, bool) or not isinstance(value, int)):
            hint = "; datetime.fromisoformat(...) reads a text" if isinstance(value, str) else ""
            raise InvalidInputError(
                f"{name} must be an aware datetime (with a time zone) or epoch milliseconds, not {show(value)}{hint}"
            )
        return epoch_ms(value, name)
    offset = offset_of(value, name)
    # Not by `astimezone`, which ends with the calendar; and of two datetimes with the same zone Python takes the
    # difference of their wall clocks.
    ms = math.ceil((value.replace(tzinfo=None) - _EPOCH - offset) / timedelta(milliseconds=1))
    if ms > _LATEST_MS:
        raise InvalidInputError(
            f"{name} is after the year 9999 in UTC: {value.isoformat()}; give an earlier instant, or epoch "
            f"milliseconds up to {LARGEST_MS}"
        )
    return epoch_ms(ms, name)


def offset_of(value: datetime, name: str) -> timedelta:
    """Return how far its clock is ahead of UTC. InvalidInputError if it has no zone, or one that cannot say."""
    try:
        offset = value.utcoffset()
    except Exception as error:
        # The zone may be anybody's code, and what it raises is no error of ours.
        raise InvalidInputError(
            f"{name} has a time zone that cannot tell its offset: {type(value.tzinfo).__name__} raised "
            f"{type(error).__name__}"
        ) from error
    if offset is None:
        raise InvalidInputError(f"{name} must be an aware datetime (with a time zone), not {show(value)}")
    return offset


def epoch_ms(value: object, name: str) -> int:
    """Return an integer number of milliseconds, 100000000000..999999999999999."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{name} must be an integer (epoch milliseconds), not {show(value)}")
    if 0 <= value < SMALLEST_MS:
        raise InvalidInputError(f"{name} looks like seconds: {value}; give milliseconds ({SMALLEST_MS}..{LARGEST_MS})")
    if not SMALLEST_MS <= value <= LARGEST_MS:
        raise InvalidInputError(f"{name} must be {SMALLEST_MS}..{LARGEST_MS} ms, not {show(value)}")
    return value


def show(value: object) -> str:
    """Return what stands for a value in a message: short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"  # Python refuses to write thousands of digits
    try:
        text = repr(value)
    except Exception:
        # Of a class of the caller's: a message about it must not fail as well.
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
