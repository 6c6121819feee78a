"""`tocsin export` and `tocsin import`: an instance as a file, out of a server or a store and into another one."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from tocsin.cli.client import Connection, client_command
from tocsin.cli.failure import WrongSettings
from tocsin.cli.output import emit, plural
from tocsin.cli.places import failing, open_place
from tocsin.cli.streams import writing
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    from tocsin.actors.scheduler.model.moving import Exported, Imported

STORE: Final = click.option("--store", metavar="URL", help="Open this store instead of asking a server.")


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@STORE
@client_command
def export(connection: Connection, /, file: str, store: str | None) -> None:
    """Write everything of an instance to FILE, as of one instant.

    Lines of JSON: a manifest, the rows, a checksum. The server goes on
    meanwhile; of a --store, too, which is only read. Needs the scope admin.

    \b
    tocsin export --instance tenant-a > tenant-a.jsonl
    """
    import asyncio

    with writing() if file == "-" else nullcontext(), failing():
        done = asyncio.run(_export(connection, sys.stdout.buffer if file == "-" else file, store))
    if connection.as_json and file != "-":
        emit(done.to_dict())
    else:
        say(f"exported {printable(done.instance)}: {_sizes(done)}")


async def _export(connection: Connection, file: str | BinaryIO, store: str | None) -> Exported:
    from tocsin.actors.scheduler.transfer.files import write_file

    if store is not None:
        return await _export_store(connection.instance, file, store)
    async with open_place(connection.url, connection.token, connection.ca_file) as place:
        return await write_file(place.pieces(connection.instance), file)


async def _export_store(name: str, file: str | BinaryIO, store: str) -> Exported:
    """Read a store from outside: it may be in use, and stays as it is."""
    from tempfile import TemporaryFile

    from tocsin.actors.scheduler.integrity.check import held
    from tocsin.actors.scheduler.transfer.exporting import copy, manifest_of, pieces
    from tocsin.actors.scheduler.transfer.files import write_file
    from tocsin.cli.output import now_ms
    from tocsin.storage.urls import open_look

    look = open_look(store)
    with TemporaryFile() as scratch:
        copied = await held(look, lambda snapshot: copy(snapshot, name, scratch))
        return await write_file(pieces(manifest_of(copied, name, now_ms()), scratch), file)


@click.command("instance")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@STORE
@click.option("--same-jobs/--new-jobs", default=None, help="What was exported never runs again, or it is a copy.")
@click.option("--paused", is_flag=True, default=None, help="Start nothing until `tocsin instances resume`.")
@client_command
def import_instance(
    connection: Connection, /, file: str, store: str | None, same_jobs: bool | None, paused: bool | None
) -> None:
    """Make a new instance of FILE, which `tocsin export` wrote.

    `tocsin import FILE` is the same. Nothing of the instance runs before all
    of the file was read, its checksum was right and its rows were checked.
    The jobs of a copy are new ones to their receivers; with --same-jobs they
    are those that were exported. Needs the scope admin.

    \b
    tocsin import tenant-a.jsonl --instance tenant-b --paused
    """
    import asyncio

    with failing():
        done = asyncio.run(_import(connection, file, store, same_jobs=same_jobs, paused=paused))
    connection.show(done.to_dict(), lambda _: _say_imported(done))


async def _import(connection: Connection, file: str, store: str | None, **options: Any) -> Imported:
    from tocsin.actors.scheduler.transfer.files import read_file

    if store is not None and store.startswith("memory"):
        raise WrongSettings("--store must be a store that stays: an import into memory is gone at once")
    pieces: AsyncIterator[bytes] = read_file(sys.stdin.buffer if file == "-" else file)
    where = connection.url if store is None else store
    async with open_place(where, connection.token, connection.ca_file) as place:
        return await place.load(connection.instance, pieces, **options)


def _say_imported(done: Imported) -> None:
    say(f"imported {printable(done.instance)}: {_sizes(done)}; checked: sound")


def _sizes(done: Exported | Imported) -> str:
    return f"{plural(done.jobs or 0, 'job')}, {plural(done.rows, 'row')}, sha256 {done.sha256}"
