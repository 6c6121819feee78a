"""Snapshots of a store in PostgreSQL: one instant, beside hosts that go on."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.postgres import Postgres
from tocsin import ActorHost
from tocsin.actors.scheduler.integrity.check import check_store, integrity
from tocsin.errors import StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.postgres.provider import PostgresProvider
from tocsin.storage.postgres.snapshot import PostgresLook, has_store
from tocsin.storage.snapshot import LiveStore


@pytest.fixture
def url(postgres: Postgres) -> str:
    return f"{postgres.url('postgres')}&schema=e{uuid4().hex[:12]}"


async def fill(url: str) -> None:
    async with ActorHost.open(url) as host:
        for name in ("one", "two", "three"):
            await host.scheduler(name).run_after("1h", "w:r", {"of": name}, queue="q")


@pytest.mark.anyio
async def test_a_snapshot_is_one_instant_and_holds_up_no_writer(url: str) -> None:
    provider = PostgresProvider(url)
    assert isinstance(provider, LiveStore)
    await provider.start()
    try:
        store = await provider.open("scheduler/a")
        await store.commit(Batch({b"k": b"before", b"gone": b""}, wake_at=5))
        with provider.live() as snapshot:
            assert snapshot.names("", 10) == ["scheduler/a"]
            await store.commit(Batch({b"k": b"after"}, {b"gone"}, wake_at=6))
            other = await provider.open("scheduler/b")
            await other.commit(Batch({b"k": b"v"}))

            view = snapshot.view("scheduler/a")
            assert await view.get([b"k", b"gone", b"never"]) == {b"k": b"before", b"gone": b""}
            assert await view.scan(b"\x00", b"\xff", limit=9) == [(b"gone", b""), (b"k", b"before")]
            assert await view.scan(b"\x00", b"\xff", limit=1, reverse=True) == [(b"k", b"before")]
            assert await snapshot.view("scheduler/b").scan(b"\x00", b"\xff", limit=9) == []
            assert (snapshot.wake_at("scheduler/a"), snapshot.wake_at("scheduler/b")) == (5, None)
            assert snapshot.names("scheduler/a", 10) == []
            lineage = snapshot.lineage()
        with provider.live() as snapshot:
            assert snapshot.names("", 10) == ["scheduler/a", "scheduler/b"]
            assert snapshot.lineage() == lineage != ""
    finally:
        await provider.stop()


@pytest.mark.anyio
async def test_a_store_is_checked_and_exported_while_it_is_in_use(url: str, tmp_path: Path) -> None:
    async with ActorHost.open(url) as host:
        await host.scheduler("one").run_after("1h", "w:r", queue="q")
        look = PostgresLook(url)
        assert integrity(look) == []
        assert [(one.name, one.findings.total) async for one in check_store(look)] == [("one", 0)]
        look.close()
        assert (await host.export_instance("one", tmp_path / "one.jsonl")).jobs == 1
        assert (await host.import_instance("copy", tmp_path / "one.jsonl")).jobs == 1


@pytest.mark.anyio
async def test_rows_of_nobody_and_actors_in_a_wrong_slot_are_found(url: str, postgres: Postgres) -> None:
    await fill(url)
    schema = url.rpartition("=")[2]
    postgres.sql(f"INSERT INTO {schema}.kv VALUES (7, '\\x01', '')")
    postgres.sql(f"UPDATE {schema}.actor SET actor = actor % (1::int8 << 40) WHERE name = 'scheduler/one'")

    found = "\n".join(integrity(PostgresLook(url)))

    assert "actor number 7 has 1 rows, and there is no such actor" in found
    assert "scheduler/one lies in slot 0, and belongs to slot" in found


@pytest.mark.anyio
async def test_a_look_makes_no_store_and_says_that_there_is_none(url: str) -> None:
    assert not await has_store(url)
    with pytest.raises(StoreUnavailable, match="there is no store at"), PostgresLook(url).snapshot():
        pass
    assert not await has_store(url)
