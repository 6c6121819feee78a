"""`tocsin pools`: caps on how many jobs run at once; who holds their slots, how many wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.actors.scheduler.model.pool_settings import COOLS, NO_RATE
from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import Refused
from tocsin.cli.listing import ListingGroup
from tocsin.cli.output import Column, key_values, now_ms, print_rows, put, relative, span
from tocsin.cli.rates import rate_of, rate_words
from tocsin.cli.sharing import sharing, weights_of
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
    state = "paused" if pool.get("paused") else "cools" if pool.get("coolingUntil") else ""
    return (printable(pool["name"]), *numbers, state)


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
        *_flow(pool, now_ms()),
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


def _flow(pool: Mapping[str, Any], now: int) -> list[tuple[str, str]]:
    """Return what few pools have."""
    rate, cools = pool.get("rate"), pool.get("coolOnRetryAfter", "none")
    said: list[tuple[str, str]] = []
    if rate is not None:
        waits = f"; the next one {relative(pool['nextTokenAt'], now)}" if pool.get("nextTokenAt") else ""
        said.append(("rate", f"{rate_words(rate)}{waits}"))
    if cools != "none":
        said.append(("cools", f"the {cools}, when a receiver is busy and says until when"))
    if pool.get("coolingUntil"):
        said.append(("cooling", f"none of its jobs start for another {span(max(pool['coolingUntil'] - now, 0))}"))
    return [*said, *sharing(pool)]


@pools.command("set")
@click.argument("name")
@click.option("--max-concurrency", type=int, metavar="N", help="Its cap, 0 to 10000. Jobs no longer set it.")
@click.option("--pause/--resume", "paused", envvar="TOCSIN_POOLS_SET_PAUSE", default=None, help="Hold all its jobs.")
@click.option(
    "--rate", metavar="N/TIME", help="So many may start in a time: 100/1m, or 100/1m/5 with bursts of 5; none: no rate."
)
@click.option(
    "--cool-on-retry-after", type=click.Choice(COOLS), help="What a busy answer with Retry-After holds back until then."
)
@click.option("--end-cooling", is_flag=True, help="Start its jobs again, though a receiver asked to wait.")
@click.option(
    "--fair/--not-fair", envvar="TOCSIN_POOLS_SET_FAIR", default=None, help="Jobs with different shard keys have turns."
)
@click.option("--weight", multiple=True, metavar="KEY=N", help="Turns of a shard key.")
@click.option("--no-weights", is_flag=True, help="All shard keys have one turn.")
@click.option("--max-per-key", type=int, metavar="N", help="How many jobs of one shard key may run at once; 0: no cap.")
@client_command
def pools_set(connection: Connection, /, name: str, rate: str | None, **given: Any) -> None:
    """Set a pool's cap or rate, pause it, share it fairly.

    Jobs that run may finish. The pool need not be there yet; if it was not, it says so.
    """
    said = {
        "maxConcurrency": given["max_concurrency"],
        "paused": given["paused"],
        "rate": rate if rate == NO_RATE else rate_of(rate, "--rate"),
        "coolOnRetryAfter": given["cool_on_retry_after"],
        "cooling": False if given["end_cooling"] else None,
        "fair": given["fair"],
        "weights": {} if given["no_weights"] else weights_of(given["weight"]),
        "maxPerKey": given["max_per_key"],
    }
    body = {"name": name, **{member: value for member, value in said.items() if value is not None}}
    if len(body) == 1:
        raise click.UsageError("say what to set: --max-concurrency, --pause, --resume, --rate; see --help for more")
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


@pools.command("free")
@click.argument("id")
@client_command
def pools_free(connection: Connection, /, id: str) -> None:
    """Free the slot of a job that was accepted, or had no answer.

    The job goes on as when its lease ends: it is retried while it has
    retries left. Refused while it is being called, or a worker has it.
    """
    answer = connection.post("/pool/free", {"id": id})
    missing = f"nothing holds job {id!r} in {connection.instance}, or there is none"
    done = f"freed the slot of {printable(id)}: {printable(_becomes(answer))}" if answer["freed"] else ""
    connection.tell(answer, answer["freed"], missing, done)


def _becomes(freed: Mapping[str, Any]) -> str:
    if freed["state"] == "retrying":
        return f"its next attempt is {relative(freed['nextAttemptAt'], now_ms())}"
    return f"it is {freed['state']}" + (f", {freed['reason']}" if "reason" in freed else "")
