"""The backoff: how long to wait after the n-th charged failure.

Arithmetic is on ratios of integers, so it is exact, and cannot overflow for any `n`.
"""

from __future__ import annotations

import math
from random import Random
from typing import Final, Literal, get_args

import msgspec

from tocsin.dispatch.instants import show
from tocsin.dispatch.words import word
from tocsin.errors import InvalidInputError

Backoff = Literal["exponential", "linear"]
BACKOFFS: Final = get_args(Backoff)
MAX_RETRIES: Final = 100
LARGEST_MS: Final = 10**15 - 1
LEAST_MS: Final = 100
"""No delay is shorter, even with `baseMs: 0`: a failing receiver is never called in a tight loop."""
DOUBLINGS: Final = 1_124
"""As many take even the smallest float over `LARGEST_MS`, so the power may stop growing there."""


class Retry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """`max_retries` (0 to 100) follow the first dispatch, so 5 means six dispatches in all.

    The n-th delay is base * 2^(n-1) (`exponential`) or base * n (`linear`), at most `max_ms`. `jitter` (0 to 1)
    adds up to that share of the delay and never takes away. Fractions round up, and no delay is shorter than
    100 ms. InvalidInputError names the field that is out of its limits.
    """

    max_retries: int = 5
    backoff: Backoff = "exponential"
    base_ms: int | float = 30_000
    max_ms: int | float = 3_600_000
    jitter: int | float = 0

    def __post_init__(self) -> None:
        _check("max_retries", self.max_retries, MAX_RETRIES, whole=True)
        if self.backoff not in BACKOFFS:
            raise InvalidInputError(f"retry.backoff must be one of {', '.join(BACKOFFS)}, not {show(self.backoff)}")
        _check("base_ms", self.base_ms, LARGEST_MS)
        _check("max_ms", self.max_ms, LARGEST_MS)
        _check("jitter", self.jitter, 1)

    def delay_ms(self, n: int, random: Random) -> int:
        """Return the wait before the next attempt after the `n`-th charged failure (from 1), in whole ms."""
        base, parts = self.base_ms.as_integer_ratio()
        grown = base * n if self.backoff == "linear" else base << min(n - 1, DOUBLINGS)
        delay = min(-(-grown // parts), math.ceil(self.max_ms))
        if self.jitter:
            delay += int(delay * self.jitter * random.random())
        return max(delay, LEAST_MS)


class OlderRetry(Retry, frozen=True, eq=False):
    """The same, asked for in the older system's word `maxAttempts`; records say it so, too.

    It equals the `Retry`, and is stored as that: what it was called is a member of the job's row.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and msgspec.structs.astuple(self) == msgspec.structs.astuple(other)

    def __hash__(self) -> int:
        return hash(msgspec.structs.astuple(self))


def _check(name: str, value: object, most: int, *, whole: bool = False) -> None:
    kinds, kind = ((int,), "an integer") if whole else ((int, float), "a number")
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise InvalidInputError(f"retry.{word(name)} must be {kind}, not {show(value)}")
    if not 0 <= value <= most:  # false for NaN, too
        # Python refuses to write out integers of thousands of digits.
        shown = value if isinstance(value, float) or value.bit_length() < 100 else "a number far outside"
        raise InvalidInputError(f"retry.{word(name)} must be 0..{most}, not {shown}")
