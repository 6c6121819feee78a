"""How statements end: refused, cut off, cancelled; and what is then known of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from uuid import uuid4

import asyncpg
import pytest

from tests.postgres import Postgres
from tests.storage.postgres.cutting import way_to
from tests.storage.shared_places import ONE, TWO, later, opened, taken, writes
from tocsin.errors import StoreClosed, StoreError, StoreUnavailable
from tocsin.storage.ownership.engine import Held, Unsettled, slot_of
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.postgres.address import read_url
from tocsin.storage.postgres.connections import STATEMENT_S, connect, limits_for_life, limits_for_rows
from tocsin.storage.postgres.engine import PostgresEngine, shares_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def schema() -> str:
    return f"s{uuid4().hex[:12]}"


@asynccontextmanager
async def locked(server: Postgres, schema: str, slot: int) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Hold the row of a slot, as another commit would; what is given waits until somebody else wants it too."""
    holder, watcher = [await asyncpg.connect(server.url("postgres")) for _ in range(2)]

    async def wanted(by: int = 1) -> None:
        async with asyncio.timeout(10):
            while True:
                count = await watcher.fetchval(
                    "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
                    "WHERE NOT l.granted AND a.query LIKE $1", f"%{schema}.slot%",
                )  # fmt: skip
                if count >= by:
                    return
                await asyncio.sleep(0.01)

    try:
        async with holder.transaction():
            await holder.execute(f"SELECT FROM {schema}.slot WHERE slot = {slot} FOR UPDATE")
            yield wanted
    finally:
        for connection in (holder, watcher):
            connection.terminate()


def connections_of(server: Postgres, application: str) -> str:
    return server.sql(f"SELECT pid FROM pg_stat_activity WHERE application_name = '{application}' ORDER BY pid")


async def test_a_commit_that_is_cut_off_is_settled_once_the_server_is_done_with_it(
    each_postgres: Postgres, schema: str
) -> None:
    async with way_to(each_postgres, f"schema={schema}") as way, opened(lambda: PostgresEngine(way.url), ONE) as engine:
        held = await taken(engine, ONE, "a")
        async with locked(each_postgres, schema, held[0].slot) as wanted:
            commit = asyncio.create_task(engine.commit(ONE, held, [writes("a", {b"k": b"v"})]))
            await wanted()
            way.cut()
            with pytest.raises(Unsettled):
                await commit
            settled = asyncio.create_task(engine.settle([held[0].slot]))
            await wanted(by=2)
            assert not settled.done(), "the store would say that nothing was applied, and be wrong a moment later"

        assert [row.seq for row in await settled] == [1], "nobody told the server that its client was gone"
        assert await engine.get("a", [b"k"]) == {b"k": b"v"}
        assert await engine.commit(ONE, held, [writes("a", {b"k": b"again"})]) == set()
        assert await engine.commit(ONE, later(held), [writes("a", {b"k": b"w"})]) == {held[0].slot}


async def test_a_commit_whose_server_process_was_ended_is_not_applied(postgres: Postgres, schema: str) -> None:
    url = f"{postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url), ONE) as engine:
        held = await taken(engine, ONE, "a")
        async with locked(postgres, schema, held[0].slot) as wanted:
            commit = asyncio.create_task(engine.commit(ONE, held, [writes("a", {b"k": b"v"})]))
            await wanted()
            postgres.sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%{schema}.slot%' "
                "AND wait_event_type = 'Lock'"
            )
            with pytest.raises(Unsettled):
                await commit

        assert [row.seq for row in await engine.settle([held[0].slot])] == [0]
        assert await engine.commit(ONE, held, [writes("a", {b"k": b"v"})]) == {held[0].slot}


async def test_a_commit_that_an_operator_ended_is_not_applied_and_said_to_be(postgres: Postgres, schema: str) -> None:
    url = f"{postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url), ONE) as engine:
        held = await taken(engine, ONE, "a")
        async with locked(postgres, schema, held[0].slot) as wanted:
            commit = asyncio.create_task(engine.commit(ONE, held, [writes("a", {b"k": b"v"})]))
            await wanted()
            postgres.sql(
                f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%{schema}.slot%' "
                "AND wait_event_type = 'Lock'"
            )
            with pytest.raises(StoreUnavailable, match="ended by the server"):
                await commit

        assert await engine.commit(ONE, held, [writes("a", {b"k": b"v"})]) == {held[0].slot}


async def test_a_cancelled_caller_goes_at_once_and_its_statement_runs_to_its_end(
    postgres: Postgres, schema: str
) -> None:
    url = f"{postgres.url('postgres')}&schema={schema}&connections=4&application_name={schema}"
    async with opened(lambda: PostgresEngine(url), ONE) as engine:
        held = await taken(engine, ONE, "a")
        await asyncio.gather(engine.get("a", [b"k"]), engine.settle([held[0].slot]), engine.beat(ONE, 10))
        before = connections_of(postgres, schema)
        async with locked(postgres, schema, held[0].slot) as wanted:
            commit = asyncio.create_task(engine.commit(ONE, held, [writes("a", {b"k": b"v"})]))
            await wanted()
            commit.cancel()
            await asyncio.wait([commit], timeout=STATEMENT_S / 2)
            assert commit.cancelled()

        assert [row.seq for row in await engine.settle([held[0].slot])] == [1]
        reads = [asyncio.create_task(engine.scan_many("a", [(b"", b"\xff", 10)], 1 << 20, False)) for _ in range(50)]
        await asyncio.sleep(0)
        for read in reads[::2]:
            read.cancel()
        await asyncio.wait(reads)
        assert {read.cancelled() for read in reads[::2]} == {True}
        assert [read.result() for read in reads[1::2]] == [[[(b"k", b"v")]]] * 25
        assert await asyncio.gather(*(engine.beat(ONE, 10) for _ in range(8)))
        assert connections_of(postgres, schema) == before, "none was given up, and made anew"


async def test_after_a_restart_of_the_server_reads_and_commits_go_on(each_postgres: Postgres, schema: str) -> None:
    url = f"{each_postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url), ONE) as engine:
        held = await taken(engine, ONE, "a")
        await asyncio.gather(*(engine.get("a", [b"k"]) for _ in range(8)))
        await engine.commit(ONE, held, [writes("a", {b"k": b"v"})])

        each_postgres.stop()
        for refused in (engine.get("a", [b"k"]), engine.beat(ONE, 10), engine.slots()):
            with pytest.raises(StoreUnavailable, match="postgresql://"):
                await refused
        each_postgres.start()

        assert await engine.get("a", [b"k"]) == {b"k": b"v"}
        assert await engine.commit(ONE, later(held), [writes("a", {b"k": b"w"})]) == {held[0].slot}


async def test_however_many_read_a_sign_of_life_finds_a_connection(postgres: Postgres, schema: str) -> None:
    url = f"{postgres.url('postgres')}&schema={schema}&connections=4"
    async with opened(lambda: PostgresEngine(url), ONE) as engine:
        await engine.get("a", [b"k"])
        holder = await asyncpg.connect(postgres.url("postgres"))
        try:
            async with holder.transaction():
                await holder.execute(f"LOCK TABLE {schema}.kv IN ACCESS EXCLUSIVE MODE")
                reads = [asyncio.ensure_future(engine.get("a", [b"k"])) for _ in range(20)]
                await asyncio.sleep(0)
                async with asyncio.timeout(STATEMENT_S / 2):
                    assert await engine.beat(ONE, 10)
                assert not any(read.done() for read in reads)
            assert await asyncio.gather(*reads) == [{}] * 20
        finally:
            holder.terminate()


async def test_a_server_that_is_gone_is_waited_for_once_and_then_tried_last(postgres: Postgres) -> None:
    tried: list[int] = []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.append(len(tried))
        await reader.read()
        writer.close()

    async with way_to(postgres) as way, await asyncio.start_server(say_nothing, "127.0.0.1", 0) as gone:
        good = way.url.partition("@")[2].partition("/")[0]
        url = f"postgresql://postgres@127.0.0.1:{gone.sockets[0].getsockname()[1]},{good}/postgres?connect_timeout=1"
        address = read_url(url)
        for _ in range(3):
            (await connect(address)).terminate()
        assert len(tried) == 1

        way.door.close()  # nobody else is there, so it is asked again, for a shorter time
        began = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable):
            await connect(address)
        assert len(tried) == 2
        assert asyncio.get_running_loop().time() - began < 0.9


async def test_connections_that_fell_silent_cost_one_wait_and_not_one_each(postgres: Postgres, schema: str) -> None:
    async with (
        way_to(postgres, f"schema={schema}&ttl=4") as way,
        opened(lambda: PostgresEngine(way.url), ONE) as engine,
    ):
        held = await taken(engine, ONE, "a")
        assert await engine.commit(ONE, held, [writes("a", {b"k": b"1"})])
        await asyncio.gather(*(engine.beat(ONE, 10) for _ in range(8)), *(engine.get("a", [b"k"]) for _ in range(8)))
        way.swallow()
        began = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await engine.beat(ONE, 10)
        took = asyncio.get_running_loop().time() - began
        async with asyncio.timeout(took):
            assert await engine.beat(ONE, 10) and await engine.slots()
            assert await engine.commit(ONE, later(held), [writes("a", {b"k": b"2"})])
            assert await engine.get("a", [b"k"]) == {b"k": b"2"}


@pytest.mark.parametrize(("ttl_s", "rows_s", "life_s"), [(2.5, 3.75, 2.0), (10.0, 7.5, 4.0), (600.0, 12.5, 10.0)])
def test_a_silent_connection_holds_up_a_host_for_less_than_its_lease(
    ttl_s: float, rows_s: float, life_s: float
) -> None:
    timing = Timing.of(ttl_s)
    rows, life = limits_for_rows(timing), limits_for_life(timing)

    assert [rows.silence_s, life.silence_s] == pytest.approx([rows_s, life_s])
    assert rows.statement_s < rows.silence_s and life.statement_s < life.silence_s  # the server speaks first


@pytest.mark.parametrize(("connections", "shares"), [(4, (1, 1, 1)), (6, (1, 2, 2)), (9, (2, 3, 3)), (30, (2, 14, 13))])
def test_connections_are_shared_out(connections: int, shares: tuple[int, int, int]) -> None:
    assert shares_of(connections) == shares
    assert sum(shares) + 1 == connections


async def test_a_commit_waits_for_the_disk_whatever_the_servers_default_is(postgres: Postgres) -> None:
    assert postgres.sql("SHOW synchronous_commit") == "off"
    connection = await connect(read_url(postgres.url("postgres") + "&synchronous_commit=off"))
    try:
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
        assert await connection.fetchval("SHOW default_transaction_isolation") == "read committed"
    finally:
        connection.terminate()


# ---- Numbers of actors ---------------------------------------------------------------------------


class Drawn(Random):
    """Draws these numbers, and then as they come."""

    def __init__(self, *drawn: int) -> None:
        super().__init__(7)
        self.drawn = list(drawn)

    def getrandbits(self, k: int, /) -> int:
        return self.drawn.pop(0) if self.drawn else super().getrandbits(k)


def two_of_one_slot() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for n in range(10_000):
        if (other := seen.setdefault(slot_of(f"a{n}"), f"a{n}")) != f"a{n}":
            return other, f"a{n}"
    raise AssertionError


async def test_two_actors_never_share_a_number(postgres: Postgres, schema: str) -> None:
    one, two = two_of_one_slot()
    url = f"{postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url, random=Drawn(5, 5, 5, 6)), ONE) as engine:
        held = await taken(engine, ONE, one)
        assert await engine.commit(ONE, held, [writes(one, {b"k": b"1"})])
        assert await engine.commit(ONE, later(held), [writes(two, {b"k": b"2"}), writes(one, {b"l": b"1"})])

        assert await engine.scan_many(one, [(b"", b"\xff", 9)], 1 << 20, False) == [[(b"k", b"1"), (b"l", b"1")]]
        assert await engine.scan_many(two, [(b"", b"\xff", 9)], 1 << 20, False) == [[(b"k", b"2")]]


async def test_an_actor_that_another_host_made_meanwhile_is_found(postgres: Postgres, schema: str) -> None:
    url = f"{postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url), ONE) as engine, opened(lambda: PostgresEngine(url), TWO) as other:
        held = await taken(engine, ONE, "a")
        assert await engine.stored("a") == (False, None)
        await engine.release([held[0].slot], ONE)
        held = await taken(other, TWO, "a")
        assert await other.commit(TWO, held, [writes("a", {b"k": b"2"}, 5)])
        postgres.sql(f"UPDATE {schema}.slot SET owner = '{ONE}' WHERE slot = {held[0].slot}")

        assert await engine.commit(ONE, later(held), [writes("a", {b"l": b"1"}, 9)])

        assert await engine.get("a", [b"k", b"l"]) == {b"k": b"2", b"l": b"1"}
        assert await engine.stored("a") == (True, 9)


async def test_an_actor_that_an_older_store_does_not_know_is_made_again(postgres: Postgres, schema: str) -> None:
    url = f"{postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url), ONE) as engine:
        held = await taken(engine, ONE, "a")
        assert await engine.commit(ONE, held, [writes("a", {b"k": b"1"}, 5)])
        postgres.sql(f"DELETE FROM {schema}.actor; DELETE FROM {schema}.kv; UPDATE {schema}.slot SET seq = 0")
        assert await engine.commit(ONE, later(held), [writes("a", {b"l": b"1"})]) == set()
        rows = await engine.settle([held[0].slot])

        again = [Held(row.slot, row.epoch, row.seq) for row in rows]
        assert await engine.commit(ONE, again, [writes("a", {b"m": b"1"}, 8)])

        assert await engine.stored("a") == (True, 8)
        assert await engine.scan_many("a", [(b"", b"\xff", 9)], 1 << 20, False) == [[(b"m", b"1")]]


async def test_a_store_that_is_not_reached_is_named_without_its_password() -> None:
    engine = PostgresEngine("postgresql://app:geheim@127.0.0.1:1,127.0.0.1:2/jobs?connect_timeout=1")

    with pytest.raises(StoreUnavailable, match=r"postgresql://127\.0\.0\.1:1,127\.0\.0\.1:2/jobs") as refused:
        await engine.open()

    assert "geheim" not in str(refused.value) and isinstance(refused.value, StoreError)


async def test_what_is_under_way_when_the_store_is_closed_ends_with_an_error(postgres: Postgres, schema: str) -> None:
    url = f"{postgres.url('postgres')}&schema={schema}"
    async with opened(lambda: PostgresEngine(url), ONE) as engine:
        reads = [asyncio.ensure_future(engine.scan_many("a", [(b"", b"\xff", 9)], 9, False)) for _ in range(20)]
        await asyncio.sleep(0)

        await asyncio.gather(engine.close(), engine.close())

        await asyncio.wait(reads)
        assert {type(read.exception()) for read in reads} == {StoreClosed}
        with pytest.raises(StoreClosed):
            await engine.get("a", [b"k"])


async def test_a_server_that_says_nothing_does_not_use_up_the_time_of_the_next_one(
    postgres: Postgres, schema: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and nobody answers them
        port = silent.getsockname()[1]
        servers = f"host=127.0.0.1,{postgres.folder}&port={port},{postgres.port or 5432}&connect_timeout=1"
        url = f"postgresql://postgres@/postgres?{servers}&schema={schema}"
        async with asyncio.timeout(30), opened(lambda: PostgresEngine(url)) as one:
            assert await one.hosts() == []


async def test_each_server_that_was_tried_is_named_with_its_reason() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: ") as refused:
        await PostgresEngine("postgresql://127.0.0.1:1,127.0.0.1:2/jobs").open()

    assert "not reached" in str(refused.value)
