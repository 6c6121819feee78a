"""The layout of a store: what it is, and how it comes to be the one of this version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tocsin.errors import StoreError, StoreSchema
from tocsin.storage.ownership.engine import SLOTS
from tocsin.storage.postgres.address import Address, read_url
from tocsin.storage.postgres.connections import check_server, connect
from tocsin.storage.postgres.errors import FAILURES, MAY_NOT, MISSING, code_of, translate
from tocsin.storage.postgres.layout import LAYOUT, migration_sql, schema_sql, step_sql

if TYPE_CHECKING:
    from tocsin.storage.postgres.connections import Connection

_ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(hashtext('tocsin migrate'), hashtext($1))"
_RIGHTS: Final = {
    "meta": ("SELECT",),
    "host": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "slot": ("SELECT", "UPDATE"),
    "actor": ("SELECT", "INSERT", "UPDATE"),
    "kv": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "mail": ("SELECT", "INSERT", "DELETE"),
    "answer": ("SELECT", "INSERT", "DELETE"),
}
"""The rights that the statements of a host need on each table."""
_MISSING_RIGHTS: Final = (
    "SELECT may, name FROM unnest($1::text[], $2::text[]) r(may, name) WHERE NOT has_table_privilege($3 || name, may)"
)


@dataclass(frozen=True, slots=True)
class Migrated:
    """The layouts before (0: there was none) and after."""

    place: str
    before: int
    after: int


async def migrate(url: str) -> Migrated:
    """Bring a store to the layout of this version, in one transaction; make it if there is none. StoreError."""
    address = read_url(url)
    connection = await connect(address, plain=True)
    try:
        await check_server(connection, address.place)
        return await brought_up(connection, address)
    except FAILURES as error:
        if code_of(error) == MAY_NOT:
            raise StoreSchema(
                f"this role may not make or change the tables of {address.place}: have somebody who may run the "
                "statements that tocsin migrate --sql prints, or GRANT CREATE ON DATABASE … TO this role"
            ) from error
        raise translate(error, address.place) from error
    finally:
        connection.terminate()


async def migration(url: str) -> str:
    """Return the statements that `migrate` would run, for people. Changes nothing. StoreError."""
    address = read_url(url)
    connection = await connect(address, plain=True)
    try:
        before = await layout_of(connection, address)
    except FAILURES as error:
        raise translate(error, address.place) from error
    finally:
        connection.terminate()
    return migration_sql(address.schema, before) if before < LAYOUT else ""


async def ensure_layout(connection: Connection, address: Address) -> None:
    """Check that the store has the layout of this version, and make it where there is no store yet. StoreSchema."""
    before = await layout_of(connection, address)
    if before == 0:
        try:
            await brought_up(connection, address)
        except FAILURES as error:
            if code_of(error) == MAY_NOT:
                raise _may_not_make(address) from error
            raise
    elif before < LAYOUT:
        raise StoreSchema(
            f"the store {address.place} has layout {before}, and this version of tocsin needs {LAYOUT}: "
            "stop its hosts, run tocsin migrate, and start them again"
        )


async def check_rights(connection: Connection, address: Address) -> None:
    """Refuse a role that lacks a right on a table: such a host would say that it lives, and leave the slots that are to
    be its own to nobody. StoreSchema."""
    needed = [(right, table) for table, rights in _RIGHTS.items() for right in rights]
    rights, tables = [right for right, _ in needed], [table for _, table in needed]
    missing = await connection.fetch(_MISSING_RIGHTS, rights, tables, f"{address.schema}.")
    if missing:
        lacks = ", ".join(f"{row['may']} on {row['name']}" for row in missing)
        raise StoreSchema(
            f"the role of the URL has too few rights on the tables of the store {address.place}, it lacks {lacks}: "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {address.schema} TO this role"
        )


def _may_not_make(address: Address) -> StoreError:
    return StoreSchema(
        f"there is no store at {address.place} yet, and this role may not make the schema {address.schema}: have "
        "somebody who may run tocsin migrate (--sql prints the statements), or GRANT CREATE ON DATABASE … TO this role"
    )


async def brought_up(connection: Connection, address: Address) -> Migrated:
    """Run the steps that are missing, while no other process does."""
    async with connection.transaction():
        await connection.execute(_ONE_AT_A_TIME, address.schema)
        before = await layout_of(connection, address)
        if before == 0:
            await connection.execute(schema_sql(address.schema))
        for step in range(before + 1, LAYOUT + 1):
            await connection.execute(step_sql(address.schema, step))
    return Migrated(address.place, before, LAYOUT)


async def layout_of(connection: Connection, address: Address) -> int:
    """Return the layout of the store, 0 if there is none. StoreSchema if it is newer, or no store of tocsin."""
    try:
        async with connection.transaction():  # a savepoint where one is open: a missing table would end it
            rows = await connection.fetch(f"SELECT k, v FROM {address.schema}.meta")
    except FAILURES as error:
        if code_of(error) in MISSING:
            return 0
        raise
    facts = {row["k"]: row["v"] for row in rows}
    version = facts.get("schema_version", "")
    if not version.isdigit():
        raise StoreSchema(f"the schema of {address.place} holds a table meta that is not of tocsin: use ?schema=")
    if int(version) > LAYOUT:
        raise StoreSchema(
            f"the store {address.place} has layout {version}, and this version of tocsin knows {LAYOUT}: it was made "
            "by a newer one, so use that"
        )
    if facts.get("slots") != str(SLOTS):
        raise StoreSchema(f"the store {address.place} has {facts.get('slots')} slots, and tocsin needs {SLOTS}")
    return int(version)
