"""`tocsin migrate`: bring a store in PostgreSQL to the layout of this version, or print the statements for that."""

from __future__ import annotations

import click

from tocsin.cli.failure import WrongSettings
from tocsin.cli.output import emit, put
from tocsin.cli.stores import store_command
from tocsin.cli.words import say


@click.command()
@click.option("--sql", is_flag=True, help="Print the statements, and change nothing.")
@store_command
def migrate(store: str, /, sql: bool, as_json: bool) -> None:
    """Bring a store in PostgreSQL to the layout of this version.

    A new store makes itself at the first start. After an upgrade that says
    so: stop its hosts, run this, start them. --sql is for whoever may not
    change tables: give its output to someone who may.
    """
    import asyncio

    from tocsin.storage.shared import shared_of
    from tocsin.storage.urls import open_provider

    if shared_of(open_provider(store)) is None:
        raise WrongSettings("this store brings itself to the layout of each version: only postgresql://… is migrated")
    from tocsin.storage.postgres.migrate import migrate as bring_up
    from tocsin.storage.postgres.migrate import migration

    if sql:
        statements = asyncio.run(migration(store))
        if as_json:
            emit({"sql": statements})
        elif statements:
            put(statements.rstrip())
        else:
            say("tocsin: nothing to do: the store has the layout of this version")
        return
    done = asyncio.run(bring_up(store))
    if as_json:
        emit({"before": done.before, "after": done.after})
    elif done.before == done.after:
        say(f"tocsin: {done.place} has layout {done.after} already")
    else:
        say(f"tocsin: {done.place}: layout {done.before or 'none'} -> {done.after}")
