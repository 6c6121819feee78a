"""Layouts of a PostgreSQL store: made, checked, refused."""

from __future__ import annotations

import asyncio

import pytest

from tests.postgres import Postgres
from tocsin.errors import StoreError, StoreSchema
from tocsin.storage.postgres import layout
from tocsin.storage.postgres import migrate as migrations
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.postgres.layout import LAYOUT, migration_sql
from tocsin.storage.postgres.migrate import Migrated, migrate, migration

pytestmark = pytest.mark.anyio


async def opened(url: str) -> None:
    engine = PostgresEngine(url)
    try:
        await engine.open()
        assert len(await engine.secret()) == 32
    finally:
        await engine.close()


async def test_a_store_is_made_when_it_is_first_opened_also_by_many_at_once(each_postgres: Postgres) -> None:
    url = each_postgres.url(each_postgres.database("app"), user="app")  # an ordinary role, which owns its database

    await asyncio.gather(*(opened(url) for _ in range(4)))

    assert await migrate(url) == Migrated(PostgresEngine(url).place, LAYOUT, LAYOUT)
    assert await migration(url) == ""


async def test_a_role_that_may_make_no_schema_is_told_what_to_do_and_goes_on_once_it_is_done(
    each_postgres: Postgres,
) -> None:
    database = each_postgres.database()
    each_postgres.sql("SELECT 'CREATE ROLE guest LOGIN' WHERE to_regrole('guest') IS NULL \\gexec")
    url = each_postgres.url(database, user="guest")
    with pytest.raises(StoreSchema, match="tocsin migrate"):
        await opened(url)

    each_postgres.sql(await migration(url), database)
    with pytest.raises(StoreError, match="too few rights"):
        await opened(url)
    each_postgres.sql(
        "GRANT USAGE ON SCHEMA tocsin TO guest; "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tocsin TO guest",
        database,
    )

    await opened(url)


async def test_a_role_that_may_not_do_all_that_a_host_does_is_refused_at_the_start(postgres: Postgres) -> None:
    database = postgres.database()
    await migrate(postgres.url(database))
    postgres.sql("SELECT 'CREATE ROLE guest LOGIN' WHERE to_regrole('guest') IS NULL \\gexec")
    grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tocsin TO guest"
    for lacks in ("UPDATE ON tocsin.slot", "INSERT ON tocsin.mail"):
        postgres.sql(f"GRANT USAGE ON SCHEMA tocsin TO guest; {grant}; REVOKE {lacks} FROM guest", database)
        with pytest.raises(StoreSchema, match=f"it lacks {lacks.replace('ON tocsin.', 'on ')}: GRANT"):
            await opened(postgres.url(database, user="guest"))
    postgres.sql(grant, database)

    await opened(postgres.url(database, user="guest"))


async def test_a_schema_that_was_made_for_a_role_is_used(postgres: Postgres) -> None:
    database = postgres.database()
    postgres.sql("SELECT 'CREATE ROLE guest LOGIN' WHERE to_regrole('guest') IS NULL \\gexec")
    postgres.sql("CREATE SCHEMA eu AUTHORIZATION guest", database)

    await opened(postgres.url(database, user="guest") + "&schema=eu")


async def test_a_newer_layout_is_refused_and_left_as_it_is(postgres: Postgres) -> None:
    database = postgres.database()
    url = postgres.url(database)
    await migrate(url)
    postgres.sql("UPDATE tocsin.meta SET v = '99' WHERE k = 'schema_version'", database)

    for attempt in (opened(url), migrate(url), migration(url)):
        with pytest.raises(StoreSchema, match=f"layout 99, and this version of tocsin knows {LAYOUT}"):
            await attempt


async def test_an_older_layout_waits_for_the_command(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.url(postgres.database())
    await migrate(url)
    monkeypatch.setattr(layout, "STEPS", (*layout.STEPS, "ALTER TABLE %s.actor ADD COLUMN more int4;\n"))
    for module in (layout, migrations):
        monkeypatch.setattr(module, "LAYOUT", LAYOUT + 1)

    with pytest.raises(StoreSchema, match=f"has layout {LAYOUT}, .* run tocsin migrate"):
        await opened(url)
    assert "ADD COLUMN more" in (statements := await migration(url)) and "CREATE TABLE" not in statements

    assert await migrate(url) == Migrated(PostgresEngine(url).place, LAYOUT, LAYOUT + 1)
    await opened(url)


async def test_tables_of_another_program_are_left_alone(postgres: Postgres) -> None:
    database = postgres.database()
    postgres.sql("CREATE SCHEMA tocsin; CREATE TABLE tocsin.meta (k text, v text)", database)

    for attempt in (opened(postgres.url(database)), migrate(postgres.url(database))):
        with pytest.raises(StoreSchema, match="not of tocsin"):
            await attempt


async def test_a_database_that_cannot_hold_every_name_is_refused(postgres: Postgres) -> None:
    postgres.sql("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")

    with pytest.raises(StoreSchema, match="LATIN1"):
        await opened(postgres.url("latin"))


def test_the_printed_statements_are_one_transaction() -> None:
    text = migration_sql("eu")

    assert text.startswith("BEGIN;\n") and text.endswith("COMMIT;\n") and "%s" not in text and "eu.kv" in text
