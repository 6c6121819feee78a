"""The connection that a host keeps for itself: its lock, its hints, and what becomes of them when it breaks."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from tests.postgres import Postgres
from tests.storage.postgres.cutting import way_to
from tests.storage.shared_places import LONG_S, ONE, TWO, opened, until
from tocsin.storage.ownership.engine import HostRow, SharedEngine
from tocsin.storage.postgres.engine import PostgresEngine

pytestmark = pytest.mark.anyio

LOCK = 7_123_456_789_012_345_678  # both halves of it are told to the server


@pytest.fixture
def engine_url(each_postgres: Postgres) -> str:
    return f"{each_postgres.url('postgres')}&schema=s{uuid4().hex[:12]}&application_name={uuid4().hex}"


def end_sessions(server: Postgres, url: str) -> None:
    """End the connections of a URL that hold a lock."""
    name = url.rpartition("=")[2]
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid) "
        f"WHERE application_name = '{name}' AND locktype = 'advisory'"
    )


async def gone(engine: SharedEngine, host: str) -> bool:
    return next(row.session_gone for row in await engine.hosts() if row.host == host)


async def test_a_session_that_is_cut_is_there_again_with_its_lock_and_its_hints(
    each_postgres: Postgres, engine_url: str
) -> None:
    async with (
        opened(lambda: PostgresEngine(engine_url)) as engine,
        opened(lambda: PostgresEngine(engine_url)) as other,
    ):
        await engine.register(HostRow(ONE, "one", session=LOCK), LONG_S)
        lost: list[float] = []

        async def notice() -> None:
            while not lost:
                if (at := engine.session_lost_at) is not None:
                    lost.append(at)
                await asyncio.sleep(0)

        async with asyncio.timeout(10):
            noticing = asyncio.create_task(notice())
            end_sessions(each_postgres, engine_url)
            await noticing
        before = asyncio.get_running_loop().time()
        assert before - 10 < lost[0] <= before

        async def back() -> bool:
            return engine.session_lost_at is None

        assert await until(back)
        assert not await gone(other, ONE) and not await other.reap_without_session(ONE)
        hints = engine.hints()
        async with asyncio.timeout(10):
            await anext(hints)  # some may have been missed
            await other.hint([ONE])
            await anext(hints)


async def test_a_session_is_had_again_at_once_although_the_server_believes_in_the_earlier_connection(
    each_postgres: Postgres,
) -> None:
    query = f"schema=s{uuid4().hex[:12]}"
    async with (
        way_to(each_postgres, query) as way,
        opened(lambda: PostgresEngine(way.url)) as engine,
        opened(lambda: PostgresEngine(f"{each_postgres.url('postgres')}&{query}")) as other,
    ):
        await engine.register(HostRow(ONE, "one", session=LOCK), LONG_S)
        held_at = engine.session_held_at
        assert held_at <= asyncio.get_running_loop().time()
        way.cut()

        async def again() -> bool:
            return engine.session_held_at > held_at

        async with asyncio.timeout(5):
            assert await until(again)
        assert engine.session_lost_at is None
        assert not await gone(other, ONE)


async def test_the_lock_of_one_start_is_let_go_of_when_the_process_starts_again_as_another_host(
    engine_url: str,
) -> None:
    async with (
        opened(lambda: PostgresEngine(engine_url)) as engine,
        opened(lambda: PostgresEngine(engine_url)) as other,
    ):
        await engine.register(HostRow(ONE, "one", session=LOCK), LONG_S)
        await engine.register(HostRow(TWO, "two", session=LOCK - 1), LONG_S)

        assert engine.session_lost_at is None

        async def first_is_gone() -> bool:
            return await gone(other, ONE)

        assert await until(first_is_gone)
        assert not await gone(other, TWO)


async def test_two_stores_in_one_database_give_each_other_no_hints(each_postgres: Postgres) -> None:
    here, there = (f"{each_postgres.url('postgres')}&schema=s{uuid4().hex[:12]}" for _ in range(2))
    async with opened(lambda: PostgresEngine(here), ONE) as engine, opened(lambda: PostgresEngine(there), ONE) as other:
        heard = [anext(one.hints()) for one in (engine, engine, other)]
        await heard[0]  # of the start
        waiting = asyncio.ensure_future(heard[1])
        await heard[2]
        await other.hint([ONE])
        await other.hint([])
        await asyncio.wait_for(anext(other.hints()), 10)
        assert not waiting.done()

        await engine.hint([])

        await asyncio.wait_for(waiting, 10)
