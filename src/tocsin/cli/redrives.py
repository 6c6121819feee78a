"""`tocsin dead retry-all`, `redrive`, `cancel-all` and `groups`: many dead jobs at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.cli.changes import chosen
from tocsin.cli.client import Connection, client_command
from tocsin.cli.confirm import confirm
from tocsin.cli.failure import Refused
from tocsin.cli.names import redrive_in_path
from tocsin.cli.output import Column, emit, key_values, now_ms, plural, print_rows, put, relative
from tocsin.cli.times import instant_of
from tocsin.cli.undoing import say_undo
from tocsin.cli.words import printable, say


@click.command("retry-all")
@click.option("--pool", help="Only this pool's.")
@click.option("--reason", help="Only those given up for this reason.")
@click.option("--path", help="Only those that call this path.")
@click.option("--since", metavar="INSTANT", help="Only those parked since.")
@click.option("--id", "ids", envvar="TOCSIN_DEAD_RETRY_ALL_ID", multiple=True, help="Only this one; may be repeated.")
@click.option("--all", "every", envvar="TOCSIN_DEAD_RETRY_ALL_ALL", is_flag=True, help="Every dead job.")
@click.option("--rate-per-second", type=int, default=10, show_default=True, help="How many a second.")
@click.option("--dry-run", is_flag=True, help="Only count what it would retry.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_command
def dead_retry_all(
    connection: Connection, /, since: str | None, every: bool, rate_per_second: int, dry_run: bool, yes: bool,
    **filters: Any,
) -> None:  # fmt: skip
    """Retry every dead job that a filter matches, at a pace.

    The server goes on with it by itself, over restarts too. Prints its id, for
    `tocsin dead redrive`. Exit code 1 if no dead job matches.
    """
    body = letters_of(filters, since, every)
    body["ratePerSecond"] = rate_per_second
    if dry_run or not yes:
        matched = connection.count("/dead/retry-all", body)
        if dry_run or not matched["matched"]:
            _would_retry(connection, matched)
            return
        words = f"{plural(matched['matched'], 'dead job')} of {connection.instance} will be retried:"
        confirm(words, yes=False, dry_run=True)
    answer = connection.post("/dead/retry-all", body)
    if connection.as_json:
        emit(answer)
    if not answer["matched"]:
        raise Refused(f"no dead job of {connection.instance} matches")
    if connection.as_json:
        return
    put(printable(answer["redriveId"]))
    later = f", once {printable(answer['waitsFor'])} has ended" if "waitsFor" in answer else ""
    say(f"retrying {plural(answer['matched'], 'dead job')}, {rate_per_second} a second{later}")
    say_undo(answer, answer["redriveId"])


def letters_of(filters: Mapping[str, Any], since: str | None, every: bool) -> dict[str, Any]:
    """Return which dead jobs are meant, as a body."""
    named = {"pool": filters["pool"], "reason": filters["reason"], "functionPath": filters["path"]}
    instant = None if since is None else instant_of(since, "--since")
    return chosen({**named, "since": instant, "ids": list(filters["ids"]) or None}, every)


@click.command("cancel-all")
@click.option("--pool", help="Only this pool's.")
@click.option("--reason", help="Only those given up for this reason.")
@click.option("--path", help="Only those that call this path.")
@click.option("--since", metavar="INSTANT", help="Only those parked since.")
@click.option("--id", "ids", envvar="TOCSIN_DEAD_CANCEL_ALL_ID", multiple=True, help="Only this one; may be repeated.")
@click.option("--all", "every", envvar="TOCSIN_DEAD_CANCEL_ALL_ALL", is_flag=True, help="Every dead job.")
@click.option("--dry-run", is_flag=True, help="Only count what it would remove.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_command
def dead_cancel_all(
    connection: Connection, /, since: str | None, every: bool, dry_run: bool, yes: bool, **filters: Any
) -> None:
    """Remove every dead job that a filter matches.

    For ten minutes that can be undone. Exit code 1 if no dead job matches.
    """
    body = letters_of(filters, since, every)
    none = f"no dead job of {connection.instance} matches"
    if dry_run or not yes:
        counted = connection.count("/dead/cancel-all", body)
        if dry_run or not counted["matched"]:
            connection.tell(counted, counted["matched"], none, f"would remove {plural(counted['matched'], 'dead job')}")
            return
        words = f"{plural(counted['matched'], 'dead job')} of {connection.instance} will be removed:"
        confirm(words, yes=False, dry_run=True)
    answer = connection.post("/dead/cancel-all", body)
    removed = f"removed {answer['cancelled']:,} of {plural(answer['matched'], 'dead job')}"
    connection.tell(answer, answer["matched"], none, removed)
    if not connection.as_json:
        say_undo(answer, answer.get("actionId"))


GROUPS: Final = (
    Column("PATH", 40),
    Column("REASON", 12),
    Column("COUNT", 9, right=True),
    Column("NEWEST", 14),
    Column("LAST ERROR", below=True),
)


@click.command("groups")
@client_command
def dead_groups(connection: Connection, /) -> None:
    """Count dead jobs by path and reason."""
    answer = connection.get("/dead/groups")
    connection.show_all(answer["groups"], _print_groups, f"no dead jobs in {connection.instance}")
    if answer["truncated"]:
        say("only the newest 100,000 dead jobs and the largest 200 groups are counted")


def _print_groups(found: Any) -> None:
    now = now_ms()
    print_rows(GROUPS, [_group(one, now) for one in found])


def _group(one: Mapping[str, Any], now: int) -> tuple[str, ...]:
    newest = relative(one["newest"], now)
    return printable(one["path"]), one["reason"], f"{one['count']:,}", newest, printable(one.get("lastError", ""))


def _would_retry(connection: Connection, answer: Mapping[str, Any]) -> None:
    would = f"would retry {plural(answer['matched'], 'dead job')}"
    connection.tell(answer, answer["matched"], f"no dead job of {connection.instance} matches", would)


@click.command("redrive")
@click.argument("id")
@click.option("--stop", is_flag=True, help="Stop it: what it has not reached stays dead.")
@client_command
def dead_redrive(connection: Connection, /, id: str, stop: bool) -> None:
    """Show how far a retry of many has come, or stop it."""
    route = f"/dead/redrives/{redrive_in_path(id)}"
    if stop:
        answer = connection.delete(route)
        if not answer["stopped"]:
            if connection.as_json:
                emit(answer)
            raise Refused(f"there is no bulk retry {id!r} running in {connection.instance}")
        if not connection.as_json:
            say(f"stopped {printable(id)}")
    connection.show(connection.get(route), _print_redrive)


def _print_redrive(found: Mapping[str, Any]) -> None:
    state = "running" if found["running"] else "stopped" if found.get("stopped") else "done"
    key_values(
        ("redrive", found["redriveId"]),
        ("state", state),
        ("waits for", found.get("waitsFor")),
        ("matched", f"{found['matched']:,}"),
        ("retried", f"{found['retried']:,}"),
    )
