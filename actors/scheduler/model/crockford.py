"""Numbers as text in Crockford's base 32: short, sorts as the number does, no look-alikes. Ids are made of them."""

from __future__ import annotations

from random import Random
from typing import Final

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # sorts as bytes, no look-alikes (Crockford)

_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]  # ids are minted for every job: two digits at a time


def crockford(number: int, bits: int) -> str:
    """Write a number in base 32, with digits that sort as bytes and are not taken for each other."""
    digits = (bits + 4) // 5
    text = "".join([_PAIRS[(number >> shift) & 1023] for shift in range((digits - 1) // 2 * 10, -1, -10)])
    return text[-digits:]


_COUNTED: Final = 10
"""Bits of an id that are counted: two digits."""


class Minting:
    """Mints ids as `mint_id` does, but draws only once per millisecond and counts from there, so that ids sort as they
    were minted.

    The random bits are drawn anew for each millisecond, so two that mint in the same one do not meet: neither two
    processes, nor one whose clock or whose store was set back.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._now = -1
        self._bits = 0
        self._prefix, self._next = "", 0

    def next(self, now: int) -> str:
        """Return another id."""
        n = self._next
        if now != self._now or n == 1 << _COUNTED:
            self._begin(now)
            n = 0
        self._next = n + 1
        return self._prefix + _PAIRS[n]

    def _begin(self, now: int) -> None:
        """Draw for a new millisecond; within one, go on with the number that follows. The highest bit that could be
        drawn is left free for that."""
        self._bits = self._bits + 1 if now == self._now else self._random.getrandbits(79 - _COUNTED)
        self._now = now
        self._prefix = mint_id(now, self._bits << _COUNTED)[:-2]


def mint_id(now: int, bits: int) -> str:
    """Make an id of 48 bits of milliseconds, then 80 of `bits`, so that jobs made together lie together."""
    return crockford((now << 80) | bits, 128)
