"""Durations and instants as people type them; what is wrong with one is wrong usage."""

from __future__ import annotations

import click


def duration(text: str, option: str) -> int:
    from tocsin.actors.scheduler.arguments import duration_ms
    from tocsin.errors import InvalidInputError

    try:
        return duration_ms(text, option)
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from None


def optional_duration(text: str | None, option: str) -> int | None:
    return None if text is None else duration(text, option)


def instant_of(text: str, option: str) -> int:
    from datetime import datetime

    from tocsin.actors.scheduler.arguments import instant_ms
    from tocsin.errors import InvalidInputError

    try:
        moment: datetime | int = int(text) if text.isdecimal() and text.isascii() else datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{option} must be like 2027-01-01T09:00:00Z, or epoch milliseconds, not {text!r}"
        ) from None
    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise click.UsageError(f"{option} needs a time zone: {text}Z for UTC, or an offset like {text}+02:00")
    try:
        return instant_ms(moment, option)
    except InvalidInputError as error:
        raise click.UsageError(str(error)) from None


def due(delay: str | None, at: str | None) -> dict[str, int]:
    """`--in` or `--at` as a request has it; neither means now."""
    if delay is not None and at is not None:
        raise click.UsageError("give --in or --at, not both (neither means now)")
    if at is not None:
        return {"scheduledFor": instant_of(at, "--at")}
    return {"delayMs": 0 if delay is None else duration(delay, "--in")}
