"""Numbers as text in Crockford's base 32: short, sorts as the number does, no look-alikes. Ids are made of them."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Final

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # sorts as bytes, no look-alikes (Crockford)

_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]  # ids are minted for every job: two digits at a time


def crockford(number: int, bits: int) -> str:
    """Write a number in base 32, with digits that sort as bytes and are not taken for each other."""
    digits = (bits + 4) // 5
    text = "".join([_PAIRS[(number >> shift) & 1023] for shift in range((digits - 1) // 2 * 10, -1, -10)])
    return text[-digits:]


_COUNTED: Final = 20
"""Bits of an id that are counted: four digits."""


class Minting:
    """Mints ids as `mint_id` does, but draws only once per millisecond and counts from there, so that ids sort as they
    were minted.

    The random bits are drawn anew for each millisecond, so two that mint in the same one do not meet: neither two
    processes, nor one whose clock or whose store was set back. It may be used from any thread.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._run = -1, "", count()  # of one millisecond; replaced as a whole

    def next(self, now: int) -> str:
        """Return another id."""
        began, prefix, numbers = self._run
        number = next(numbers)
        if began != now or number >> _COUNTED:
            prefix, number = self._begin(now), 0
        return prefix + _PAIRS[number >> 10] + _PAIRS[number & 1023]

    def _begin(self, now: int) -> str:
        """Draw for a new millisecond; return what its ids begin with. The number 0 is the caller's."""
        prefix = mint_id(now, self._random.getrandbits(80 - _COUNTED) << _COUNTED)[:-4]
        self._run = now, prefix, count(1)
        return prefix


def mint_id(now: int, bits: int) -> str:
    """Make an id of 48 bits of milliseconds, then 80 of `bits`, so that jobs made together lie together."""
    return crockford((now << 80) | bits, 128)


def ms_of(minted: str) -> int:
    """Return the milliseconds in an id that was minted here; 0 of any other text."""
    if len(minted) != 26 or not set(minted) <= set(_DIGITS):
        return 0
    number = 0
    for digit in minted[:10]:
        number = number << 5 | _DIGITS.index(digit)
    return number  # 26 digits are 130 bits: the first ten hold two zeros and the 48 bits
