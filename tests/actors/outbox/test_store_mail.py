"""Rows that go straight into the store of the hosts, in the app's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from tests.postgres import Postgres
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.outbox.entry import Outbox, OutboxEntry
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.sharing.operations import OPERATIONS, asked_decoder
from tocsin.dispatch.retry import Retry
from tocsin.errors import InvalidInputError, SettingsError
from tocsin.storage.ownership.engine import HostRow, Mail, slot_of
from tocsin.storage.postgres.engine import PostgresEngine

pytestmark = pytest.mark.anyio
ACTOR = "scheduler/shop"
LONG_S = 3_600.0


def outbox(**options: Any) -> Outbox:
    return Outbox("shop", store="tocsin", random=Random(1), **options)


def job_of(body: bytes) -> NewJob:
    """The job that the owner of the scheduler is asked to take."""
    asked = asked_decoder.decode(body)
    assert (asked.operation, asked.instance) == ("jobs.submit_once", "shop")
    [[new], key, content, _] = OPERATIONS[asked.operation].decode(asked.arguments)
    assert key == content and len(key) == 16
    found: NewJob = new
    return found


# ---- What is written -----------------------------------------------------------------------------


def test_a_row_is_a_call_of_the_scheduler_that_is_done_once() -> None:
    entry = outbox().run_after(
        "5m", "orders:confirm", {"order": 7}, pool="mail", labels=["a:b"], retry=Retry(max_retries=3), initiator="ann"
    )
    assert entry.values["actor"] == ACTOR and entry.values["slot"] == slot_of(ACTOR)
    new = job_of(entry.values["body"])
    assert (new.job.id, new.chosen, new.on_conflict, new.parked_as) == (entry.id, True, "keep", entry.id)
    assert (new.job.function_path, new.job.args, new.job.pool) == ("orders:confirm", b'{"order":7}', "mail")
    assert (new.job.labels, new.job.initiator) == (("a:b",), ("", "ann"))
    assert new.job.scheduled_for - new.job.enqueued_at == 300_000


def test_an_id_of_its_own_stays_what_was_chosen_and_the_row_has_another() -> None:
    entry = outbox().run_after(1, "a:b", id="order-7")
    new = job_of(entry.values["body"])
    assert (entry.id, new.job.id, new.on_conflict, len(new.parked_as)) == ("order-7", "order-7", "error", 26)
    assert job_of(outbox().run_after(1, "a:b", id="x", on_conflict="replace").values["body"]).on_conflict == "replace"


def test_rows_grow_and_no_two_are_one_call() -> None:
    box = outbox()
    entries = [box.run_after(1, "a:b", id="same") for _ in range(50)]
    ops = [entry.values["op"] for entry in entries]
    assert ops == sorted({*ops}) and all(len(op) == 32 for op in ops)
    assert len({job_of(entry.values["body"]).parked_as for entry in entries}) == 50


def test_each_driver_gets_its_own_form_of_it() -> None:
    entry = outbox().run_after(1, "a:b")
    into = "INSERT INTO tocsin.mail (slot, op, actor, body) VALUES "
    assert entry.dollar == (into + "($1, CAST($2 AS uuid), $3, $4)", *entry.values.values())
    assert entry.pyformat == (into + "(%(slot)s, CAST(%(op)s AS uuid), %(actor)s, %(body)s)", entry.values)
    assert str(entry.insert) == into + "(:slot, :op, :actor, :body)"
    assert entry.insert.compile().params == entry.values


def test_what_cannot_be_is_an_error_in_the_transaction() -> None:
    with pytest.raises(InvalidInputError, match="pool must be"):
        outbox().run_after(1, "a:b", pool="no good")
    with pytest.raises(InvalidInputError, match="catalog"):
        outbox(catalog={"a:known": int}).run_after(1, "a:other")


@pytest.mark.parametrize("store", ["", "pg_catalog", "Tocsin", "a.b", "x" * 31, 7])
def test_the_schema_must_be_one_that_a_store_can_have(store: Any) -> None:
    with pytest.raises(SettingsError, match="store must be the name of the store's schema"):
        Outbox(store=store)


def test_a_store_needs_no_table_and_a_table_has_no_hint() -> None:
    assert outbox().schema("postgresql") == []
    with pytest.raises(SettingsError, match="need no table"):
        Outbox(table="jobs", store="tocsin")
    with pytest.raises(SettingsError, match="a Drain has notify"):
        _ = Outbox().hint


# ---- On a server ---------------------------------------------------------------------------------


class Place:
    """A store, and a role of an app that may put mail there and nothing else."""

    def __init__(self, engine: PostgresEngine, server: Postgres, database: str) -> None:
        self.engine, self.server, self.database = engine, server, database

    def url(self, driver: str = "postgresql") -> str:
        return self.server.url(self.database, driver, "app")

    async def mail(self) -> list[Mail]:
        return await self.engine.take_mail([slot_of(ACTOR)], 100)


@asynccontextmanager
async def placed(server: Postgres) -> AsyncIterator[Place]:
    database = server.database()
    engine = PostgresEngine(server.url(database))
    await engine.open()
    try:
        server.sql("SELECT 'CREATE ROLE app LOGIN' WHERE to_regrole('app') IS NULL \\gexec")
        server.sql("GRANT USAGE ON SCHEMA tocsin TO app; GRANT INSERT ON tocsin.mail TO app", database)
        yield Place(engine, server, database)
    finally:
        await engine.close()


async def by_asyncpg(place: Place, entries: list[OutboxEntry], commit: bool) -> None:
    connection = await asyncpg.connect(place.url())
    try:
        transaction = connection.transaction()
        await transaction.start()
        for entry in entries:
            await connection.execute(*entry.dollar)
        await (transaction.commit() if commit else transaction.rollback())
    finally:
        await connection.close()


async def by_sqlalchemy(place: Place, entries: list[OutboxEntry], commit: bool, core: bool = True) -> None:
    engine = create_async_engine(place.url("postgresql+asyncpg"))
    try:
        async with engine.connect() as connection:
            for entry in entries:
                sql, values = entry.named
                await connection.execute(*((entry.insert,) if core else (sqlalchemy.text(sql), values)))
            await (connection.commit() if commit else connection.rollback())
    finally:
        await engine.dispose()


async def by_text(place: Place, entries: list[OutboxEntry], commit: bool) -> None:
    await by_sqlalchemy(place, entries, commit, core=False)


@pytest.mark.parametrize("write", [by_asyncpg, by_sqlalchemy, by_text])
async def test_what_was_committed_is_mail_in_its_order_and_what_was_rolled_back_is_not(
    each_postgres: Postgres, write: Any
) -> None:
    async with placed(each_postgres) as place:
        box = outbox()
        entries = [box.run_after(1, "a:b", n) for n in range(3)]
        await write(place, [box.run_after(1, "a:b", "never")], False)
        await write(place, entries, True)
        mail = await place.mail()
        assert [one.op for one in mail] == [entry.values["op"] for entry in entries]
        assert [job_of(one.body).job.args for one in mail] == [b"0", b"1", b"2"]
        assert {(one.actor, one.sender) for one in mail} == {(ACTOR, "")}


async def test_a_row_can_be_taken_back_in_the_transaction_that_makes_it_pointless(postgres: Postgres) -> None:
    async with placed(postgres) as place:
        entry = outbox().run_after("1h", "a:b")
        await by_asyncpg(place, [entry], True)
        found = postgres.sql(f"DELETE FROM tocsin.mail WHERE op = '{entry.values['op']}' RETURNING 1", place.database)
        assert found == "1" and await place.mail() == []


async def test_the_hint_wakes_every_host(postgres: Postgres) -> None:
    async with placed(postgres) as place:
        await place.engine.register(HostRow(uuid4().hex, "here"), LONG_S)
        hints = place.engine.hints()
        first = asyncio.ensure_future(anext(hints))  # by itself, once the connection is there
        async with asyncio.timeout(10):
            await first
        connection = await asyncpg.connect(place.url())
        try:
            heard = asyncio.ensure_future(anext(hints))
            await connection.execute(*outbox().hint.dollar)
            async with asyncio.timeout(10):
                await heard
        finally:
            await connection.close()


async def test_a_host_of_the_store_has_the_jobs_once_the_transaction_is_committed(postgres: Postgres) -> None:
    async with placed(postgres) as place:
        store = postgres.url(place.database)
        async with ActorHost.open(store, origin="http://127.0.0.1:9", insecure=True) as host, asyncio.timeout(30):
            jobs = host.scheduler("shop")
            await jobs.run_after("1h", "a:b", id="taken")
            box = outbox()
            entries = [box.run_after("1h", "a:b", n) for n in range(20)]
            await by_asyncpg(place, [box.run_after("1h", "a:b", "never")], False)
            await by_asyncpg(place, [*entries, box.run_after("1h", "a:b", id="taken")], True)
            connection = await asyncpg.connect(place.url())
            await connection.execute(*box.hint.dollar)
            await connection.close()
            while True:  # the last of them is dead: those before it are there
                if (await jobs.status()).dead:
                    break
                await asyncio.sleep(0.02)
            found = {record.id for record in (await jobs.list(limit=100)).records}
            assert found == {"taken", *(entry.id for entry in entries)}
            while True:
                if not await place.mail():
                    break
                await asyncio.sleep(0.02)


def test_the_body_is_json_that_later_versions_read() -> None:
    body = msgspec.json.decode(outbox().run_after(1, "a:b").values["body"])
    assert body[:3] == ["jobs.submit_once", "shop", False]
