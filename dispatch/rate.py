"""How many jobs of a pool may start in a time: `Rate(100, per="1m")`."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.dispatch.durations import duration_ms
from tocsin.dispatch.instants import show
from tocsin.errors import InvalidInputError

LIMIT: Final = (1, 1_000_000)
PER_MS: Final = (1_000, 86_400_000)
BURST: Final = (1, 10_000)
Stored = tuple[int, int, int]
"""A rate as rows hold it: so many starts, in so many ms, and so many at once after a pause."""
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


class Rate(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """`limit` starts (1 to 1,000,000) per `per` (1 s to 1 d: "1m", or seconds), evenly spread; after a pause up to
    `burst` (1 to 10,000) at once. In any time of `per` at most `limit + burst` start. InvalidInputError names the field
    that is out of its limits.
    """

    limit: int
    per: str | float = "1s"
    burst: int = 1

    def __post_init__(self) -> None:
        _check("limit", self.limit, LIMIT)
        _check("burst", self.burst, BURST)
        ms, (least, most) = duration_ms(self.per, "rate.per"), PER_MS
        if not least <= ms <= most:
            raise InvalidInputError(f"rate.per must be 1s to 1d, not {show(self.per)}")
        msgspec.structs.force_setattr(self, "per", text_of(ms))

    @property
    def per_ms(self) -> int:
        return duration_ms(self.per, "rate.per")

    @property
    def stored(self) -> Stored:
        """Return it as rows hold it."""
        return self.limit, self.per_ms, self.burst

    def __str__(self) -> str:
        """Return it in words: `100 per 1m, bursts of 5`."""
        return f"{self.limit:,} per {self.per}" + (f", bursts of {self.burst:,}" if self.burst > 1 else "")


def rate_of(stored: Stored | None) -> Rate | None:
    """Return the rate that a row holds."""
    return None if stored is None else Rate(stored[0], text_of(stored[1]), stored[2])


def text_of(ms: int) -> str:
    """Write a duration in its largest whole unit: `1m`, `90s`, `1500ms`."""
    unit, size = next((unit, size) for unit, size in _UNITS if ms % size == 0)
    return f"{ms // size}{unit}"


def _check(name: str, value: object, bounds: tuple[int, int]) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"rate.{name} must be an integer, not {show(value)}")
    if not bounds[0] <= value <= bounds[1]:
        raise InvalidInputError(f"rate.{name} must be {bounds[0]}..{bounds[1]}, not {show(value)}")
