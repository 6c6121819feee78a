"""Numbers as text in Crockford's base 32: short, sorts as the number does, no look-alikes."""

from __future__ import annotations

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # sorts as bytes, no look-alikes (Crockford)


def crockford(number: int, bits: int) -> str:
    """Base 32 in digits that sort as bytes and are not taken for each other."""
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range((bits - 1) // 5 * 5, -1, -5))
