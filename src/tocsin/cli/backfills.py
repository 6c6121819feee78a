"""`tocsin schedules backfill` and `backfills`: slots of the past that are run, and how far that has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.confirm import confirm
from tocsin.cli.failure import Refused
from tocsin.cli.names import redrive_in_path, schedule_in_path
from tocsin.cli.output import Column, emit, plural, print_rows, put
from tocsin.cli.schedules_shown import slot_time
from tocsin.cli.times import instant_of
from tocsin.cli.words import printable, say

BACKFILLS: Final = (
    Column("BACKFILL", 26), Column("STATE", 8), Column("STARTED", 17, right=True), Column("UP TO", whole=True)
)  # fmt: skip


@click.command("backfill")
@click.argument("name")
@click.option("--start", required=True, metavar="INSTANT", help="The slots from here on.")
@click.option("--end", required=True, metavar="INSTANT", help="The slots before this.")
@click.option("--rate-per-second", type=int, default=10, show_default=True, help="How many a second.")
@click.option("--dry-run", is_flag=True, help="Only count what it would run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_command
def schedules_backfill(
    connection: Connection, /, name: str, start: str, end: str, rate_per_second: int, dry_run: bool, yes: bool
) -> None:
    """Run the slots of the past that had no run of their own.

    The server goes on with it by itself, over restarts too. Prints its id, for
    `tocsin schedules backfills`. Exit code 1 if there is no such slot.
    """
    route = f"/schedules/{schedule_in_path(name)}/backfill"
    body = {"start": instant_of(start, "--start"), "end": instant_of(end, "--end"), "ratePerSecond": rate_per_second}
    if dry_run or not yes:
        counted = connection.count(route, body)
        if dry_run or not counted["matched"]:
            connection.tell(counted, counted["matched"], _nothing(name, counted), f"would run {_slots(counted)}")
            return
        confirm(f"{_slots(counted)} of {printable(name)} will be run:", yes=False, dry_run=True)
    answer = connection.post(route, body)
    if connection.as_json:
        emit(answer)
    if not answer["matched"]:
        raise Refused(_nothing(name, answer))
    if not connection.as_json:
        put(printable(answer["backfillId"]))
        say(f"running {_slots(answer)}, at most {rate_per_second} a second")


def _slots(answer: Mapping[str, Any]) -> str:
    first = f", the first of {slot_time(answer['slots'][0])}" if answer.get("slots") else ""
    left = f"; {answer['leftOut']:,} ran already, or cannot" if answer.get("leftOut") else ""
    return f"{plural(answer['matched'], 'slot')}{first}{left}"


def _nothing(name: str, answer: Mapping[str, Any]) -> str:
    left = answer.get("leftOut") or 0
    why = f"{plural(left, 'slot')} ran already, or cannot" if left else "none has come between --start and --end"
    return f"schedule {name!r} has no slot to run there: {why}"


@click.command("backfills")
@click.argument("name")
@click.option("--stop", metavar="ID", help="Stop this one: what it has not reached stays as it is.")
@client_command
def schedules_backfills(connection: Connection, /, name: str, stop: str | None) -> None:
    """List the backfills of a schedule, or stop one."""
    route = f"/schedules/{schedule_in_path(name)}/backfills"
    if stop is not None:
        answer = connection.delete(f"{route}/{redrive_in_path(stop)}")
        missing = f"there is no backfill {stop!r} of {name!r} that goes on"
        connection.tell(answer, answer["stopped"], missing, f"stopped {printable(stop)}")
        return
    found = connection.get(route)["backfills"]
    connection.show_all(found, _print, f"no backfills of {printable(name)}")


def _print(found: Sequence[Mapping[str, Any]]) -> None:
    print_rows(
        BACKFILLS,
        [
            (
                printable(one["backfillId"]),
                printable(one["state"]),
                f"{one['started']:,} of {one['matched']:,}",
                printable(one["error"]) if "error" in one else slot_time(one["reached"]) if "reached" in one else "",
            )
            for one in found
        ],
    )
