"""`tocsin status`: the counts of one scheduler, and its pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.output import emit, key_values, printable, say, show, span


@click.command()
@client_command
def status(connection: Connection, /) -> None:
    """Show how many jobs wait, run and are dead, and the pools."""
    answer = connection.get("/status")
    if connection.as_json:
        emit(answer)
        return
    lanes = answer.get("lanes") or {}
    late = answer.get("oldestDueMs")
    key_values(
        [
            ("health", answer.get("health")),
            ("backlog", f"{answer['backlog']:,}"),
            ("due now", f"{answer['due']:,}" + (f" (the oldest for {span(late)})" if late is not None else "")),
            ("in flight", f"{answer['inFlight']:,}"),
            ("dead", f"{answer['dead']:,}"),
            ("lanes", f"{lanes['inFlight']} of {lanes['limit']} in use" if lanes else None),
        ]
    )
    if answer.get("pools"):
        _print_pools(answer["pools"], more=bool(answer.get("morePools")))


def _print_pools(pools: Sequence[Mapping[str, Any]], *, more: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("POOL", overflow="ellipsis", no_wrap=True)
    table.add_column("IN FLIGHT", justify="right")
    table.add_column("CAP", justify="right")
    table.add_column("QUEUED", justify="right")
    table.add_column("")
    for pool in pools:
        numbers = (str(pool[name]) for name in ("inFlight", "maxConcurrency", "queued"))
        table.add_row(Text(printable(pool["name"])), *numbers, "paused" if pool.get("paused") else "")
    click.echo()
    show(table)
    if more:
        say("there are more pools than these, the longest 1,000")
