"""Numbers as text in Crockford's base 32: short, sorts as the number does, no look-alikes. Ids are made of them."""

from __future__ import annotations

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # sorts as bytes, no look-alikes (Crockford)

_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]  # ids are minted for every job: two digits at a time


def crockford(number: int, bits: int) -> str:
    """Write a number in base 32, with digits that sort as bytes and are not taken for each other."""
    digits = (bits + 4) // 5
    text = "".join([_PAIRS[(number >> shift) & 1023] for shift in range((digits - 1) // 2 * 10, -1, -10)])
    return text[-digits:]


def mint_id(now: int, bits: int) -> str:
    """Make an id of 48 bits of milliseconds, then 80 of `bits`, so that jobs made together lie together."""
    return crockford((now << 80) | bits, 128)
