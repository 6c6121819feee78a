"""A disk that fills up: the reserve is given up once, nothing accepted is lost, and all recovers by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage.disks import SmallDisk, small_disk
from tocsin.errors import StoreFull
from tocsin.storage.api import Batch
from tocsin.storage.sqlite import upkeep as sqlite_upkeep
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.reserve import RESERVE_BYTES

pytestmark = pytest.mark.anyio

VALUE = b"v" * 60_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "small") as disk:
        yield disk


async def fill_with_rows(provider: SQLiteProvider, name: str) -> dict[bytes, bytes]:
    """Commit until the store is full; what was accepted."""
    store = await provider.open(name)
    accepted: dict[bytes, bytes] = {}
    while True:
        key = b"%06d" % len(accepted)
        try:
            await store.commit(Batch(puts={key: VALUE}))
        except StoreFull as error:
            assert error.retryable
            return accepted
        accepted[key] = VALUE


async def stored(provider: SQLiteProvider, name: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    start = b"0"
    while page := await provider.view(name).scan(start, b":", limit=10_000):
        found.update(page)
        start = page[-1][0] + b"\x00"
    return found


async def has_space_again(provider: SQLiteProvider) -> None:
    assert provider._upkeep._task is not None
    async with asyncio.timeout(10):
        await asyncio.wait([provider._upkeep._task])
    assert not provider.full


async def test_what_was_accepted_survives_a_full_disk_and_the_store_recovers(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tocsin.storage")
    monkeypatch.setattr(sqlite_upkeep, "LOOK_S", 0.05)
    provider = SQLiteProvider(disk.folder / "store.db")
    reserve = disk.folder / "store.db.reserve"
    await provider.start()
    assert (provider.full, reserve.stat().st_size) == (False, RESERVE_BYTES)
    first = await provider.open("first")
    await first.commit(Batch(puts={b"k": VALUE}))
    disk.fill()

    for n in range(20):  # the reserve takes these, whoever they are of
        await first.commit(Batch(puts={b"%d" % n: VALUE}))
    assert (provider.full, reserve.exists()) == (True, False)

    accepted = await fill_with_rows(provider, "a")
    assert 10 < len(accepted) * len(VALUE) < RESERVE_BYTES * 2
    assert await stored(provider, "a") == accepted
    assert not reserve.exists(), "given up once"

    disk.free()
    await has_space_again(provider)
    assert reserve.stat().st_size == RESERVE_BYTES
    store = await provider.open("a")
    await store.commit(Batch(puts={b"999": b"again"}))
    await provider.stop()
    assert [record.levelname for record in caplog.records if "no new work" in record.message] == ["ERROR"]
    assert [record.levelname for record in caplog.records if "space again" in record.message] == ["WARNING"]

    provider = SQLiteProvider(disk.folder / "store.db")
    await provider.start()
    assert await stored(provider, "a") == accepted | {b"999": b"again"}
    await provider.stop()


async def commit_at_last(provider: SQLiteProvider, batch: Batch) -> None:
    """As the runtime does: an actor whose commit failed is opened anew, and tries again."""
    while True:
        store = await provider.open("a")
        try:
            await store.commit(batch)
            return
        except StoreFull:
            await asyncio.sleep(0.01)


async def test_work_ends_on_a_full_disk_however_long_it_lasts(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The WAL is moved into the file, so that its space serves again: far more is written than the reserve holds."""
    monkeypatch.setattr(sqlite_upkeep, "LOOK_S", 0.01)
    provider = SQLiteProvider(disk.folder / "store.db")
    await provider.start()
    store = await provider.open("a")
    await store.commit(Batch(puts={b"%d" % n: VALUE for n in range(10)}))
    disk.fill()
    async with asyncio.timeout(20):
        for n in range(4 * RESERVE_BYTES // len(VALUE)):
            await commit_at_last(provider, Batch(puts={b"%d" % (n % 10): VALUE}))
            disk.fill()
        await commit_at_last(provider, Batch(deletes={b"%d" % n for n in range(10)}))

    assert provider.full
    assert await stored(provider, "a") == {}
    await provider.stop()


async def test_a_store_starts_on_a_full_disk_with_the_help_of_its_reserve(disk: SmallDisk) -> None:
    provider = SQLiteProvider(disk.folder / "store.db")
    await provider.start()
    await (await provider.open("a")).commit(Batch(puts={b"k": b"1"}))
    await provider.stop()
    disk.fill()

    provider = SQLiteProvider(disk.folder / "store.db")
    await provider.start()
    assert provider.full
    await (await provider.open("a")).commit(Batch(puts={b"k": b"2"}))
    disk.free()
    await has_space_again(provider)
    assert await provider.view("a").get([b"k"]) == {b"k": b"2"}
    await provider.stop()


async def test_a_store_that_cannot_even_start_says_that_the_disk_is_full(disk: SmallDisk) -> None:
    disk.fill()
    for _ in range(2):
        with pytest.raises(StoreFull, match="no space is left"):
            await SQLiteProvider(disk.folder / "store.db").start()
    disk.free()
    provider = SQLiteProvider(disk.folder / "store.db")
    await provider.start()
    await provider.stop()


async def test_a_file_at_its_limit_gives_up_the_reserve_once(tmp_path: Path) -> None:
    """Where no disk can be mounted: SQLite's own limit of pages says the same as a full disk."""
    provider = SQLiteProvider(tmp_path / "store.db")
    await provider.start()
    await provider._writer.run(provider._file._db.execute, "PRAGMA max_page_count = 100")
    accepted = await fill_with_rows(provider, "a")

    assert accepted
    assert await stored(provider, "a") == accepted
    assert (await provider.open("b")).wake_at is None
    with pytest.raises(StoreFull):
        await (await provider.open("b")).commit(Batch(puts={b"k": VALUE}))
    await (await provider.open("a")).commit(Batch(deletes={b"000000"}))
    await provider.stop()
