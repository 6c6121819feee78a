"""Commands about live jobs: `schedule`, `ls`, `get`, `cancel`. Each is one request to a server (`ls --all`:
one a page), and prints what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from tocsin.cli.client import Accepted, Connection, client_command
from tocsin.cli.failure import Refused
from tocsin.cli.job_options import job_options, json_of, members_of
from tocsin.cli.output import emit, instant, now_ms, put, relative
from tocsin.cli.records import print_jobs, print_record
from tocsin.cli.times import due, instant_of, optional_duration
from tocsin.cli.words import printable, say

STATES: Final = ("pending", "waiting", "running")
ORDERS: Final = ("due", "id")
CONFLICTS: Final = ("error", "keep", "replace")
ON_THROTTLE: Final = ("refuse", "merge")
PAGE: Final = 1_000
FLAGS: Final = {"functionPath": "path"}
"""Filters that have another name for a server."""


@click.command()
@click.argument("path")
@click.option("--in", "delay", envvar="TOCSIN_SCHEDULE_IN", metavar="DURATION", help="After 90s, 5m, 2h, 1d.")
@click.option("--at", metavar="INSTANT", help="At 2027-01-01T09:00:00Z (zone needed), or epoch ms.")
@click.option("--args", metavar="JSON", help="The job's args; @FILE reads a file, - reads stdin.")
@click.option("--id", help="Your own id; left out, one is made.")
@click.option("--on-conflict", type=click.Choice(CONFLICTS), help="If the id is taken (default: error).")
@job_options(jitter="--jitter")
@click.option("--expires-at", metavar="INSTANT", help="Do not start after this.")
@click.option("--keep-result", metavar="DURATION", help="Keep what it comes to: see tocsin result.")
@click.option("--debounce", metavar="DURATION", help="Due so long after the last call of its --id.")
@click.option("--max-wait", metavar="DURATION", help="But no later than so long after the first.")
@click.option("--throttle", metavar="DURATION", help="No further job of its --id for so long.")
@click.option("--on-throttle", type=click.Choice(ON_THROTTLE), help="Further calls meanwhile (default: refuse).")
@click.option("--group", metavar="NAME", help="Count it in this group: see tocsin groups.")
@click.option("--workflow", is_flag=True, help="PATH names a workflow, not a function.")
@client_command
def schedule(connection: Connection, /, path: str, **options: Any) -> None:
    """Have PATH called back, now or later. Prints the job's id.

    With --queue nobody is called: a worker pulls it.

    \b
    tocsin schedule invoices:send --in 5m --args '{"invoice": 42}'
    tocsin schedule cleanup:run --at 2027-01-01T00:00:00Z --id cleanup-2027
    tocsin schedule video:cut --queue video --then '{"functionPath": "mail:send"}'
    """
    try:
        answer = connection.post("/schedule", _request(path, options))
    except Accepted as kept:
        if not connection.as_json:
            put(printable(kept.answer["id"]))
        raise
    if connection.as_json:
        emit(answer)
        return
    put(printable(answer["id"]))
    at = answer["scheduledFor"]
    if answer.get("created", True):
        say(f"due {relative(at, now_ms())}, at {instant(at)}")
    elif "identical" not in answer:
        how = (
            "kept until the job of that id has run"
            if answer.get("state") == "running"
            else "one job with earlier calls"
        )
        say(f"{how}; due {relative(at, now_ms())}, at {instant(at)}")
    else:
        same = "it is what you asked for" if answer.get("identical") else "it differs from what you asked for"
        say(f"kept the {answer.get('state', 'live')} job of that id, due at {instant(at)}; {same}")


def _request(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Build the body of POST /schedule; options not given are left out, so the server's defaults apply."""
    body: dict[str, Any] = {"workflow" if options["workflow"] else "functionPath": path}
    body.update(due(options["delay"], options["at"], options["debounce"]))
    given = {
        "id": options["id"],
        "onConflict": options["on_conflict"],
        **members_of(options, "jitter"),
        "expiresAt": None if options["expires_at"] is None else instant_of(options["expires_at"], "--expires-at"),
        "keepResultMs": optional_duration(options["keep_result"], "--keep-result"),
        "maxWaitMs": optional_duration(options["max_wait"], "--max-wait"),
        "throttleMs": optional_duration(options["throttle"], "--throttle"),
        "onThrottle": options["on_throttle"],
        "group": options["group"],
    }
    body.update({name: value for name, value in given.items() if value is not None})
    if options["args"] is not None:
        body["args"] = json_of(options["args"])
    return body


@click.command()
@click.option("--order", type=click.Choice(ORDERS), default="due", show_default=True, help="Sort by.")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_LS_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--pool", help="Only this pool's.")
@click.option("--label", help="Only those with this label.")
@click.option("--queue", help="Only those of this queue.")
@click.option("--path", "functionPath", envvar="TOCSIN_LS_PATH", help="Only those that call this path.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def ls(connection: Connection, /, **query: Any) -> None:
    """List live jobs, the next ones first. Dead ones: `tocsin dead ls`."""
    pages(connection, "/list", print_jobs, f"no live jobs in {connection.instance}", query)


def pages(
    connection: Connection, route: str, show: Any, empty: str, query: dict[str, Any], member: str = "records"
) -> None:
    """Print one page, or all of them (`every`). A page may be short and not be the last: the server bounds its work.
    `empty` is said if there is nothing, and by what it was asked for."""
    shown = 0
    every, limit = query.pop("every"), query.pop("limit")
    cursor = query_cursor = query.pop("cursor")
    away: set[str] = set()
    while True:
        page = connection.get(route, cursor=cursor, limit=PAGE if every else limit - shown, **query)
        records = page[member]
        if connection.as_json:
            for record in records:
                emit(record)
        elif records:
            show(records, header=shown == 0)
        shown += len(records)
        away.update(page.get("away", ()))
        cursor = page.get("cursor") if page.get("truncated") else None
        if cursor is None or (not every and shown >= limit):
            break
    if away:
        say(f"left out, because their store is away: those of {', '.join(map(printable, sorted(away)))}")
    if cursor is not None:
        say(f"there are more: --all, or --cursor {cursor}")
    elif not shown and not connection.as_json:
        say(empty + asked_for({**query, "cursor": query_cursor}))


def asked_for(query: Mapping[str, Any]) -> str:
    """Return the filters of a list as they were given, to be said where it has nothing."""
    given = {name: value for name, value in query.items() if value is not None and name != "order"}
    flags = [f"--{FLAGS.get(name, name)} {printable(value)}" for name, value in given.items()]
    return f" (with {' '.join(flags)})" if flags else ""


@click.command()
@click.argument("id")
@client_command
def get(connection: Connection, /, id: str) -> None:
    """Show one job, live or dead."""
    record = record_of(connection, id)
    connection.show(record, print_record)


def record_of(connection: Connection, id: str) -> dict[str, Any]:
    """Return the record; exit 1 if no job has that id."""
    record: dict[str, Any] | None = connection.get("/get", id=id).get("record")
    if not record:
        raise Refused(f"there is no job {id!r} in {connection.instance}")
    return record


@click.command()
@click.argument("id")
@client_command
def cancel(connection: Connection, /, id: str) -> None:
    """Cancel a live job. Its id is free at once; an attempt under way is not stopped."""
    answer = connection.post("/cancel", {"id": id})
    missing = f"there is no live job {id!r} in {connection.instance} (a dead one: tocsin dead cancel)"
    running = "; an attempt is under way, its answer changes nothing" if answer.get("wasRunning") else ""
    connection.tell(answer, answer["cancelled"], missing, f"cancelled {id}{running}")
