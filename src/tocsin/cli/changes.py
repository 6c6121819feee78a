"""Commands that change jobs: `reschedule`, `cancel-all`, `complete`, `extend`."""

from __future__ import annotations

from typing import Any

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.confirm import confirm
from tocsin.cli.failure import Refused
from tocsin.cli.job_options import json_of
from tocsin.cli.output import emit, instant, now_ms, plural, relative, when
from tocsin.cli.times import due, duration, optional_duration
from tocsin.cli.undoing import say_undo
from tocsin.cli.words import printable, say


@click.command()
@click.argument("id")
@click.option("--in", "delay", envvar="TOCSIN_RESCHEDULE_IN", metavar="DURATION", help="After 90s, 5m, 2h, 1d.")
@click.option("--at", metavar="INSTANT", help="At 2027-01-01T09:00:00Z (zone needed), or epoch ms.")
@client_command
def reschedule(connection: Connection, /, id: str, delay: str | None, at: str | None) -> None:
    """Move a job that has not started, to an instant: --in 0s is now."""
    if delay is None and at is None:
        raise click.UsageError("give --in or --at (--in 0s makes it due now)")
    answer = connection.post("/reschedule", {"id": id, **due(delay, at)})
    if connection.as_json:
        emit(answer)
    if answer.get("wasRunning"):
        raise Refused(f"job {id!r} is running, so it was not moved")
    if not answer["rescheduled"]:
        raise Refused(f"there is no live job {id!r} in {connection.instance} (a dead one: tocsin dead retry)")
    if not connection.as_json:
        moved = answer["scheduledFor"]
        say(f"{printable(id)} is due {relative(moved, now_ms())}, at {instant(moved)}")


@click.command("cancel-all")
@click.option("--pool", help="Only this pool's.")
@click.option("--label", help="Only those with this label.")
@click.option("--path", help="Only those that call this path.")
@click.option("--all", "every", envvar="TOCSIN_CANCEL_ALL_ALL", is_flag=True, help="Every live job.")
@click.option("--dry-run", is_flag=True, help="Only count what it would cancel.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_command
def cancel_all(
    connection: Connection, /, every: bool, dry_run: bool, yes: bool, path: str | None, **filters: str | None
) -> None:
    """Cancel every live job that a filter matches.

    Counts them first and asks, unless --yes is said. Exit code 1 if there are
    none.
    """
    body = chosen({**filters, "functionPath": path}, every)
    if not yes:
        matched = connection.count("/cancel-all", body)
        if dry_run or not matched["matched"]:
            _cancelled(connection, matched, dry_run=True)
            return
        confirm(
            f"{plural(matched['matched'], 'job')} of {connection.instance} will be cancelled:", yes=False, dry_run=True
        )
    if dry_run:
        _cancelled(connection, connection.count("/cancel-all", body), dry_run=True)
    else:
        _cancelled(connection, connection.post("/cancel-all", {**body, "dryRun": False}), dry_run=False)


def chosen(filters: dict[str, Any], every: bool) -> dict[str, Any]:
    """Return the filter, or all; refuse when neither is given, since a wrong guess would be costly."""
    body = {name: value for name, value in filters.items() if value is not None}
    if bool(body) == every:
        flags = ", ".join(f"--{'path' if name == 'functionPath' else name}" for name in filters)
        raise click.UsageError(f"say which: {flags}, or --all" if not body else f"give {flags} or --all, not both")
    return {"all": True} if every else body


def _cancelled(connection: Connection, answer: Any, *, dry_run: bool) -> None:
    matched = plural(answer["matched"], "job")
    words = f"would cancel {matched}" if dry_run else f"cancelled {answer['cancelled']:,} of {matched}"
    connection.tell(answer, answer["matched"], f"no live job of {connection.instance} matches", words)
    if not connection.as_json:
        say_undo(answer, answer.get("actionId"))


@click.command()
@click.argument("id")
@click.argument("lease")
@click.option("--failed", metavar="WORDS", help="It failed, and why; without it, it succeeded.")
@click.option("--never", is_flag=True, help="With --failed: do not try again, it is dead.")
@click.option("--no-charge", is_flag=True, help="With --failed: no failure of the job, for a day.")
@click.option("--in", "delay", envvar="TOCSIN_COMPLETE_IN", metavar="DURATION", help="With --failed: try again after.")
@click.option("--result", metavar="JSON", help="Kept in its history; @FILE reads a file, - reads stdin.")
@client_command
def complete(
    connection: Connection, /, id: str, lease: str, failed: str | None, never: bool, no_charge: bool,
    delay: str | None, result: str | None,
) -> None:  # fmt: skip
    """Say how claimed or accepted work has ended.

    Its LEASE came with the claimed job, or as header tocsin-lease.
    """
    if failed is None and (never or no_charge or delay is not None):
        raise click.UsageError("--never, --no-charge and --in go with --failed")
    if failed is not None and result is not None:
        raise click.UsageError("give --failed or --result, not both")
    body: dict[str, Any] = {"id": id, "lease": lease, "ok": failed is None}
    given = {
        "error": failed,
        "retryable": False if never else None,
        "charge": False if no_charge else None,
        "delayMs": optional_duration(delay, "--in"),
        "result": None if result is None else json_of(result, "--result"),
    }
    answer = connection.post("/complete", body | {name: value for name, value in given.items() if value is not None})
    connection.show(answer, lambda _: say(f"settled {printable(id)}"))


@click.command()
@click.argument("id")
@click.argument("lease")
@click.argument("span", metavar="DURATION")
@client_command
def extend(connection: Connection, /, id: str, lease: str, span: str) -> None:
    """Hold the lease of accepted work longer.

    For DURATION from now, 1h at most. Its LEASE came as header tocsin-lease.
    """
    answer = connection.post("/extend", {"id": id, "lease": lease, "leaseMs": duration(span, "DURATION")})
    connection.show(answer, lambda held: say(f"{printable(id)} is held until {when(held['leaseUntil'], now_ms())}"))
