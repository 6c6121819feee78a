"""`tocsin backup`: a consistent copy of a store, while a server writes to it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tocsin.cli.failure import WrongSettings
from tocsin.cli.output import emit, size
from tocsin.cli.stores import store_command
from tocsin.cli.words import printable, say


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@store_command
def backup(store: str, /, file: Path, as_json: bool) -> None:
    """Copy the store to FILE, also while a server writes to it.

    The copy is one instant of the store. It is checked page by page and synced
    before it gets its name, and it overwrites nothing. To use it, stop the
    server and give it as --store, or put it in the place of the old file.
    """
    from tocsin.storage.urls import back_up

    if os.path.lexists(file):
        raise WrongSettings(
            f"{printable(file)} is there already, and a backup overwrites nothing: give another name, or move it away"
        )
    written = back_up(store, file)
    if as_json:
        emit({"file": str(file), "bytes": written})
    else:
        say(f"copied to {printable(file)}: {size(written)}, checked")
