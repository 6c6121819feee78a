"""Slots that two hosts want at the same moment, on a real server."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.postgres import Postgres
from tests.storage.shared_places import ONE, TWO, opened, until
from tocsin.storage.postgres.engine import PostgresEngine

pytestmark = pytest.mark.anyio

LOCK = 16


async def test_what_another_host_takes_while_a_take_looks_is_not_taken_from_it(postgres: Postgres) -> None:
    schema = f"s{uuid4().hex[:12]}"
    url = f"{postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url), ONE, TWO) as engine:
        other = await asyncpg.connect(postgres.url("postgres"))
        try:
            # Whoever reads the hosts stops there: it has its snapshot by then, and no lock yet.
            await other.execute(
                f"ALTER TABLE {schema}.host RENAME TO hosts; CREATE VIEW {schema}.host AS SELECT * FROM {schema}.hosts "
                f"WHERE pg_advisory_xact_lock_shared({LOCK}, hashtext('{schema}')) IS NOT NULL"
            )
            await other.execute(f"SELECT pg_advisory_lock({LOCK}, hashtext('{schema}'))")
            take = asyncio.create_task(engine.take([1, 2, 3], ONE))
            await until(
                lambda: other.fetchval(
                    "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' "
                    "AND objid = hashtext($1)::int8 & 4294967295",
                    schema,
                )
            )
            taken = f"UPDATE {schema}.slot SET owner = $1, epoch = epoch + 1 WHERE slot IN (1, 2)"
            await other.execute(taken, UUID(TWO))
            await other.execute(f"SELECT pg_advisory_unlock({LOCK}, hashtext('{schema}'))")

            assert [(row.slot, row.epoch) for row in await take] == [(3, 1)]
            assert [row.owner for row in await engine.settle([1, 2, 3])] == [TWO, TWO, ONE]
        finally:
            other.terminate()
