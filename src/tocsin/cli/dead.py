"""`tocsin dead`: the jobs that gave up and are kept for people. A dead job is retried or cancelled."""

from __future__ import annotations

from typing import Any

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import Refused
from tocsin.cli.jobs import PAGE, pages, record_of
from tocsin.cli.listing import ListingGroup
from tocsin.cli.records import print_dead, print_record
from tocsin.cli.redrives import dead_cancel_all, dead_groups, dead_redrive, dead_retry_all
from tocsin.cli.times import instant_of


@click.group(cls=ListingGroup)
def dead() -> None:
    """Jobs that gave up: look at them, retry or cancel them. Alone it lists."""


@dead.command("ls")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_DEAD_LS_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--pool", help="Only this pool's.")
@click.option("--label", help="Only those with this label.")
@click.option("--reason", help="Only those given up for this reason.")
@click.option("--path", "functionPath", envvar="TOCSIN_DEAD_LS_PATH", help="Only those that call this path.")
@click.option("--since", metavar="INSTANT", help="Only those parked since.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def dead_ls(connection: Connection, /, since: str | None, **query: Any) -> None:
    """List dead jobs, the newest last."""
    query["since"] = None if since is None else instant_of(since, "--since")
    pages(connection, "/dead", print_dead, f"no dead jobs in {connection.instance}", query)


@dead.command("show")
@click.argument("id")
@client_command
def dead_show(connection: Connection, /, id: str) -> None:
    """Show why a job is dead, and its last answer."""
    record = record_of(connection, id)
    if record["state"] != "dead":
        raise Refused(f"job {id!r} is not dead but {record['state']}: see `tocsin get`")
    connection.show(record, print_record)


@dead.command("retry")
@click.argument("id")
@client_command
def dead_retry(connection: Connection, /, id: str) -> None:
    """Make a dead job due now, with a fresh budget of tries."""
    answer = connection.post("/dead/retry", {"id": id})
    connection.tell(answer, answer["retried"], _no_dead_job(connection, id), f"{id} is due now")


@dead.command("cancel")
@click.argument("id")
@client_command
def dead_cancel(connection: Connection, /, id: str) -> None:
    """Remove a dead job for good."""
    answer = connection.post("/dead/cancel", {"id": id})
    connection.tell(answer, answer["removed"], _no_dead_job(connection, id), f"removed {id}")


def _no_dead_job(connection: Connection, id: str) -> str:
    return f"there is no dead job {id!r} in {connection.instance}"


dead.add_command(dead_retry_all)
dead.add_command(dead_redrive)
dead.add_command(dead_cancel_all)
dead.add_command(dead_groups)
