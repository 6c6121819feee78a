"""`tocsin changes`: what changes at a server, as it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from tocsin.cli.client import TIMEOUT_S, Connection, client_command
from tocsin.cli.output import emit, now_ms, put, relative
from tocsin.cli.records import target
from tocsin.cli.words import printable, say

WAIT_S: Final = 25
"""For how long one question waits at the server."""


@click.command()
@click.option("--since", metavar="SEQ", help="Go on behind this frame (its seq, from --json).")
@click.option("--frames", type=click.IntRange(1), help="End after so many frames (default: at Ctrl-C).")
@client_command
def changes(connection: Connection, /, since: str | None, frames: int | None) -> None:
    """Print jobs as they change, after a snapshot of the first ones. With --json: frames, one a line.

    Ends when the instance is removed. What it missed meanwhile is said as `resync`.
    """
    left = frames
    for frame in _frames(connection.patient(TIMEOUT_S + WAIT_S), since):
        if connection.as_json:
            emit(frame)
        else:
            _print(frame)
        if left is not None:
            left -= 1
            if left == 0:
                return
    say(f"{connection.instance} was removed")


def _frames(connection: Connection, since: str | None) -> Iterator[Mapping[str, Any]]:
    while True:
        page = connection.get("/changes", since=since, waitMs=WAIT_S * 1000)
        yield from page["frames"]
        if page.get("ended"):
            return
        since = page["seq"]


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
