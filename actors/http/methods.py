"""The methods of requests, as they are counted."""

from __future__ import annotations

from typing import Final

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
OTHER: Final = "other"


def counted(method: str) -> str:
    """Return as what a method is counted. Those that no route knows are one: anybody can think of any number of them,
    and each that was counted would be kept."""
    return method if method in METHODS else OTHER
