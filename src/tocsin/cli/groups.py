"""`tocsin groups`: jobs that are counted together, and what follows when all of them have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.job_options import then_of
from tocsin.cli.jobs import PAGE, pages
from tocsin.cli.listing import ListingGroup
from tocsin.cli.output import Column, key_values, now_ms, print_rows, when
from tocsin.cli.records import print_jobs, then_lines
from tocsin.cli.words import printable

COUNTS: Final = ("members", "open", "done", "dead", "cancelled", "expired")
COLUMNS: Final = (
    Column("GROUP", 20),
    Column("STATE", 9),
    *(Column(name.upper(), max(len(name), 7), right=True) for name in COUNTS),
)


@click.group(cls=ListingGroup)
def groups() -> None:
    """Jobs that are counted together. Alone it lists."""


def _route(name: str, action: str = "") -> str:
    return f"/groups/{quote(name, safe='')}{action}"


@groups.command("ls")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_GROUPS_LS_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def groups_ls(connection: Connection, /, **query: Any) -> None:
    """List groups by name, with their counts."""
    pages(connection, "/groups", _print_groups, f"no groups in {connection.instance}", query, member="groups")


@groups.command("show")
@click.argument("name")
@client_command
def groups_show(connection: Connection, /, name: str) -> None:
    """Show one group: how its members ended, and what follows."""
    connection.show(connection.get(_route(name)), _print_group)


@groups.command("members")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_GROUPS_MEMBERS_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def groups_members(connection: Connection, /, name: str, **query: Any) -> None:
    """List the members of a group that live or are dead."""
    empty = f"no live or dead members of {name}"
    pages(connection, _route(name, "/members"), print_jobs, empty, query)


@groups.command("open")
@click.argument("name")
@click.option("--size", type=click.IntRange(1), metavar="N", help="It is complete with so many members.")
@click.option("--then", metavar="JSON", help="Jobs to start when all have ended and none is dead.")
@click.option("--on-dead", metavar="JSON", help="Jobs to start, once, when all have ended and some are dead.")
@client_command
def groups_open(connection: Connection, /, name: str, size: int | None, then: str | None, on_dead: str | None) -> None:
    """Make a group, which jobs join with --group.

    \b
    tocsin groups open import-7 --then '{"functionPath": "mail:done"}'
    tocsin schedule rows:load --in 0 --group import-7
    tocsin groups seal import-7
    """
    body = {
        "name": name,
        "size": size,
        "then": then_of(then, "--then"),
        "onDead": then_of(on_dead, "--on-dead"),
    }
    said = {member: value for member, value in body.items() if value is not None}
    _tell(connection, connection.post("/groups", said), "is open")


@groups.command("seal")
@click.argument("name")
@client_command
def groups_seal(connection: Connection, /, name: str) -> None:
    """Let no more jobs join: it is complete once its members are."""
    _tell(connection, connection.post(_route(name, "/seal"), {}), "is sealed")


@groups.command("cancel")
@click.argument("name")
@client_command
def groups_cancel(connection: Connection, /, name: str) -> None:
    """Cancel all members that live. Nothing follows the group then."""
    _tell(connection, connection.post(_route(name, "/cancel"), {}), "is being cancelled")


def _tell(connection: Connection, group: Mapping[str, Any], what: str) -> None:
    connection.tell(group, True, "", f"group {printable(group['name'])} {what}: {_counts(group)}")


def _counts(group: Mapping[str, Any]) -> str:
    return f"{group['open']} of {group['members']} members are open"


def _print_groups(found: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    rows = [(printable(one["name"]), one["state"], *(str(one[name]) for name in COUNTS)) for one in found]
    print_rows(COLUMNS, rows, header=header)


def _print_group(one: Mapping[str, Any]) -> None:
    now = now_ms()
    key_values(
        ("group", one["name"]),
        ("state", one["state"] + (", being cancelled" if one.get("stopping") else "")),
        ("sealed", "yes" if one["sealed"] else "no"),
        ("size", one.get("size")),
        *((name, one[name]) for name in COUNTS),
        ("made", when(one["madeAt"], now)),
        ("ended", when(one.get("endedAt"), now)),
        ("then", "\n".join(then_lines(one.get("then") or ())) or None),
        ("on dead", "\n".join(then_lines(one.get("onDead") or ())) or None),
    )
