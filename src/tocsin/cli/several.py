"""Commands about several at once: `submit`, of jobs, and `schedules register`, of an owner's set of schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

import click

from tocsin.cli.client import Accepted, Connection, client_command
from tocsin.cli.confirm import confirm
from tocsin.cli.failure import Refused
from tocsin.cli.job_options import text_of
from tocsin.cli.output import emit, plural, put
from tocsin.cli.words import printable, say

MOST: Final = 1_000
"""Jobs in one request."""
MOST_BYTES: Final = 4 * 1024 * 1024


@click.command()
@click.argument("jobs", metavar="FILE")
@client_command
def submit(connection: Connection, /, jobs: str) -> None:
    """Schedule the jobs of FILE, one JSON object a line.

    Each is what POST /schedule takes; - reads stdin. A thousand are one commit.
    Prints their ids. Exit code 1 if some were refused: the others stay.
    """
    refused = given = kept = 0
    for lines in _batches(text_of(jobs, "FILE")):
        body = b'{"jobs":[%b]}' % b",".join(line for _, line in lines)
        given += len(lines)
        try:
            answers = connection.post("/schedule/batch", _written(body))["results"]
        except Accepted as accepted:
            faults = {one.pop("index"): one for one in accepted.answer.get("refused", ())}
            ids = iter(accepted.ids)
            answers = [faults.get(place) or {"id": next(ids, ""), "accepted": True} for place in range(len(lines))]
        for (number, _), answer in zip(lines, answers, strict=True):
            error = answer.get("error")
            kept += "accepted" in answer
            refused += error is not None
            if connection.as_json:
                emit(answer)
            elif error is None:
                put(printable(answer["id"]))
            else:
                say(f"line {number}: {printable(error['message'])} [{error['code']}]")
    if not given:
        raise click.UsageError("FILE holds no jobs")
    if not connection.as_json:
        _say_done(given - refused - kept, kept)
    if refused:
        raise Refused(f"{plural(refused, 'job')} of {given:,} {'was' if refused == 1 else 'were'} refused")


def _say_done(scheduled: int, kept: int) -> None:
    if scheduled:
        say(f"scheduled {plural(scheduled, 'job')}")
    if kept:
        say(
            f"accepted {plural(kept, 'job')}: they are kept in the store, and scheduled as soon as the scheduler has "
            "an owner; do not send them again"
        )


def _batches(text: bytes) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines that hold something, with their numbers, so many at once as one request takes."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        _object(line, f"line {number}")
        if batch and (len(batch) == MOST or size + len(line) > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((number, line))
        size += len(line)
    if batch:
        yield batch


def _object(text: bytes, where: str) -> Any:
    import msgspec

    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise click.UsageError(f"{where} is not JSON: {error}") from None
    if not isinstance(value, (dict, list)):
        raise click.UsageError(f"{where} must be a JSON object")
    return value


def _written(text: bytes) -> Any:
    import msgspec

    return msgspec.Raw(text)


@click.command("register")
@click.argument("owner")
@click.argument("definitions", metavar="FILE")
@click.option("--prune", is_flag=True, help="Remove the owner's schedules that FILE does not name.")
@click.option("--yes", is_flag=True, help="With --prune: do not ask.")
@client_command
def schedules_register(connection: Connection, /, owner: str, definitions: str, prune: bool, yes: bool) -> None:
    """Define an owner's whole set of schedules, in one commit.

    FILE is a JSON list: each has a name, and what PUT /schedules/NAME takes; -
    reads stdin. They are stored as OWNER:NAME. What FILE does not name any more
    is reported, or removed with --prune.
    """
    value = _object(text_of(definitions, "FILE"), "FILE")
    if not isinstance(value, list):
        raise click.UsageError("FILE must be a JSON list of schedules")
    if prune:
        confirm(f"schedules of {printable(owner)} that FILE does not name will be removed:", yes=yes, dry_run=False)
    answer = connection.put(f"/owners/{quote(owner, safe=':')}/schedules", {"schedules": value, "prune": prune})
    connection.show(answer, lambda made: _registered(owner, made))


def _registered(owner: str, made: Any) -> None:
    for one in made["schedules"]:
        put(printable(one["name"]))
    say(f"registered {plural(len(made['schedules']), 'schedule')} of {printable(owner)}")
    _named("removed", made["removed"])
    _named("not named any more, and kept (--prune removes them)", made["orphaned"])


def _named(words: str, names: Sequence[str]) -> None:
    if names:
        say(f"{words}: {', '.join(map(printable, names))}")
