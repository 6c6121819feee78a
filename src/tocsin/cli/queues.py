"""Commands about pulled work: `queues`, `claim`, `pending`, `result`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import click

from tocsin.cli.client import TIMEOUT_S, Connection, client_command
from tocsin.cli.failure import No, Refused
from tocsin.cli.listing import ListingGroup
from tocsin.cli.output import Column, emit, instant, key_values, now_ms, plural, print_rows, put, relative, span
from tocsin.cli.sharing import sharing, weights_of
from tocsin.cli.times import duration
from tocsin.cli.words import printable, say

QUEUES: Final = (
    Column("QUEUE", 30),
    Column("WAITING", 9, right=True),
    Column("DUE", 7, right=True),
    Column("OLDEST", 8, right=True),
    Column("IN FLIGHT", 9, right=True),
    Column("CLAIMS", 8, right=True),
)
MARGIN_MS: Final = 10_000
"""The longest wait of one request; shorter than the connection's timeout."""
ENDED: Final = ("done", "dead", "cancelled", "expired")


@click.group(cls=ListingGroup)
def queues() -> None:
    """Queues of work that is pulled. Alone it lists them."""


@queues.command("ls")
@client_command
def queues_ls(connection: Connection, /) -> None:
    """List the queues that hold jobs, or have settings.

    OLDEST: for how long the first due one waits. CLAIMS: how many workers wait
    for a job of it.
    """
    found = connection.get("/queues")["queues"]
    connection.show_all(found, _print_queues, f"no queues in {connection.instance}")


@queues.command("set")
@click.argument("name")
@click.option("--fair/--not-fair", envvar="TOCSIN_QUEUES_SET_FAIR", default=None, help="Shard keys have turns.")
@click.option("--weight", multiple=True, metavar="KEY=N", help="Turns of a shard key.")
@click.option("--no-weights", is_flag=True, help="All shard keys have one turn.")
@click.option("--max-per-key", type=int, metavar="N", help="How many jobs of one shard key may run at once; 0: no cap.")
@client_command
def queues_set(connection: Connection, /, name: str, **given: Any) -> None:
    """Let jobs of a queue have turns by shard key.

    Jobs that wait are moved. The turns of a fair pool go before.
    """
    said = {
        "fair": given["fair"],
        "weights": {} if given["no_weights"] else weights_of(given["weight"]),
        "maxPerKey": given["max_per_key"],
    }
    body = {member: value for member, value in said.items() if value is not None}
    if not body:
        raise click.UsageError("say what to set: --fair, --weight, --max-per-key; see --help for more")
    connection.show(connection.put(f"/queues/{quote(name, safe=':') or '%20'}", body), _print_queue)


def _print_queue(queue: Mapping[str, Any]) -> None:
    key_values(("queue", queue["name"]), ("waiting", f"{queue['waiting']:,}"), *sharing(queue))


def _print_queues(found: Sequence[Mapping[str, Any]]) -> None:
    print_rows(QUEUES, [_line(one) for one in found])


def _line(queue: Mapping[str, Any]) -> tuple[str, ...]:
    oldest = queue.get("oldestDueMs")
    return (
        printable(queue["name"]),
        f"{queue['waiting']:,}",
        f"{queue['due']:,}" + ("+" if queue["due"] >= 10_000 else ""),
        "" if oldest is None else span(oldest),
        f"{queue['inFlight']:,}",
        f"{queue['workersWaiting']:,}",
    )


@click.command()
@click.argument("queue", default="*")
@click.option(
    "--max",
    "most",
    envvar="TOCSIN_CLAIM_MAX",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="At most so many.",
)
@click.option("--lease", metavar="DURATION", default="60s", show_default=True, help="They are yours for so long.")
@click.option("--wait", metavar="DURATION", default="0s", show_default=True, help="Wait so long for one, 5m at most.")
@click.option("--exclude", metavar="NAME", multiple=True, help="Without QUEUE: not from there. May be repeated.")
@client_command
def claim(connection: Connection, /, queue: str, most: int, lease: str, wait: str, exclude: tuple[str, ...]) -> None:
    """Take due jobs of a queue, to work on them.

    QUEUE is a name, several (mail,pdf), or left out: all. Say how each ended
    with `tocsin complete ID LEASE`, within --lease. Exit code 1 if there was
    none.
    """
    wait_ms = duration(wait, "--wait")
    said = {"max": most, "leaseMs": duration(lease, "--lease"), "waitMs": wait_ms}
    patient = connection.patient(TIMEOUT_S + (wait_ms + MARGIN_MS) / 1_000)
    route = f"/queues/{quote(queue, safe='*,:')}/claim"
    found = patient.post(route, {**said, "exclude": list(exclude)} if exclude else said)["jobs"]
    if not found:
        raise No(f"no job of {'any queue' if queue == '*' else printable(queue)} is due in {connection.instance}")
    connection.show_all(found, _print_claimed, "")


def _print_claimed(found: Sequence[Mapping[str, Any]]) -> None:
    for one in found:
        put(f"{printable(one['id'])} {printable(one['lease'])}")
    for one in found:
        path = printable(one.get("functionPath") or one.get("workflow") or "")
        ends = relative(one["leaseUntil"], now_ms())
        say(f"{printable(one['id'])} is attempt {one['attempt']} of {path}; its lease ends {ends}")


@click.command()
@click.argument("prefix", default="")
@client_command
def pending(connection: Connection, /, prefix: str) -> None:
    """Ask whether any job is left whose path starts with PREFIX.

    Live jobs count, and those that follow them. Exit code 0 if there are any,
    1 if there are none. Without PREFIX: any job at all.
    """
    found = connection.get("/pending", prefix=prefix)
    what = f" whose path starts with {prefix!r}" if prefix else ""
    if connection.as_json:
        emit(found)
    if not found["pending"]:
        raise No(f"no job{what} is left in {connection.instance}")
    if not connection.as_json:
        say(f"{plural(found['count'], 'job')}{what} {'is' if found['count'] == 1 else 'are'} left")


@click.command()
@click.argument("id")
@click.option("--wait", metavar="DURATION", help="Wait so long for its end, 5m at most.")
@client_command
def result(connection: Connection, /, id: str, wait: str | None) -> None:
    """Print what a job came to, as JSON.

    It must have been scheduled with --keep-result. Exit code 1 if it is dead,
    was cancelled or expired, or has not ended within --wait.
    """
    wait_ms = None if wait is None else duration(wait, "--wait")
    patient = connection.patient(TIMEOUT_S + ((wait_ms or 0) + MARGIN_MS) / 1_000)
    found = patient.get("/result", id=id, waitMs=wait_ms)
    if connection.as_json:
        emit(found)
    state = found["state"]
    if state == "done":
        if not connection.as_json:
            _print(found)
        return
    if state in ENDED:
        error = f": {printable(found['error'])}" if found.get("error") else ""
        raise Refused(f"job {id!r} is {state}{error}")
    raise Refused(f"job {id!r} has not ended: it is {state}" + ("" if wait else "; --wait 30s waits for it"))


def _print(found: Mapping[str, Any]) -> None:
    if found.get("resultDamaged"):
        raise Refused(f"the result of job {found['id']!r} was damaged in the store")
    emit(found.get("result"))
    if found.get("noResult"):
        say(printable(found["noResult"]))
    if (until := found.get("keptUntil")) is not None:
        say(f"kept until {instant(until)} ({relative(until, now_ms())})")
