"""`tocsin changes`: what changes at a server, as it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import monotonic, sleep
from typing import Any, Final

import click

from tocsin.cli.client import TIMEOUT_S, Connection, client_command
from tocsin.cli.failure import Failure, NotNow, Unreachable
from tocsin.cli.output import emit, now_ms, put, relative
from tocsin.cli.records import target
from tocsin.cli.times import duration
from tocsin.cli.words import printable, say

WAIT_S: Final = 25
"""For how long one question waits at the server."""
AGAIN_S: Final = 1.0
"""How long it waits before it asks a server again that it has lost."""


@click.command()
@click.option("--since", metavar="SEQ", help="Go on behind this frame (its seq, from --json).")
@click.option("--frames", type=click.IntRange(1), help="End after so many frames (default: at Ctrl-C).")
@click.option("--patience", metavar="DURATION", default="5m", show_default=True, help="Wait so long for a lost server.")
@client_command
def changes(connection: Connection, /, since: str | None, frames: int | None, patience: str) -> None:
    """Print jobs as they change, after a snapshot of the first ones. With --json: frames, one a line.

    Ends when the instance is removed. A server that it loses is asked again
    until it is back; what it missed meanwhile is said as `resync`. Whenever it
    ends, it says with which --since it would go on.
    """
    shown = since
    feed = _frames(connection.patient(TIMEOUT_S + WAIT_S), since, duration(patience, "--patience") / 1000)
    try:
        for count, frame in enumerate(feed, 1):
            if connection.as_json:
                emit(frame)
            else:
                _print(frame)
            shown = frame["seq"]
            if count == frames:
                break
        else:
            shown = None
            say(f"{connection.instance} was removed")
    finally:
        if shown is not None and not connection.as_json:
            say(f"to go on from here: --since {printable(shown)}")


def _frames(connection: Connection, since: str | None, patience_s: float) -> Iterator[Mapping[str, Any]]:
    """Give frames until the instance is removed. A server that has answered before may be away for so long."""
    lost_at: float | None = None
    was_there = False
    while True:
        try:
            page = connection.get("/changes", since=since, waitMs=WAIT_S * 1000 if lost_at is None else 0)
        except (Unreachable, NotNow) as failure:
            first = lost_at is None
            lost_at = monotonic() if lost_at is None else lost_at
            if not was_there or monotonic() - lost_at >= patience_s:
                raise
            if first:
                say(f"the server was lost, and is asked again until it is back: {_why(failure)}")
            sleep(AGAIN_S)
            continue
        if lost_at is not None:
            say(f"the server is back after {monotonic() - lost_at:.0f} s")
            lost_at = None
        was_there = True
        yield from page["frames"]
        if page.get("ended"):
            return
        since = page["seq"]


def _why(failure: Failure) -> str:
    """Return what is wrong, without the advice for a server that was never there."""
    return failure.format_message().partition(". Start one")[0].partition("\n")[0]


def _print(frame: Mapping[str, Any]) -> None:
    kind, now = frame["type"], now_ms()
    if kind == "resync":
        say("what was shown before may have changed unnoticed: a snapshot follows")
        return
    if kind == "snapshot":
        status = frame["status"]
        more = ", the first of them:" if frame.get("truncated") else ":" if frame.get("jobs") else ""
        say(f"{status['backlog']} waiting, {status['inFlight']} running, {status['dead']} dead{more}")
    for job in frame.get("jobs", ()):
        put(f"{job['state']:9} {printable(job['id'])}  {target(job)}  {_more(job, now)}".rstrip())
    for gone in frame.get("gone", ()):
        put(f"{gone['how']:9} {printable(gone['id'])}")


def _more(job: Mapping[str, Any], now: int) -> str:
    error = (job.get("lastError") or {}).get("message")
    said = f": {printable(error)}" if error else ""
    if job["state"] == "dead":
        return f"{printable(job.get('reason') or '')}{said}"
    if job["state"] == "running":
        return f"attempt {job['attempt']}"
    return f"{relative(job.get('nextAttemptAt', job['scheduledFor']), now)}{said}"
