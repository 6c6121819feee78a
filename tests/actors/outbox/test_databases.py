"""The same table in real databases, by every driver; and drains that take from it at the same time."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from tests.actors.scheduler.simulated_host import OK, SECRET
from tests.in_process_transport import InProcessTransport
from tests.postgres import Postgres
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.outbox.databases import AsyncpgDatabase, Database, SQLAlchemyDatabase, SQLiteDatabase
from tocsin.actors.outbox.drain import Drain
from tocsin.actors.outbox.entry import Outbox, OutboxEntry
from tocsin.actors.outbox.statements import Statement
from tocsin.actors.runtime.clock import SystemClock
from tocsin.dispatch.testing import FakeReceiver
from tocsin.errors import SettingsError

pytestmark = pytest.mark.anyio
KINDS = ("sqlite", "sqlalchemy-sqlite", "sqlalchemy-sync-sqlite", "asyncpg", "sqlalchemy-postgresql")


class Place:
    """Where a table is: how drains reach it, and how an app writes there."""

    def __init__(self, open_one: Callable[[], Database], write: Callable[[Sequence[OutboxEntry], bool], Any]) -> None:
        self.database, self.write = open_one, write


@asynccontextmanager
async def placed(kind: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        if kind == "asyncpg":
            server: Postgres = request.getfixturevalue("postgres")
            pool = await stack.enter_async_context(
                asyncpg.create_pool(server.url(server.database()), min_size=1, max_size=6)
            )

            async def write_pg(entries: Sequence[OutboxEntry], commit: bool) -> None:
                async with pool.acquire() as connection:
                    transaction = connection.transaction()
                    await transaction.start()
                    for entry in entries:
                        await connection.execute(*entry.dollar)
                    await (transaction.commit() if commit else transaction.rollback())

            yield Place(lambda: AsyncpgDatabase(pool), write_pg)
        elif kind == "sqlite":

            async def write_lite(entries: Sequence[OutboxEntry], commit: bool) -> None:
                async with aiosqlite.connect(folder / "app.db") as db:
                    for entry in entries:
                        await db.execute(*entry.qmark)
                    await (db.commit() if commit else db.rollback())

            yield Place(lambda: SQLiteDatabase(folder / "app.db"), write_lite)
        elif kind == "sqlalchemy-sync-sqlite":
            engine = sqlalchemy.create_engine(f"sqlite:///{folder / 'app.db'}")
            stack.callback(engine.dispose)

            async def write_sync(entries: Sequence[OutboxEntry], commit: bool) -> None:
                with engine.connect() as connection:
                    for entry in entries:
                        connection.execute(entry.insert)
                    (connection.commit if commit else connection.rollback)()

            yield Place(lambda: SQLAlchemyDatabase(engine), write_sync)
        else:
            if kind == "sqlalchemy-sqlite":
                url = f"sqlite+aiosqlite:///{folder / 'app.db'}"
            else:
                server = request.getfixturevalue("postgres")
                url = server.url(server.database(), "postgresql+asyncpg")
            async_engine = create_async_engine(url)
            stack.push_async_callback(async_engine.dispose)

            async def write_async(entries: Sequence[OutboxEntry], commit: bool) -> None:
                async with async_engine.connect() as connection:
                    for n, entry in enumerate(entries):
                        text, values = entry.named
                        await connection.execute(*((entry.insert,) if n % 2 else (sqlalchemy.text(text), values)))
                    await (connection.commit() if commit else connection.rollback())

            yield Place(lambda: SQLAlchemyDatabase(async_engine), write_async)


@asynccontextmanager
async def hosted() -> AsyncIterator[tuple[ActorHost, FakeReceiver]]:
    receiver = FakeReceiver([SECRET], now_ms=SystemClock().now_ms, answer=lambda one: OK)
    transport = InProcessTransport(receiver)
    async with ActorHost.open("memory:", origin="https://x.example", secrets=[SECRET], transport=transport) as host:
        yield host, receiver


def fired(receiver: FakeReceiver) -> Counter[Any]:
    return Counter(args for args, _ in {(one.body["args"], one.webhook_id) for one in receiver.deliveries})


@pytest.mark.parametrize("kind", KINDS)
async def test_committed_rows_fire_once_and_rolled_back_ones_never(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    box = Outbox()
    async with placed(kind, request, tmp_path) as place, hosted() as (host, receiver):
        await Drain(place.database(), host).create_table()
        async with Drain(place.database(), host, poll="60s") as drain:
            await drain.create_table()  # is there: nothing
            await place.write([box.run_after(0, "a:b", f"ü{n}") for n in range(3)], True)
            await place.write([box.run_after(0, "a:b", f"lost{n}") for n in range(3)], False)
            drain.notify()
            async with asyncio.timeout(10):
                await receiver.wait_for(3)
            await host.scheduler().run_after("1h", "a:b", id="taken")
            await place.write([box.run_after(0, "a:b", "refused", id="taken")], True)
            assert await drain.run_once() == 0
            assert await drain.parked() == []
        again = Drain(place.database(), host)
        assert await again.run_once() == 0
        assert fired(receiver) == {"ü0": 1, "ü1": 1, "ü2": 1}
        await again.aclose()


@pytest.mark.parametrize("kind", ["sqlite", "asyncpg", "sqlalchemy-postgresql"])
async def test_drains_that_take_at_the_same_time_share_the_rows(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rows, box = 600, Outbox()
    async with placed(kind, request, tmp_path) as place, hosted() as (host, _):
        drains = [Drain(place.database(), host) for _ in range(4)]
        await drains[0].create_table()
        for drain in drains:
            drain._bringing.rows = 50
        await place.write([box.run_after("1h", "a:b", n) for n in range(rows)], True)
        brought = await asyncio.gather(*(drain.run_once() for drain in drains))
        assert sum(brought) == rows, "each row by one of them, whoever was quickest"
        assert (await host.scheduler().status()).backlog == rows
        for drain in drains:
            await drain.aclose()


@pytest.mark.parametrize("kind", ["sqlite", "asyncpg"])
async def test_drains_that_are_cancelled_anywhere_make_one_job_per_row(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whose holds are over at once, so that each takes what another has left in the middle."""
    monkeypatch.setattr("tocsin.actors.outbox.drain.LEAST_HOLD_MS", 1)
    rows, box = 40, Outbox()
    async with placed(kind, request, tmp_path) as place, hosted() as (host, receiver):
        first = Drain(place.database(), host, hold=0.001)
        await first.create_table()
        await place.write([box.run_after(0, "a:b", n) for n in range(rows)], True)
        first._bringing.rows = 7
        for n in range(40):
            drain = Drain(place.database(), host, hold=0.001)
            drain._bringing.rows = 7
            task = asyncio.create_task(drain.run_once())
            for _ in range(n // 2):
                await asyncio.sleep(0)
            await asyncio.sleep(n % 2 * 0.002)
            task.cancel()
            await asyncio.wait([task])
            await drain.aclose()
        for _ in range(3):
            await asyncio.sleep(0.005)
            await first.run_once()
        async with asyncio.timeout(10):
            await receiver.wait_for(rows)
        assert fired(receiver) == Counter(range(rows))
        await first.aclose()


# ---- PostgreSQL only -----------------------------------------------------------------------------


@asynccontextmanager
async def listening(
    postgres: Postgres, poll: float
) -> AsyncIterator[tuple[asyncpg.Pool[asyncpg.Record], FakeReceiver]]:
    """A drain that listens, and where it does."""
    async with asyncpg.create_pool(postgres.url(postgres.database()), min_size=1) as pool, hosted() as (host, receiver):
        for sql in Outbox().schema("postgresql", announce=True) * 2:  # also where it is there
            await pool.execute(sql)
        async with Drain(AsyncpgDatabase(pool), host, poll=poll):
            await listeners(pool)
            yield pool, receiver


async def test_a_commit_wakes_a_drain_that_listens(postgres: Postgres) -> None:
    box = Outbox()
    async with listening(postgres, poll=60) as (pool, receiver):
        await asyncio.sleep(0.05)  # its first looks are over, or they would find the first row
        for n in range(3):
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(*box.run_after(0, "a:b", n).dollar)
            async with asyncio.timeout(10):
                await receiver.wait_for(n + 1)
        assert fired(receiver) == {0: 1, 1: 1, 2: 1}


async def test_a_drain_listens_again_when_its_connection_was_lost(postgres: Postgres) -> None:
    async with listening(postgres, poll=0.05) as (pool, receiver):
        [before] = await listeners(pool)
        await pool.execute("SELECT pg_terminate_backend($1)", before)
        for _ in range(500):
            if (now := await listeners(pool)) != [before]:
                break
            await asyncio.sleep(0.02)
        assert len(now) == 1 and now != [before]
        await pool.execute(*Outbox().run_after(0, "a:b", 1).dollar)
        async with asyncio.timeout(10):
            await receiver.wait_for(1)


async def test_a_pool_without_a_connection_to_spare_is_polled(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tocsin.actors.outbox.databases.LISTEN_S", 0.05)
    async with (
        asyncpg.create_pool(postgres.url(postgres.database()), min_size=1, max_size=2) as pool,
        hosted() as (host, receiver),
        pool.acquire() as first,
    ):
        for sql in Outbox().schema("postgresql"):
            await first.execute(sql)
        async with pool.acquire() as second:
            drain = Drain(AsyncpgDatabase(pool), host, poll=0.02)
            await drain.__aenter__()
            await asyncio.sleep(0.2)
            await second.execute(*Outbox().run_after(0, "a:b", 1).dollar)
        async with asyncio.timeout(10):
            await receiver.wait_for(1)
        await drain.aclose()
    assert "nobody listens" in caplog.text


async def listeners(pool: Any) -> list[int]:
    """As soon as there are any. Polled: they are seen by the server only."""
    query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    for _ in range(500):
        if found := [row["pid"] for row in await pool.fetch(query)]:
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("nobody listens")


async def test_a_row_that_somebody_has_locked_keeps_nobody_waiting(postgres: Postgres) -> None:
    box = Outbox()
    async with asyncpg.create_pool(postgres.url(postgres.database()), min_size=1) as pool, hosted() as (host, receiver):
        drain = Drain(AsyncpgDatabase(pool, listen=False), host)
        await drain.create_table()
        for n in range(3):
            await pool.execute(*box.run_after(0, "a:b", n).dollar)
        async with pool.acquire() as other, other.transaction():
            await other.execute("SELECT * FROM tocsin_outbox ORDER BY id LIMIT 1 FOR UPDATE")
            async with asyncio.timeout(10):
                assert await drain.run_once() == 2
        assert await drain.run_once() == 1
        async with asyncio.timeout(10):
            await receiver.wait_for(3)
        assert fired(receiver) == Counter(range(3))


async def test_what_a_drain_writes_is_durable_where_commits_are_not(postgres: Postgres) -> None:
    written: list[list[str]] = []

    class Noted(AsyncpgDatabase):
        async def run(self, statements: Sequence[Statement]) -> Any:
            if not statements[0].sql.startswith("SELECT"):
                written.append([one.sql.split()[0] for one in statements])
            asked = Statement("SELECT current_setting('synchronous_commit')", {})
            *rows, [(said,)] = await super().run([*statements, asked])
            assert said == ("off" if statements[0].sql.startswith("SELECT") else "on")
            return rows

    async with asyncpg.create_pool(postgres.url(postgres.database()), min_size=1) as pool, hosted() as (host, _):
        for sql in Outbox().schema("postgresql"):
            await pool.execute(sql)
        await pool.execute(*Outbox().run_after("1h", "a:b").dollar)
        assert await Drain(Noted(pool, listen=False), host).run_once() == 1
    assert written == [["SET", "UPDATE"], ["SET", "DELETE"]]


class _NoHost:
    name = "default"

    async def submit_batch(self, jobs: Any, key: str) -> Any:
        raise NotImplementedError

    async def knows(self, job_id: str, since: int | None) -> bool:
        raise NotImplementedError


# ---- SQLite only ---------------------------------------------------------------------------------


async def test_a_file_keeps_its_journal_mode_and_an_idle_drain_does_not_write(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as db:
        for sql in Outbox().schema("sqlite"):
            db.execute(sql)
    drain = Drain(SQLiteDatabase(path), _NoHost())
    version = db.execute("PRAGMA data_version").fetchone()
    db.execute("BEGIN IMMEDIATE")  # somebody writes: a drain that only looks is not kept waiting
    async with asyncio.timeout(1):
        assert await drain.run_once() == 0
    db.execute("ROLLBACK")
    assert db.execute("PRAGMA data_version").fetchone() == version
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    db.close()
    await drain.aclose()


def test_places_that_nobody_else_could_see_are_refused() -> None:
    for path in ("", ":memory:"):
        with pytest.raises(SettingsError, match="path must name a file"):
            SQLiteDatabase(path)
    with pytest.raises(SettingsError, match="not 'mysql'"):
        SQLAlchemyDatabase(sqlalchemy.create_mock_engine("mysql://", lambda *_: None))  # type: ignore[arg-type]


async def test_a_sync_engine_needs_no_greenlet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("greenlet", "sqlalchemy.ext.asyncio"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'app.db'}")

    [[row]] = await SQLAlchemyDatabase(engine).run([Statement("SELECT 7 AS n", {})])

    assert row == (7,)
    engine.dispose()
