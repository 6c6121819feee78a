"""`tocsin next`: the next instants of a cron expression, without a server; clock changes are marked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from tocsin.cli.output import Column, emit, instant, now_ms, print_rows, relative
from tocsin.cli.times import instant_of
from tocsin.cli.words import say

if TYPE_CHECKING:
    from tocsin.actors.cron.zones import Zone

COUNT: Final = 100
UPCOMING: Final = (Column("WHEN", 30), Column("FROM NOW", 14), Column("", whole=True))


@click.command("next")
@click.argument("expression")
@click.option("--tz", metavar="ZONE", default="UTC", show_default=True, help="Whose clock it is read on.")
@click.option("--count", type=click.IntRange(1, COUNT), default=5, show_default=True, help="How many.")
@click.option(
    "--from", "start", envvar="TOCSIN_NEXT_FROM", metavar="INSTANT", help="After this instant, instead of now."
)
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout, one value a line.")
def upcoming(expression: str, tz: str, count: int, start: str | None, as_json: bool) -> None:
    """Show what a cron EXPRESSION comes to next. Asks no server.

    Lines where the clock changes say so: a time that is skipped or comes twice.

    \b
    tocsin next "30 1 * * *" --tz America/New_York --count 10
    """
    from tocsin.actors.cron.preview import preview
    from tocsin.actors.cron.rule import Rule
    from tocsin.errors import InvalidCronError, UnknownTimezoneError

    after = now_ms() if start is None else instant_of(start, "--from")
    try:
        rule = Rule(expression, tz)
    except (InvalidCronError, UnknownTimezoneError) as error:
        raise click.UsageError(str(error)) from None
    lines = preview(rule, after, count)
    if as_json:
        for line in lines:
            emit({"at": line.at_ms, "local": local(line.at_ms, rule.zone), "note": line.note})
    elif lines:
        print_upcoming([(line.at_ms, line.note) for line in lines], rule.zone)
    if len(lines) < count:
        say("there is no later time" if lines else "there is no such time")


def print_upcoming(lines: Sequence[tuple[int, str | None]], zone: Zone) -> None:
    """Print each instant on the clock of the zone, with its offset from UTC."""
    now = now_ms()
    print_rows(UPCOMING, [(_shown(at, zone), relative(at, now), note or "") for at, note in lines])


def local(ms: int, zone: Zone) -> str:
    """Format an instant as ISO 8601 on the clock of a zone."""
    return _wall(ms, zone).isoformat() + _offset(ms, zone)


def _shown(ms: int, zone: Zone) -> str:
    try:
        return _wall(ms, zone).strftime("%a %Y-%m-%d %H:%M:%S ") + _offset(ms, zone)
    except OverflowError:  # from the year 10000 on no calendar goes; a one-time rule may
        return instant(ms)


def _wall(ms: int, zone: Zone) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=zone.wall(ms // 1000))


def _offset(ms: int, zone: Zone) -> str:
    from tocsin.actors.cron.preview import signed_offset

    return signed_offset(zone.offset(ms // 1000))
