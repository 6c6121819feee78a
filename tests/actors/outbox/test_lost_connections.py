"""A database whose connections are dropped without a word: no error tells of it, and no answer ever comes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import asyncpg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from tests.actors.outbox.test_databases import fired, hosted
from tests.postgres import Postgres
from tocsin.actors.outbox import databases
from tocsin.actors.outbox.databases import AsyncpgDatabase, Database, Row, SQLAlchemyDatabase, SQLiteDatabase
from tocsin.actors.outbox.drain import Drain
from tocsin.actors.outbox.entry import Outbox
from tocsin.actors.outbox.patience import Patient
from tocsin.actors.outbox.statements import Statement
from tocsin.actors.testing import VirtualClock, simulate

pytestmark = pytest.mark.anyio
HURRY = 5


class Hurried:
    """The real clock, whose intervals pass five times as fast."""

    look_again_s = 1.0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() * HURRY

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / HURRY)


class Proxy:
    """In front of a PostgreSQL. `drop` lets all connections that there are fall silent, `dark` new ones, too."""

    def __init__(self, postgres: Postgres) -> None:
        self._socket = postgres.socket
        self._flows: list[asyncio.Event] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.is_dark = False
        self.port = 0

    @property
    def connections(self) -> int:
        return len(self._flows)

    def drop(self) -> None:
        for flow in self._flows:
            flow.clear()

    def dark(self) -> None:
        self.is_dark = True
        self.drop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(str(self._socket))
        flow = asyncio.Event()
        if not self.is_dark:
            flow.set()
        self._flows.append(flow)
        self._writers += [writer, forth]
        for source, sink in ((reader, forth), (back, writer)):
            pump = asyncio.create_task(self._pump(source, sink, flow))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, flow: asyncio.Event) -> None:
        try:
            while data := await source.read(65_536):
                if flow.is_set():  # else it goes nowhere
                    sink.write(data)
                    await sink.drain()
        except ConnectionError:
            pass
        if flow.is_set():  # nor does an end, where nothing passes
            sink.close()

    def end(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def proxied(postgres: Postgres) -> AsyncIterator[tuple[Proxy, str, asyncpg.Pool[Any]]]:
    """The proxy, the name of a database with the table, and a pool that goes past the proxy."""
    name, proxy = postgres.database(), Proxy(postgres)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        async with asyncpg.create_pool(postgres.url(name), min_size=1, max_size=2) as direct:
            for sql in Outbox().schema("postgresql", announce=True):
                await direct.execute(sql)
            yield proxy, name, direct
    finally:
        server.close()
        proxy.end()


@asynccontextmanager
async def by(kind: str, proxy: Proxy, name: str) -> AsyncIterator[Database]:
    """What a drain is given, with its connections through the proxy."""
    if kind == "asyncpg":
        pool = await asyncpg.create_pool(
            host="127.0.0.1", port=proxy.port, user="postgres", database=name, ssl=False, min_size=3, max_size=4
        )
        try:
            yield AsyncpgDatabase(pool, clock=Hurried())
        finally:
            pool.terminate()
    else:
        engine = create_async_engine(f"postgresql+asyncpg://postgres@127.0.0.1:{proxy.port}/{name}?ssl=disable")
        try:
            yield SQLAlchemyDatabase(engine)
        finally:
            await engine.dispose(close=False)


@pytest.mark.parametrize(("kind", "poll"), [("asyncpg", 600), ("asyncpg", 1), ("sqlalchemy", 1)])
async def test_rows_are_brought_within_30_seconds_though_all_connections_were_dropped(
    kind: str, poll: float, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the pool, and the one that only listens: with `poll=600` nobody but it would look in time."""
    clock, box = Hurried(), Outbox()
    async with (
        proxied(postgres) as (proxy, name, direct),
        by(kind, proxy, name) as database,
        hosted() as (host, receiver),
        Drain(database, host, poll=poll, clock=clock),
    ):
        await direct.execute(*box.run_after(0, "a:b", 0).dollar)
        async with asyncio.timeout(20):
            await receiver.wait_for(1)
        await clock.sleep(3)  # the look that brought it is over, so nothing waits for an answer
        proxy.drop()
        await direct.execute(*box.run_after(0, "a:b", 1).dollar)
        began = clock.monotonic()
        async with asyncio.timeout(60):
            await receiver.wait_for(2)
        assert clock.monotonic() - began <= 30 + 10, "and what a busy machine takes"
        assert fired(receiver) == {0: 1, 1: 1}
    assert "gave no answer" in caplog.text


@pytest.mark.parametrize("kind", ["asyncpg", "sqlalchemy"])
async def test_a_database_that_is_dark_for_long_is_looked_at_every_30_seconds(
    kind: str, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    clock, box = Hurried(), Outbox()
    async with (
        proxied(postgres) as (proxy, name, direct),
        by(kind, proxy, name) as database,
        hosted() as (host, receiver),
    ):
        async with Drain(database, host, poll=1, clock=clock):
            await direct.execute(*box.run_after(0, "a:b", 0).dollar)
            async with asyncio.timeout(20):
                await receiver.wait_for(1)
            proxy.dark()
            await direct.execute(*box.run_after(0, "a:b", 1).dollar)
            await clock.sleep(45)
            said = [one for one in caplog.records if "the outbox cannot be used" in one.message]
            assert 3 <= len(said) <= 6, "said at each look"
            assert all("gave no answer within 10 s" in one.getMessage() for one in said)
            proxy.is_dark = False
            began = clock.monotonic()
            async with asyncio.timeout(60):
                await receiver.wait_for(2)
            assert clock.monotonic() - began <= 30 + 10
            proxy.dark()
        assert fired(receiver) == {0: 1, 1: 1}, "and it closes, though nothing answers"


async def test_a_query_that_fails_rolls_back_and_gives_its_connection_back(postgres: Postgres) -> None:
    async with proxied(postgres) as (proxy, name, direct), by("asyncpg", proxy, name) as database:
        before = proxy.connections
        write = Outbox().run_after(0, "a:b", 1).named
        for _ in range(10):
            with pytest.raises(asyncpg.PostgresError):
                await database.run([Statement(*write), Statement("SELECT no_such_column", {})])
        assert await direct.fetchval("SELECT count(*) FROM tocsin_outbox") == 0
        assert proxy.connections == before, "none was lost"


async def test_a_call_on_a_silent_connection_that_is_given_up_ends_at_once(postgres: Postgres) -> None:
    """Its connection is closed without a word: to give it back in order would wait for the same silence."""
    async with proxied(postgres) as (proxy, name, _), by("asyncpg", proxy, name) as database:
        await database.run([Statement("SELECT 1", {})])
        proxy.drop()
        asked = asyncio.create_task(database.run([Statement("SELECT 1", {})]))
        await asyncio.sleep(0.2)
        assert not asked.done(), "nothing answers"
        asked.cancel()
        await asyncio.wait([asked], timeout=5)
        assert asked.cancelled()
        async with asyncio.timeout(20):
            assert await database.run([Statement("SELECT 1", {})]) == [[(1,)]], "by another connection"


class Dark:
    """A database that never answers."""

    dialect: Final = "sqlite"

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody answers")

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        await self.run([])

    async def aclose(self) -> None:
        await self.run([])


def test_a_database_without_an_answer_is_given_up_at_its_limit() -> None:
    async def main(_: Random) -> None:
        clock = VirtualClock()
        patient = Patient(Dark(), clock, 10)
        for ask in (lambda: patient.run([]), lambda: patient.listen("c", print), patient.aclose):
            began = clock.monotonic()
            async with asyncio.timeout(60):
                with pytest.raises(TimeoutError, match="gave no answer within 10 s"):
                    await ask()
            assert clock.monotonic() - began == pytest.approx(10, abs=0.1)

    simulate(1, main)


# ---- Threads -------------------------------------------------------------------------------------


@contextmanager
def silent(engine: sqlalchemy.Engine) -> Iterator[Callable[[bool], None]]:
    """A sync engine whose threads wait for an answer for as long as it is silent, as drivers do."""
    answers = threading.Event()
    answers.set()

    def wait(*_: Any) -> None:
        answers.wait(60)

    sqlalchemy.event.listen(engine, "before_cursor_execute", wait)
    try:
        yield lambda yes: answers.clear() if yes else answers.set()
    finally:
        answers.set()


async def test_a_sync_engine_that_falls_silent_is_given_up_and_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "MOST_WAITING", 3)
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    with silent(engine) as fall_silent:
        async with hosted() as (host, _):
            database = SQLAlchemyDatabase(engine)
            await Drain(database, host).create_table()
            drain = Drain(database, host, timeout=0.2)
            fall_silent(True)
            for _ in range(3):
                with pytest.raises(TimeoutError, match=r"gave no answer within 0\.2 s"):
                    await drain.run_once()
            with pytest.raises(TimeoutError, match="3 queries have no answer yet"):
                await drain.run_once()
            fall_silent(False)
            for thread in threading.enumerate():
                if thread.name == "tocsin-aside":
                    await asyncio.to_thread(thread.join, 10)
            assert await Drain(database, host).run_once() == 0
            await drain.aclose()
    engine.dispose()


async def test_what_is_marked_in_a_file_is_synced_before_it_is_submitted(tmp_path: Path) -> None:
    database = SQLiteDatabase(tmp_path / "app.db")

    assert await database.run([Statement("PRAGMA synchronous", {})]) == [[(2,)]], "FULL"
    await database.aclose()
