"""Rates as they are typed: `100/1m`, or `100/1m/5` with bursts of 5 (`100/1m+5` is read as well)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tocsin.dispatch.rate import Rate


def rate_of(text: str | None, flag: str) -> dict[str, Any] | None:
    """Return a rate as the server takes it, if one was given."""
    return None if text is None else rate_typed(text, flag)


def rate_typed(text: str, flag: str) -> dict[str, Any]:
    """Return the parts of a rate. UsageError if it is none."""
    parts = text.replace("+", "/").split("/")
    numbers = (parts[0], *parts[2:])
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdecimal() for part in numbers):
        raise click.UsageError(f"{flag} must be as 100/1m, or 100/1m/5 with bursts of 5, not {text!r}")
    burst = {"burst": int(parts[2])} if len(parts) == 3 else {}
    return {"limit": int(parts[0]), "per": parts[1], **burst}


def rate_words(rate: Mapping[str, Any]) -> str:
    """Return a rate of a record in words."""
    return str(Rate(rate["limit"], rate.get("per", "1s"), rate.get("burst", 1)))
