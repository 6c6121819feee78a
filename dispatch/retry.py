"""The retry ladder: how long to wait after the n-th charged failure. Pure arithmetic that cannot overflow."""

from __future__ import annotations

import math
from random import Random

import msgspec

from tocsin.errors import InvalidInputError

BACKOFFS = ("exponential", "linear")
MAX_RETRIES = 100
LARGEST_MS = 10**15 - 1
LEAST_MS = 1
"""Even `baseMs: 0` waits one millisecond: the next attempt is another instant, never the same one."""


class Retry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """`max_retries` after the first dispatch, so 5 means six dispatches; 0 is legal.

    The n-th delay is base * 2^(n-1) (`exponential`) or base * n (`linear`), at most `max_ms`. `jitter` (0 to 1)
    adds up to that share of the delay and never takes away. Contract, section 3.
    """

    max_retries: int = 5
    backoff: str = "exponential"
    base_ms: int | float = 30_000
    max_ms: int | float = 3_600_000
    jitter: float = 0.0

    def __post_init__(self) -> None:
        _number("maxRetries", self.max_retries, 0, MAX_RETRIES, whole=True)
        if self.backoff not in BACKOFFS:
            raise InvalidInputError(f"retry.backoff must be one of {', '.join(BACKOFFS)}, not {self.backoff!r}")
        _number("baseMs", self.base_ms, 0, LARGEST_MS)
        _number("maxMs", self.max_ms, 0, LARGEST_MS)
        _number("jitter", self.jitter, 0, 1)

    def delay_ms(self, n: int, random: Random) -> int:
        """The wait before the next attempt after the `n`-th charged failure (from 1), whole ms, rounded up."""
        if self.backoff == "linear":
            delay = min(self.base_ms * n, self.max_ms)
        else:
            # Past 2^60 any base above zero is over the largest instant, so the power may stop growing.
            delay = min(self.base_ms * 2 ** min(n - 1, 60), self.max_ms)
        if self.jitter:
            delay += delay * self.jitter * random.random()
        return max(math.ceil(delay), LEAST_MS)


def _number(name: str, value: object, least: float, most: float, *, whole: bool = False) -> None:
    kinds: tuple[type, ...] = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        kind = "an integer" if whole else "a number"
        raise InvalidInputError(f"retry.{name} must be {kind}, not {value!r}")
    assert isinstance(value, (int, float))
    if not least <= value <= most:  # false for NaN, too
        raise InvalidInputError(f"retry.{name} must be {least:g}..{most:g}, not {value}")
