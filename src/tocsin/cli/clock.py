"""`tocsin clock`: test clocks. An instance is made with one; it is advanced, and frozen where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import No
from tocsin.cli.output import instant, key_values
from tocsin.cli.times import duration, instant_of
from tocsin.cli.words import say

PATIENT_MS: Final = 20_000
"""For how long one question waits for the end of an advance; then it is asked again."""


@click.group()
def clock() -> None:
    """Test clocks: an instance whose time stands until it is advanced."""


@clock.command("new")
@click.argument("at", metavar="INSTANT")
@client_command
def clock_new(connection: Connection, /, at: str) -> None:
    """Make the instance (--instance), with a clock that stands at INSTANT.

    An instance that was used before is refused: one on the live clock stays
    there. Needs the scope admin.
    """
    answer = connection.put("/clock", {"at": instant_of(at, "INSTANT")})
    connection.show(answer, _print)


@clock.command("show")
@client_command
def clock_show(connection: Connection, /) -> None:
    """Show where the clock of the instance stands.

    Exit code 1 if the instance runs on the live clock.
    """
    found = connection.get("/clock").get("clock")
    if found is None:
        if connection.as_json:
            connection.show({}, _print)
        raise No(f"{connection.instance} runs on the live clock")
    connection.show(found, _print)


@clock.command("advance")
@click.argument("span", required=False)
@click.option("--to", metavar="INSTANT", help="To an instant, instead of SPAN.")
@click.option("--no-wait", is_flag=True, help="Begin it only.")
@client_command
def clock_advance(connection: Connection, /, span: str | None, to: str | None, no_wait: bool) -> None:
    """Advance the clock, by a SPAN such as 30d, and wait for the end.

    All that is due until then happens, in order: callbacks are really sent,
    and what runs at one instant has ended before time goes on. The advance
    goes on also if this command is stopped. Needs the scope operate.
    """
    if (span is None) == (to is None):
        raise click.UsageError("give SPAN or --to, one of them")
    body = {"byMs": duration(span, "SPAN")} if span is not None else {"to": instant_of(to or "", "--to")}
    state = connection.post("/clock/advance", body)
    told: str | None = None
    while state["advancing"] and not no_wait:
        state = connection.patient(PATIENT_MS / 1000 + 10).get("/clock", waitMs=PATIENT_MS)["clock"]
        waits = state.get("waitsFor")
        if waits is not None and waits != told and state["advancing"]:
            say(f"tocsin: the clock stands at {instant(state['now'])}: {waits}")
        told = waits
    connection.show(state, _print)


@clock.command("freeze")
@client_command
def clock_freeze(connection: Connection, /) -> None:
    """End an advance where the clock stands. What has begun goes on."""
    connection.show(connection.post("/clock/freeze", {}), _print)


def _print(state: Mapping[str, Any]) -> None:
    target = state.get("target")
    key_values(
        ("now", instant(state["now"])),
        ("target", None if target is None else instant(target)),
        ("waits for", state.get("waitsFor")),
    )
