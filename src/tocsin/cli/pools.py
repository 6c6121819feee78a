"""`tocsin pools`: caps on how many jobs run at once; who holds their slots, how many wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import Refused
from tocsin.cli.listing import ListingGroup
from tocsin.cli.output import Column, key_values, now_ms, print_rows, put, relative
from tocsin.cli.words import printable, say

POOLS: Final = (
    Column("POOL", 40),
    Column("IN FLIGHT", 9, right=True),
    Column("CAP", 9, right=True),
    Column("QUEUED", 9, right=True),
    Column("", 9),
)
MORE: Final = "only the 1,000 pools with most jobs waiting are shown"
HOLDERS: Final = (Column("HELD BY", 40), Column("KIND", 9), Column("UNTIL", 12), Column(""))


@click.group(cls=ListingGroup)
def pools() -> None:
    """Caps on how many jobs run at once. Alone it lists them."""


@pools.command("ls")
@client_command
def pools_ls(connection: Connection, /) -> None:
    """List pools, those with most jobs waiting first (1,000 at most)."""
    answer = connection.get("/status")
    connection.show_all(answer["pools"], print_pools, f"no pools in {connection.instance}")
    if answer.get("morePools"):
        say(MORE)


def print_pools(found: Any) -> None:
    print_rows(POOLS, [_line(pool) for pool in found])


def _line(pool: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (f"{pool[name]:,}" for name in ("inFlight", "maxConcurrency", "queued"))
    return (printable(pool["name"]), *numbers, "paused" if pool.get("paused") else "")


@pools.command("show")
@click.argument("name")
@client_command
def pools_show(connection: Connection, /, name: str) -> None:
    """Show one pool, and who holds its slots."""
    pool = connection.get("/pool", name=name)
    if pool.get("known") is False:
        raise Refused(f"there is no pool {name!r} in {connection.instance}: nobody has set it, and no job has named it")
    connection.show(pool, _print_pool)


def _print_pool(pool: Mapping[str, Any]) -> None:
    key_values(
        ("pool", pool["name"]),
        ("in flight", f"{pool['inFlight']:,} of {pool['maxConcurrency']:,}"),
        ("queued", f"{pool['queued']:,}"),
        ("paused", "yes: none of its jobs start" if pool["paused"] else "no"),
    )
    holders = pool.get("holders") or ()
    if not holders:
        return
    put()
    now = now_ms()
    print_rows(
        HOLDERS,
        [
            (
                printable(holder["id"]),
                printable(holder["kind"]),
                relative(holder["until"], now),
                "cancelled" if holder.get("orphan") else "",
            )
            for holder in holders
        ],
    )
    if pool["inFlight"] > len(holders):
        say(f"and {pool['inFlight'] - len(holders):,} more")


@pools.command("set")
@click.argument("name")
@click.option("--max-concurrency", type=int, metavar="N", help="Its cap, 0 to 10000. Jobs no longer set it.")
@click.option("--pause/--resume", "paused", envvar="TOCSIN_POOLS_SET_PAUSE", default=None, help="Hold all its jobs.")
@client_command
def pools_set(connection: Connection, /, name: str, max_concurrency: int | None, paused: bool | None) -> None:
    """Set a pool's cap, pause or resume it. Jobs that run may finish.

    The pool need not be there yet; if it was not, it says so.
    """
    given = {"name": name, "maxConcurrency": max_concurrency, "paused": paused}
    body = {member: value for member, value in given.items() if value is not None}
    if len(body) == 1:
        raise click.UsageError("say what to set: --max-concurrency, --pause or --resume")
    pool = connection.put("/pool", body)
    connection.show(pool, _print_pool)
    if not connection.as_json and pool.get("created") is not None:
        new = f"made pool {name}: no job has named it yet (tocsin pools rm {name} takes it back)"
        say(new if pool["created"] else f"changed pool {name}")


@pools.command("rm")
@click.argument("name")
@client_command
def pools_rm(connection: Connection, /, name: str) -> None:
    """Forget a pool's cap and pause. Refused while a job names it."""
    answer = connection.delete("/pool", name=name)
    missing = f"there is no pool {name!r} in {connection.instance}"
    connection.tell(answer, answer["deleted"], missing, f"removed pool {printable(name)}")
