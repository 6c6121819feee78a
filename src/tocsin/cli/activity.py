"""`tocsin activity`: what a scheduler did, minute by minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.output import Column, clock_time, print_rows, span
from tocsin.cli.words import say

MINUTES: Final = (
    Column("MINUTE", 6),
    Column("ACCEPTED", 9, right=True),
    Column("STARTED", 9, right=True),
    Column("DONE", 9, right=True),
    Column("FAILED", 7, right=True),
    Column("DIED", 7, right=True),
    Column("BACKLOG", 9, right=True),
    Column("LATE 95%", 8, right=True),
    Column("TOOK 95%", 8, right=True),
)
COUNTS: Final = (("accepted", 9), ("started", 9), ("done", 9), ("failed", 7), ("died", 7))
"""Counts of a minute, and their widths."""


@click.command()
@click.option("--minutes", type=click.IntRange(1, 60), default=15, show_default=True, help="The last so many.")
@client_command
def activity(connection: Connection, /, minutes: int) -> None:
    """Show what a scheduler did in each of the last minutes.

    The last line is the present minute; times are UTC. LATE and TOOK: 95 of
    100 attempts were less late, and quicker.
    """
    found = connection.get("/activity", minutes=minutes)
    connection.show(found, lambda answer: _print(connection.instance, answer))


def _print(instance: str, answer: Mapping[str, Any]) -> None:
    minutes: Sequence[Mapping[str, Any]] = answer["minutes"]
    print_rows(MINUTES, [_line(one) for one in minutes])
    if minutes and minutes[0]["at"] < answer["since"]:
        say(f"{instance} is watched for {span(answer['now'] - answer['since'])}: what it did before is not known")


def _count(count: int, wide: int) -> str:
    """Format a count in so many cells: a number that was cut would be another one."""
    return exact if len(exact := f"{count:,}") <= wide else f"{count / 1_000_000:,.1f}M"


def _line(one: Mapping[str, Any]) -> tuple[str, ...]:
    counts = [_count(one.get(name, 0), wide) for name, wide in COUNTS]
    backlog, late, took = (one.get(name) for name in ("backlog", "lateP95Ms", "tookP95Ms"))
    return (
        clock_time(one["at"]),
        *counts,
        "" if backlog is None else _count(backlog, 9),
        "" if late is None else span(late),
        "" if took is None else span(took),
    )
