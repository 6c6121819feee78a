"""Reads whose callers have left are broken off, or never begun: nobody waits for what nobody wants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tocsin.storage.api import Batch
from tocsin.storage.sqlite import reader as sqlite_reader
from tocsin.storage.sqlite.provider import SQLiteProvider
from tocsin.storage.sqlite.reader import STEPS_BETWEEN_LOOKS, Reading

pytestmark = pytest.mark.anyio

LONG = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200000000) SELECT max(x) FROM n"
"""Far longer than these tests wait; but it ends, so that a test that fails ends, too."""
PATIENCE_S = 10.0


@pytest.fixture(params=[1, STEPS_BETWEEN_LOOKS])
async def provider(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SQLiteProvider]:
    """Also one that looks at every step, so that it may break off anything: the end of a snapshot, too."""
    monkeypatch.setattr(sqlite_reader, "STEPS_BETWEEN_LOOKS", request.param)
    store = SQLiteProvider(tmp_path / "s.db")
    await store.start()
    opened = await store.open("a")
    await opened.commit(Batch({b"k%04d" % n: b"v" for n in range(2_000)}))
    yield store
    async with asyncio.timeout(PATIENCE_S):  # a reader that is busy for ever would never end
        await store.stop()


class Long:
    """A read that goes on until it is broken off."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.began = threading.Event()
        self.ended = threading.Event()

    def _run(self) -> None:
        self.began.set()
        try:
            self._reading.reader._db.execute(LONG).fetchone()
        finally:
            self.ended.set()

    async def under_way(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._reading.run(self._run))
        assert await asyncio.to_thread(self.began.wait, PATIENCE_S)
        return task


async def leave(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_next_read_does_not_wait_for_one_that_nobody_wants_any_more(provider: SQLiteProvider) -> None:
    long = Long(provider._views)
    task = await long.under_way()
    waiting = asyncio.create_task(provider.view("a").scan(b"k", b"l", limit=5_000))
    await leave(task)
    async with asyncio.timeout(PATIENCE_S):
        assert len(await waiting) == 2_000
    assert long.ended.is_set()
    assert provider.trouble is None


async def test_a_connection_whose_reads_were_broken_off_serves_on(provider: SQLiteProvider) -> None:
    view = provider.view("a")
    for n in range(20):
        task = await Long(provider._views).under_way()
        await leave(task)
        async with asyncio.timeout(PATIENCE_S):
            assert await view.get([b"k%04d" % n]) == {b"k%04d" % n: b"v"}
    opened = await provider.open("b")
    await opened.commit(Batch({b"new": b"1"}))
    assert await provider.view("b").get([b"new"]) == {b"new": b"1"}  # no snapshot was left open


async def test_reads_that_were_left_before_their_turn_are_never_begun(provider: SQLiteProvider) -> None:
    begun: list[int] = []
    task = await Long(provider._views).under_way()
    queued = [asyncio.create_task(provider._views.run(begun.append, n)) for n in range(5)]
    await asyncio.sleep(0)
    for one in queued[1:]:
        await leave(one)
    await leave(task)
    async with asyncio.timeout(PATIENCE_S):
        await queued[0]
        await provider.view("a").get([b"k0001"])
    assert begun == [0]


async def test_a_read_in_the_middle_of_a_scan_leaves_no_open_snapshot(provider: SQLiteProvider) -> None:
    """A scan of many ranges, left again and again at other moments; then the log of the store can begin anew."""
    view = provider.view("a")
    ranges = [(b"k", b"l", 2_000)] * 400
    for n in range(20):
        task = asyncio.create_task(view.scan_many(ranges, max_bytes=2**40))
        for _ in range(n):
            await asyncio.sleep(0.0005)
        task.cancel()
        await asyncio.wait([task])
    async with asyncio.timeout(PATIENCE_S):
        assert len(await view.scan(b"k", b"l", limit=5_000)) == 2_000
    assert not await provider._views.run(lambda: provider._views.reader._db.in_transaction)
