"""`tocsin instances`: the schedulers of a host. Each is listed, paused, resumed, removed by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.confirm import confirm
from tocsin.cli.jobs import PAGE, pages
from tocsin.cli.listing import ListingGroup
from tocsin.cli.output import Column, plural, print_rows, span
from tocsin.cli.times import duration
from tocsin.cli.words import printable, say

INSTANCES: Final = (
    Column("INSTANCE", 24),
    Column("BACKLOG", 9, right=True),
    Column("IN FLIGHT", 10, right=True),
    Column("DEAD", 9, right=True),
    Column("STATE", whole=True),
)


@click.group(cls=ListingGroup)
def instances() -> None:
    """The schedulers of a server. Alone it lists them. Needs the scope admin."""


@instances.command("ls")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_INSTANCES_LS_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def instances_ls(connection: Connection, /, **query: Any) -> None:
    """List instances by name, with how many jobs each has."""
    any_of_them = connection.of("default")
    pages(any_of_them, "/instances", _print, "no instances", query, member="instances")


def _print(found: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    rows = [
        (printable(one["name"]), f"{one['backlog']:,}", f"{one['inFlight']:,}", f"{one['dead']:,}", _state(one))
        for one in found
    ]
    print_rows(INSTANCES, rows, header=header)


def _state(one: Mapping[str, Any]) -> str:
    """Say what keeps an instance from being at work; nothing if it is."""
    for member, words in (("movedTo", "moved to"), ("movingTo", "moving to")):
        if one.get(member):
            return f"{words} {printable(one[member])}"
    return "paused" if one.get("paused") else ""


@instances.command("pause")
@click.argument("name")
@client_command
def instances_pause(connection: Connection, /, name: str) -> None:
    """Stop all firing of an instance; jobs that run may finish."""
    _set_paused(connection, name, True)


@instances.command("resume")
@click.argument("name")
@client_command
def instances_resume(connection: Connection, /, name: str) -> None:
    """Let an instance fire again."""
    _set_paused(connection, name, False)


def _set_paused(connection: Connection, name: str, paused: bool) -> None:
    answer = connection.of(name).put("/instance", {"paused": paused})
    does = "is paused: none of its jobs start" if paused else "starts jobs again"
    connection.show(answer, lambda _: say(f"{printable(name)} {does}"))


@instances.command("set")
@click.argument("name")
@click.option("--timeout", metavar="DURATION", help="Of callbacks, 1s to 1h; 0s: the server's again.")
@client_command
def instances_set(connection: Connection, /, name: str, timeout: str | None) -> None:
    """Set how long callbacks of an instance may take.

    It counts for jobs that have no --timeout of their own, from now on.
    """
    if timeout is None:
        raise click.UsageError("give --timeout (0s: the server's again)")
    answer = connection.of(name).put("/instance", {"timeoutMs": duration(timeout, "--timeout")})
    shown = span(answer["timeoutMs"]) if answer.get("timeoutMs") else "as long as the server says"
    connection.show(answer, lambda _: say(f"callbacks of {printable(name)} may take {shown}"))


@instances.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_command
def instances_rm(connection: Connection, /, name: str, yes: bool) -> None:
    """Remove an instance and everything of it: jobs, dead jobs, history.

    Exit code 1 if there is none of that name.
    """
    named = connection.of(name)
    confirm(f"everything of instance {printable(name)} will be removed:", yes=yes, dry_run=False)
    answer = named.remove_instance()
    missing = f"there is no instance {printable(name)!r}: nothing was removed"
    gone = f"removed {printable(name)}: {plural(answer['jobs'], 'job')}, {plural(answer['rows'], 'row')}"
    connection.tell(answer, answer["rows"], missing, gone)
