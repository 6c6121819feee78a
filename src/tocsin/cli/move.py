"""`tocsin move`: a whole store, or an instance from one place to another, so that at no instant both run it."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from tocsin.cli.failure import Refused, WrongSettings
from tocsin.cli.move_store import move_store
from tocsin.cli.output import emit, plural
from tocsin.cli.places import Place, is_server, open_place
from tocsin.cli.times import duration
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    from tocsin.actors.scheduler.model.moving import TransferState

LOOKS_EVERY_S: Final = 0.5
PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Move:
    """A move that was asked for."""

    source: str
    target: str
    name: str
    new_name: str
    drain_s: float
    remove: bool
    quiet: bool

    def say(self, words: str) -> None:
        if not self.quiet:
            say(words)


@click.command()
@click.argument("source")
@click.argument("target")
@click.option(
    "--instance", envvar="TOCSIN_INSTANCE", help="Only this scheduler (default: all, or `default` of a server)."
)
@click.option("--as", "new_name", envvar="TOCSIN_MOVE_AS", metavar="NAME", help="Its name there (default: the same).")
@click.option("--drain", default="60s", show_default=True, help="How long jobs that run may take to end.")
@click.option("--remove", is_flag=True, help="Remove it from SOURCE once it runs at TARGET.")
@click.option("--abort", is_flag=True, help="Give up a move that was not finished: SOURCE goes on.")
@click.option("--dry-run", is_flag=True, help="Of a whole store: count, and check that it can be moved.")
@click.option("--token", envvar="TOCSIN_TOKEN", help="Bearer token of SOURCE; better given as TOCSIN_TOKEN.")
@click.option("--target-token", help="Bearer token of TARGET (default: of SOURCE, on one server).")
@click.option("--ca-file", envvar="TOCSIN_CA_FILE", metavar="FILE", help="PEM of authorities to trust as well.")
@click.option("--json", "as_json", envvar="TOCSIN_JSON", is_flag=True, help="JSON on stdout, one value a line.")
def move(
    source: str, target: str, instance: str | None, new_name: str | None, drain: str, remove: bool, abort: bool,
    dry_run: bool, token: str | None, target_token: str | None, ca_file: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Move a store to another engine, or an instance.

    SOURCE and TARGET are servers, https://…, or stores, sqlite:///… or
    postgresql://…, which no host has open. Between two stores everything is
    moved, row by row, compared, and SOURCE is sealed.

    With --instance, or where one of them is a server, it is one instance: it
    takes no new work, jobs that run may end, then it is sealed, exported,
    imported and checked; only then it runs again, at TARGET. Needs the scope
    admin on both. Stopped at any point, the same command goes on.

    \b
    tocsin move sqlite:///tocsin.db postgresql://db.example/tocsin
    tocsin move http://old:8321 http://new:8321 --instance tenant-a --remove
    """
    import asyncio

    if instance is None and not is_server(source) and not is_server(target):
        if unfit := [flag for flag, given in (("--as", new_name), ("--remove", remove)) if given]:
            raise WrongSettings(f"{unfit[0]} is for one instance: name it with --instance, or leave {unfit[0]} out")
        return move_store(source, target, abort=abort, dry_run=dry_run, as_json=as_json)
    if dry_run:
        raise WrongSettings("--dry-run is for a whole store: leave out --instance, and give two stores")
    instance = instance or "default"
    asked = Move(
        source, target, instance, new_name or instance, duration(drain, "--drain") / 1000, remove, quiet=as_json
    )
    if (source, asked.name) == (target, asked.new_name):
        raise WrongSettings("SOURCE and TARGET are the same: give another place, or another name with --as")
    if token and not target_token and is_server(target) and not _same_server(source, target):
        asked.say("the token of SOURCE is not sent to TARGET: give --target-token if it asks for one")
    elif not target_token:
        target_token = token

    done = asyncio.run(_move(asked, abort, token or None, target_token or None, ca_file))
    if as_json:
        emit(done)


def _same_server(source: str, target: str) -> bool:
    """Return whether two URLs name one server: then what may be known to one is known to the other."""
    one, other = urlsplit(source), urlsplit(target)
    try:
        ports = [each.port or PORTS.get(each.scheme) for each in (one, other)]
    except ValueError:  # no port can be so; the place itself is refused later
        return False
    return is_server(source) and (one.scheme, one.hostname, ports[0]) == (other.scheme, other.hostname, ports[1])


async def _move(
    asked: Move, abort: bool, token: str | None, target_token: str | None, ca_file: str | None
) -> dict[str, object]:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(open_place(asked.source, token, ca_file))
        same = asked.source == asked.target and (is_server(asked.target) is False or token == target_token)
        there = here if same else await stack.enter_async_context(open_place(asked.target, target_token, ca_file))
        return await (_abort(asked, here, there) if abort else _carry(asked, here, there))
    raise AssertionError("a place passes over no failure")


async def _carry(asked: Move, here: Place, there: Place) -> dict[str, object]:
    """Begin the move, or go on where it was stopped."""
    left, came = await here.state(asked.name), await there.state(asked.new_name)
    if not left.exists:
        return _gone_already(asked, came)
    move = left.move or secrets.token_hex(8)
    if not _has_arrived(came, move):
        if came.exists and not came.importing:
            raise Refused(f"{there.shown} has an instance {printable(asked.new_name)} already: give another name: --as")
        await _empty(asked, here, there, left, move)
        if came.importing:
            await there.remove(asked.new_name)  # what was left of an import that did not end
        asked.say("exporting and importing")
        await there.load(asked.new_name, here.pieces(asked.name), same_jobs=True, paused=None)
        came = await there.state(asked.new_name)
        if not _has_arrived(came, move):
            raise Refused("what was imported is not what was exported for this move: look at both places")
    if asked.remove:
        await here.remove(asked.name)
    return _moved(asked, came, removed=asked.remove)


async def _empty(asked: Move, here: Place, there: Place, left: TransferState, move: str) -> None:
    """Let jobs that run end, then seal the instance."""
    import asyncio

    to = f"{there.shown} as {asked.new_name}" if asked.name != asked.new_name else there.shown
    if not left.sealed:
        left = await here.seal(asked.name, move, to, closed=False)
        asked.say(f"{printable(asked.name)} takes no new work: it moves to {to}")
    loop = asyncio.get_running_loop()
    end = loop.time() + (asked.drain_s if here.runs else 0.0)
    while left.in_flight and not left.sealed and loop.time() < end:
        await asyncio.sleep(LOOKS_EVERY_S)
        left = await here.state(asked.name)
    if left.in_flight:
        asked.say(
            f"{plural(left.in_flight, 'job')} still run: their leases come along, and none starts again before its ends"
        )
    await here.seal(asked.name, move, to, closed=True)


async def _abort(asked: Move, here: Place, there: Place) -> dict[str, object]:
    """Let the instance go on where it was, if it does not run there yet."""
    left, came = await here.state(asked.name), await there.state(asked.new_name)
    if left.move is None:
        raise Refused(f"instance {printable(asked.name)} of {here.shown} is not moving")
    if _has_arrived(came, left.move):
        raise Refused(f"it runs at {there.shown} already: run the command without --abort, or move it back from there")
    if came.importing:
        await there.remove(asked.new_name)
    await here.unseal(asked.name, left.move)
    asked.say(f"{printable(asked.name)} stays at {here.shown} and goes on")
    return {"instance": asked.name, "moved": False}


def _has_arrived(came: TransferState, move: str) -> bool:
    return not came.importing and came.imported is not None and came.imported.move == move


def _gone_already(asked: Move, came: TransferState) -> dict[str, object]:
    """Return the answer where the source has no such instance any more: this command has done its work before."""
    found = came.imported
    if came.importing or found is None or found.move is None or found.source != asked.name:
        raise Refused(f"there is no instance {printable(asked.name)} at {printable(asked.source)}")
    return _moved(asked, came, removed=True)


def _moved(asked: Move, came: TransferState, *, removed: bool) -> dict[str, object]:
    assert came.imported is not None
    rows, sha256 = came.imported.rows, came.imported.sha256
    asked.say(f"moved {printable(asked.name)}: {plural(rows, 'row')}, sha256 {sha256}; checked: sound")
    stays = "removed from" if removed else "sealed at"
    asked.say(f"it is {stays} {printable(asked.source)}" + ("" if removed else ": --remove removes it"))
    return {
        "instance": asked.name,
        "as": asked.new_name,
        "moved": True,
        "rows": rows,
        "sha256": sha256,
        "removed": removed,
    }
