"""`tocsin why` and `tocsin history`: why a job does not run now, and how its attempts ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import Refused
from tocsin.cli.output import Column, emit, instant, now_ms, print_rows, put, relative, span, wrapped
from tocsin.cli.words import printable, say

HOLDERS_SHOWN: Final = 10
ATTEMPTS: Final = (
    Column("ATTEMPT", 7, right=True),
    Column("OUTCOME", 11),
    Column("STARTED", 11),
    Column("TOOK", 7, right=True),
    Column("LATE", 7, right=True),
    Column("HOW", whole=True),
)
PASSES: Final = {"POOL_RATE": "its turn comes", "POOL_COOLING": "the pool has cooled"}
ENDS: Final = {"DEAD": "parked", "RUNNING": "its lease ends", "POOL_FULL": "the first lease ends", **PASSES}
"""The words before the instant of a reason; `until` for others."""


@click.command()
@click.argument("id")
@client_command
def why(connection: Connection, /, id: str) -> None:
    """Say every reason why a job does not run now.

    Exit code 1 if there is no such job (see its history).
    """
    reasons = connection.get("/why", id=id)["reasons"]
    if any(reason["code"] == "NOT_FOUND" for reason in reasons):
        raise Refused(f"{reasons[0]['message']}: tocsin history {id}")
    connection.show_all(reasons, _print_reasons, "nothing holds it back: it may start now")


def _print_reasons(reasons: Sequence[Mapping[str, Any]]) -> None:
    for reason in reasons:
        _print_reason(reason)


def _print_reason(reason: Mapping[str, Any]) -> None:
    said = re.sub(r"\b(\d{4,}) ms\b", lambda found: span(int(found[1]) + 999), printable(reason["message"]))
    wrapped(f"{printable(reason['code'])}: {said}", indent=0, rest=2)
    if (at := reason.get("at")) is not None:
        wrapped(f"{ENDS.get(reason['code'], 'until')} {instant(at)} ({relative(at, now_ms())})", indent=2, rest=2)
    holders = [printable(holder) for holder in reason.get("holders") or ()]
    if holders:
        more = f" and {len(holders) - HOLDERS_SHOWN} more" if len(holders) > HOLDERS_SHOWN else ""
        put("  held by")
        for holder in holders[:HOLDERS_SHOWN]:
            put(f"    {holder}")
        if more:
            where = f": tocsin pools show {printable(reason['pool'])}" if reason.get("pool") else ""
            wrapped(f"{more.strip()}{where}", indent=4, rest=4)


@click.command()
@click.argument("id")
@client_command
def history(connection: Connection, /, id: str) -> None:
    """Show how each attempt of a job ended, the oldest first.

    Kept for a week, also of jobs that have ended, and of every use of the id.
    Exit code 1 if there is nothing of that id, neither attempts nor a job.
    """
    attempts = connection.get("/history", id=id)["attempts"]
    if connection.as_json:
        for attempt in attempts:
            emit(attempt)
    if not attempts:
        _say_why_none(connection, id)
        return
    if not connection.as_json:
        now = now_ms()
        print_rows(ATTEMPTS, [_attempt(attempt, now) for attempt in attempts])


def _say_why_none(connection: Connection, id: str) -> None:
    """Explain an empty history; not a failure if the job exists."""
    record = connection.get("/get", id=id).get("record")
    if not record:
        raise Refused(f"there is no job {id!r} in {connection.instance}, and none has ended within the last week")
    if connection.as_json:
        return
    state, dispatched = record["state"], record.get("attempt") or 0
    if state == "running" and dispatched <= 1:
        say(f"the first attempt of {printable(id)} is still running: none has ended yet")
    elif not dispatched:
        say(f"no attempt of {printable(id)} has started yet: it is {state}")
    else:
        say(f"no attempt of {printable(id)} has ended within the last week: it is {state}")


def _attempt(attempt: Mapping[str, Any], now: int) -> tuple[str, ...]:
    how = attempt.get("error") or (f"HTTP {attempt['status']}" if attempt.get("status") else "")
    how = f"{attempt['code']}: {how}" if attempt.get("code") else how
    result = f" data {_json(attempt['data'])}" if attempt.get("data") is not None else ""
    result += f" result {_json(attempt['result'])}" if attempt.get("result") is not None else ""
    if attempt.get("resultDamaged"):
        result = " result damaged in the store"
    return (
        str(attempt["attempt"]),
        printable(attempt["outcome"]),
        relative(attempt["started"], now),
        span(max(attempt["ended"] - attempt["started"], 0)),
        span(attempt.get("latenessMs") or 0),
        printable(f"{how}{result}".strip()),
    )


def _json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
