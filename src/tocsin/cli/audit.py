"""`tocsin audit`: what operators did with an instance, and who they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.jobs import PAGE, pages
from tocsin.cli.output import Column, now_ms, print_rows, relative
from tocsin.cli.times import instant_of
from tocsin.cli.words import printable

ACTIONS: Final = (
    Column("ID", 26),
    Column("WHEN", 12),
    Column("CHANGED", 7, right=True),
    Column("ACTION", 32),
    Column("WHO", below=True),
    Column("WHAT", below=True),
)


@click.command()
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_AUDIT_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--action", help="Only this one, such as set_pool.")
@click.option("--who", help="Only by this token or user, or by this way: python, http, dashboard.")
@click.option("--since", metavar="INSTANT", help="Only those since.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def audit(connection: Connection, /, since: str | None, **query: Any) -> None:
    """List what operators did, and who they were.

    The newest is first. Only what changed something is listed.
    """
    query["since"] = None if since is None else instant_of(since, "--since")
    empty = f"no operator has changed anything in {connection.instance}"
    pages(connection, "/audit", print_actions, empty, query, "actions")


def print_actions(found: Any, *, header: bool) -> None:
    now = now_ms()
    print_rows(ACTIONS, [_line(one, now) for one in found], header=header)


def _line(one: Mapping[str, Any], now: int) -> tuple[str, ...]:
    return (
        printable(one["id"]),
        relative(one["at"], now),
        f"{one['changed']:,}",
        printable(one["action"]),
        _who(one["by"]),
        _what(one),
    )


def _who(by: Mapping[str, Any]) -> str:
    named = "/".join(printable(by[name]) for name in ("token", "user") if by.get(name))
    return f"{named} ({by['via']})" if named else str(by["via"])


def _what(one: Mapping[str, Any]) -> str:
    given = [f"{name}={printable(str(value))}" for name, value in one.get("given", {}).items()]
    undone = ["(undone)"] if "undoneBy" in one else []
    about = [printable(one["about"])] if "about" in one else []
    return " ".join([*about, *given, *undone])
