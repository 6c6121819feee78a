"""`tocsin workers`: the workers that pull jobs, and the status each reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.jobs import PAGE, pages
from tocsin.cli.output import Column, now_ms, print_rows, relative
from tocsin.cli.words import printable

WORKERS: Final = (
    Column("WORKER", 32),
    Column("STATUS", 8),
    Column("JOBS", 9, right=True),
    Column("HEARD", 10),
    Column("QUEUES"),
)


@click.command()
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_WORKERS_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def workers(connection: Connection, /, **query: Any) -> None:
    """List workers that were heard of within five minutes.

    One that was silent for 30 s is lost: its jobs come again when their
    leases end.
    """
    pages(connection, "/workers", _print, f"no workers in {connection.instance}", query, member="workers")


def _print(found: Sequence[Mapping[str, Any]], *, header: bool) -> None:
    now = now_ms()
    print_rows(WORKERS, [_line(one, now) for one in found], header=header)


def _line(one: Mapping[str, Any], now: int) -> tuple[str, ...]:
    name = f"{one['name']} {one['id']}" if one.get("name") else one["id"]
    queues = one["queues"] if isinstance(one["queues"], str) else ", ".join(one["queues"])
    if one.get("exclude"):
        queues += f" but {', '.join(one['exclude'])}"
    return (
        printable(name),
        "lost" if one.get("lost") else printable(one["status"]),
        f"{len(one.get('jobs', ()))} of {one['concurrency']}",
        relative(one["heartbeatAt"], now),
        printable(queues),
    )
