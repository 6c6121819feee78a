"""A process that may have no more threads for a while: what was refused then runs neither now nor later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.dispatch.receiver.signed_callbacks import ReceiverFixture
from tocsin import RetryLater, SQLiteDedup
from tocsin.actors.outbox.databases import SQLiteDatabase
from tocsin.actors.outbox.statements import Statement
from tocsin.dispatch.receiver.dedup import Claim, Found
from tocsin.dispatch.worker.handlers import in_thread
from tocsin.errors import StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio


@contextmanager
def no_thread_left() -> Iterator[None]:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        yield


async def test_a_handler_without_a_thread_is_called_later_uncharged_and_once() -> None:
    fixture, ran = ReceiverFixture(), list[Any]()
    fixture.receiver.register({"invoices:send": ran.append})
    with no_thread_left():
        refused = await fixture.send("first")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert b"can't start new thread" in refused.body

    assert (await fixture.send("second")).status == 200
    await fixture.receiver.aclose()
    assert ran == ["second"]


async def test_a_worker_s_handler_without_a_thread_waits_for_its_turn() -> None:
    ran: list[Any] = []
    with ThreadPoolExecutor(1) as threads:
        with no_thread_left(), pytest.raises(RetryLater, match="no thread can be had"):
            await in_thread(threads, ran.append, ("first",))
        await in_thread(threads, ran.append, ("second",))
    assert ran == ["second"]


async def test_a_function_that_waits_for_a_thread_of_its_pool_ends_with_the_pool() -> None:
    entered, go, ran = threading.Event(), threading.Event(), list[Any]()
    threads = ThreadPoolExecutor(1)

    def busy() -> None:
        entered.set()
        go.wait()

    first = asyncio.create_task(in_thread(threads, busy, ()))
    await asyncio.to_thread(entered.wait, 5)
    second = asyncio.create_task(in_thread(threads, ran.append, ("second",)))
    await asyncio.sleep(0)
    threads.shutdown(wait=False, cancel_futures=True)
    go.set()
    async with asyncio.timeout(5):
        ended = await asyncio.gather(first, second, return_exceptions=True)
    assert (ended[0], type(ended[1]), ran) == (None, asyncio.CancelledError, [])


async def test_a_claim_that_found_no_thread_is_not_taken_later(tmp_path: Path) -> None:
    dedup = SQLiteDedup(tmp_path / "dedup.db")
    with no_thread_left():
        for n in range(3):
            with pytest.raises(StoreUnavailable, match=r"dedup\.db cannot be used: can't start new thread"):
                await dedup.claim(Claim("a:1", f"1.{n}.x", 0, 60_000), now_ms=0)
    assert await dedup.claim(Claim("b:1", "1.8.x", 0, 60_000), now_ms=0) is Found.NEW
    assert await dedup.claim(Claim("a:1", "1.9.x", 0, 60_000), now_ms=0) is Found.NEW
    await dedup.aclose()


async def test_a_dedup_store_that_never_had_a_thread_can_be_closed_and_opened(tmp_path: Path) -> None:
    dedup = SQLiteDedup(tmp_path / "dedup.db")
    with no_thread_left():
        with pytest.raises(StoreUnavailable):
            await dedup.claim(Claim("a:1", "1.1.x", 0, 60_000), now_ms=0)
        await dedup.aclose()
    dedup.reopen()
    assert await dedup.claim(Claim("a:1", "1.2.x", 0, 60_000), now_ms=0) is Found.NEW
    await dedup.aclose()


async def test_a_store_stops_in_order_without_another_thread(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    provider = SQLiteProvider(path)
    await provider.start()
    await (await provider.open("a")).commit(Batch(puts={b"1": b"v"}))
    with no_thread_left():
        await provider.stop()

    assert not path.with_name("store.db-wal").exists()
    again = SQLiteProvider(path)
    await again.start()
    assert await again.view("a").get([b"1"]) == {b"1": b"v"}
    await again.stop()


async def test_statements_of_an_outbox_that_found_no_thread_are_not_run_later(tmp_path: Path) -> None:
    database = SQLiteDatabase(tmp_path / "app.db")
    await database.run([Statement("CREATE TABLE t (n INTEGER)", {})])
    await database.aclose()
    database = SQLiteDatabase(tmp_path / "app.db")
    with no_thread_left(), pytest.raises(RuntimeError, match="can't start new thread"):
        await database.run([Statement("INSERT INTO t VALUES (1)", {})])
    assert await database.run([Statement("SELECT n FROM t", {})]) == [[]]
    await database.aclose()
