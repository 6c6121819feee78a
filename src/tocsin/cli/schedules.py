"""`tocsin schedules`: recurring definitions, looked at, put, held, run by hand and removed."""

from __future__ import annotations

from typing import Any, Final

import click

from tocsin.cli.backfills import schedules_backfill, schedules_backfills
from tocsin.cli.client import Connection, client_command
from tocsin.cli.job_options import job_options, json_of, members_of
from tocsin.cli.jobs import PAGE, pages
from tocsin.cli.listing import ListingGroup
from tocsin.cli.names import schedule_in_path
from tocsin.cli.output import emit, instant, now_ms, put, relative
from tocsin.cli.schedules_shown import print_occurrences, print_schedule, print_schedules
from tocsin.cli.several import schedules_register
from tocsin.cli.times import instant_of, optional_duration
from tocsin.cli.upcoming import print_upcoming
from tocsin.cli.words import printable, say

MISFIRES: Final = ("skip", "one", "all")
OVERLAPS: Final = ("skip", "queue", "allow")
REVISION: Final = click.option(
    "--revision", type=click.IntRange(0), metavar="N", help="Only if it is at this one (see show)."
)


@click.group(cls=ListingGroup)
def schedules() -> None:
    """Recurring jobs: list, show, define, pause, run. Alone it lists."""


def _route(name: str, action: str = "") -> str:
    return f"/schedules/{schedule_in_path(name)}{action}"


# ---- Looking -------------------------------------------------------------------------------------


@schedules.command("ls")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option("--all", "every", envvar="TOCSIN_SCHEDULES_LS_ALL", is_flag=True, help="All of them, page by page.")
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def schedules_ls(connection: Connection, /, **query: Any) -> None:
    """List schedules by name, and when each comes next."""
    empty = f"no schedules in {connection.instance}"
    pages(connection, "/schedules", print_schedules, empty, query, member="schedules")


@schedules.command("show")
@click.argument("name")
@client_command
def schedules_show(connection: Connection, /, name: str) -> None:
    """Show one schedule: its rule, where it stands, its revision."""
    connection.show(connection.get(_route(name)), print_schedule)


@schedules.command("occurrences")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, PAGE), default=100, show_default=True, help="At most so many.")
@click.option(
    "--all", "every", envvar="TOCSIN_SCHEDULES_OCCURRENCES_ALL", is_flag=True, help="All of them, page by page."
)
@click.option("--cursor", help="Go on where an earlier page ended.")
@client_command
def schedules_occurrences(connection: Connection, /, name: str, **query: Any) -> None:
    """Show what became of its slots, the newest first.

    The last thousand are kept, for 30 days also those of one that was removed.
    """
    empty = f"no slot of {printable(name)} has come yet"
    pages(connection, _route(name, "/occurrences"), print_occurrences, empty, query, member="occurrences")


# ---- Changing ------------------------------------------------------------------------------------


@schedules.command("put")
@click.argument("name")
@click.argument("path")
@click.option("--cron", metavar="EXPRESSION", help='Like "30 9 * * mon-fri" (try: tocsin next).')
@click.option("--every", metavar="DURATION", help="So often, from now: 5m, 2h; 1s at least.")
@click.option("--at", metavar="INSTANT", help="Once, at 2027-01-01T09:00:00Z.")
@click.option("--tz", metavar="ZONE", help="Whose clock --cron is read on (default: UTC).")
@click.option("--args", metavar="JSON", help="The jobs' args; @FILE reads a file, - reads stdin.")
@click.option("--misfire", type=click.Choice(MISFIRES), help="Slots missed by more than --grace (default: one).")
@click.option("--grace", metavar="DURATION", help="From when on a slot is late (default: 60s).")
@click.option("--catch-up-limit", metavar="N|none", help="With --misfire all: the newest N (default: 100).")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="While one still runs or retries (default: skip).")
@click.option("--jitter", metavar="DURATION", help="Start up to so much later, always the same.")
@click.option("--expires-after", metavar="DURATION", help="Do not start when so late.")
@job_options(jitter="--retry-jitter")
@click.option("--workflow", is_flag=True, help="PATH names a workflow, not a function.")
@click.option(
    "--paused/--running", "paused", envvar="TOCSIN_SCHEDULES_PUT_PAUSED", default=None, help="Hold it or not."
)
@REVISION
@client_command
def schedules_put(connection: Connection, /, name: str, path: str, **options: Any) -> None:
    """Define the schedule NAME anew: call PATH back by a rule.

    Give one of --cron, --every, --at. What is left out has its default, but
    for --paused, which stays. An edit fires nothing; a new one whose --at has
    passed is late at once, so --misfire decides. Prints what comes next.

    \b
    tocsin schedules put report reports:send --cron "0 9 * * mon-fri" \\
        --tz Europe/Berlin --args '{"to": "team"}'
    """
    answer = connection.put(_route(name), _definition(path, options))
    if connection.as_json:
        emit(answer)
        return
    if answer["preview"]:
        now = now_ms()
        notes = [(at, "passed: --misfire decides" if at < now else None) for at in answer["preview"]]
        print_upcoming(notes, _zone(options["tz"]))
    coming = "" if answer["preview"] else ": it will not run again"
    held = ", and paused" if answer["preview"] and answer["nextAt"] is None else ""
    say(f"{printable(answer['name'])} is at revision {answer['revision']}{held}{coming}")


def _zone(name: str | None) -> Any:
    """Return the zone for showing times; UTC if this machine does not know it, though the server does."""
    from tocsin.actors.cron.zones import Zone
    from tocsin.errors import UnknownTimezoneError

    try:
        return Zone(name or "UTC")
    except UnknownTimezoneError:
        return Zone("UTC")


def _definition(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Build the body of the request; options not given are left out, so the server's defaults apply."""
    rules = [flag for flag in ("cron", "every", "at") if options[flag] is not None]
    if len(rules) != 1:
        raise click.UsageError("give one of --cron, --every and --at")
    if options["tz"] is not None and options["cron"] is None:
        raise click.UsageError("--tz goes with --cron")
    given = {
        "cron": options["cron"],
        "everyMs": optional_duration(options["every"], "--every"),
        "at": None if options["at"] is None else instant_of(options["at"], "--at"),
        "timezone": options["tz"],
        "misfire": options["misfire"],
        "graceMs": optional_duration(options["grace"], "--grace"),
        "overlap": options["overlap"],
        "jitterMs": optional_duration(options["jitter"], "--jitter"),
        "expiresAfterMs": optional_duration(options["expires_after"], "--expires-after"),
        **members_of(options, "retry_jitter"),
        "paused": options["paused"],
        "revision": options["revision"],
    }
    body: dict[str, Any] = {"workflow" if options["workflow"] else "functionPath": path}
    body.update({name: value for name, value in given.items() if value is not None})
    if options["catch_up_limit"] is not None:
        body["catchUpLimit"] = _limit(options["catch_up_limit"])
    if options["args"] is not None:
        body["args"] = json_of(options["args"])
    return body


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise click.UsageError(f"--catch-up-limit must be a whole number, or none, not {text!r}")
    return int(text)


schedules.add_command(schedules_register)


@schedules.command("pause")
@click.argument("name")
@REVISION
@client_command
def schedules_pause(connection: Connection, /, name: str, revision: int | None) -> None:
    """Let its slots pass as skipped until it is resumed."""
    _hold(connection, name, "pause", revision)


@schedules.command("resume")
@click.argument("name")
@REVISION
@client_command
def schedules_resume(connection: Connection, /, name: str, revision: int | None) -> None:
    """Go on from the next slot."""
    _hold(connection, name, "resume", revision)


def _hold(connection: Connection, name: str, action: str, revision: int | None) -> None:
    schedule = connection.post(_route(name, f"/{action}"), {} if revision is None else {"revision": revision})
    if connection.as_json:
        emit(schedule)
        return
    at = schedule.get("nextAt")
    coming = "" if at is None else f", next {relative(at, now_ms())}, at {instant(at)}"
    say(f"{printable(name)} is {schedule['state']}, at revision {schedule['revision']}{coming}")


@schedules.command("trigger")
@click.argument("name")
@click.option("--key", metavar="TEXT", help="The same key again runs nothing and shows that run.")
@client_command
def schedules_trigger(connection: Connection, /, name: str, key: str | None) -> None:
    """Run it once now, also when it is paused. Prints the job's id."""
    run = connection.post(_route(name, "/trigger"), {} if key is None else {"requestKey": key})
    if connection.as_json:
        emit(run)
        return
    put(printable(run["id"]))
    at = f"{relative(run['slot'], now_ms())}, at {instant(run['slot'])}"
    say("due now" if run["created"] else f"this key has run it already, {at}; nothing was done now")


@schedules.command("rm")
@click.argument("name")
@click.option("--cancel-pending", is_flag=True, help="Cancel its jobs that wait, run or retry, too.")
@REVISION
@client_command
def schedules_rm(connection: Connection, /, name: str, cancel_pending: bool, revision: int | None) -> None:
    """Remove a schedule. Its jobs go on, its history is kept for 30 days."""
    query = {"cancelPending": "true"} if cancel_pending else {}
    answer = connection.delete(_route(name), **query, **({} if revision is None else {"revision": revision}))
    missing = f"there is no schedule {name!r} in {connection.instance}"
    connection.tell(answer, answer["deleted"], missing, f"removed {printable(name)}")


schedules.add_command(schedules_backfill)
schedules.add_command(schedules_backfills)
