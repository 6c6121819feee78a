"""Parse durations and instants as people type them; a wrong one is wrong usage."""

from __future__ import annotations

import re
from typing import Final

import click

DATE: Final = re.compile(r"(\d{4}-?\d\d-?\d\d)(Z|[+-]\d\d(?::?\d\d){0,2})?", re.ASCII | re.IGNORECASE)
"""A day and an optional offset, which Python would take for the time of day."""


def duration(text: str, option: str) -> int:
    from tocsin.actors.scheduler.model.validation import duration_ms
    from tocsin.errors import InvalidInputError

    try:
        return duration_ms(text, option)
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from None


def optional_duration(text: str | None, option: str) -> int | None:
    return None if text is None else duration(text, option)


def instant_of(text: str, option: str) -> int:
    from datetime import datetime

    from tocsin.actors.scheduler.model.validation import instant_ms
    from tocsin.errors import InvalidInputError

    if example := _first_of(text):
        raise click.UsageError(f"{option} needs a time of day, too: like {example}, not {text!r}")
    try:
        moment: datetime | int = int(text) if text.isdecimal() and text.isascii() else datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{option} must be like 2027-01-01T09:00:00Z, or epoch milliseconds, not {text[:80]!r}"
        ) from None
    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise click.UsageError(f"{option} needs a time zone: {text}Z for UTC, or an offset like {text}+02:00")
    try:
        return instant_ms(moment, option)
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from None


def _first_of(text: str) -> str | None:
    """Return midnight of a day, if the text is only a day."""
    from datetime import date

    found = DATE.fullmatch(text)
    if found is None:
        return None
    try:
        return f"{date.fromisoformat(found[1])}T00:00:00{found[2] or 'Z'}"
    except ValueError:
        return None


def due(delay: str | None, at: str | None, debounce: str | None = None) -> dict[str, int]:
    """Return the members of a request for `--in`, `--at` or `--debounce`; none means now."""
    if delay is not None and at is not None:
        raise click.UsageError("give --in or --at, not both")
    if debounce is not None:
        if delay is not None or at is not None:
            raise click.UsageError("--debounce says when it is due: give it without --in and --at")
        return {"debounceMs": duration(debounce, "--debounce")}
    if at is not None:
        return {"scheduledFor": instant_of(at, "--at")}
    return {"delayMs": 0 if delay is None else duration(delay, "--in")}
