"""A COMMIT that fails never ends in "maybe": what became of it is settled before anybody hears of it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tocsin.errors import StoreFull, StoreUnavailable
from tocsin.storage.api import Batch
from tocsin.storage.sqlite import provider as engine
from tocsin.storage.sqlite.provider import SQLiteProvider

pytestmark = pytest.mark.anyio


def fault(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as the test wanted")
    error.sqlite_errorcode = code
    return error


class Failing:
    """A connection that calls `before` and `after` around each statement."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.before: Callable[[str], None] = lambda sql: None
        self.after: Callable[[str], None] = lambda sql: None
        self.seen: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *arguments: Any) -> Any:
        self.before(sql)
        answer = self._connection.execute(sql, *arguments)
        self.seen.append(sql.split()[0])
        self.after(sql)
        return answer


class Once:
    """Fails the next `times` statements that begin with `word`."""

    def __init__(self, word: str, code: int, times: int = 1) -> None:
        self._word, self._code, self._left = word, code, times

    def __call__(self, sql: str) -> None:
        if sql.startswith(self._word) and self._left:
            self._left -= 1
            raise fault(self._code)


@asynccontextmanager
async def failing(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SQLiteProvider, Failing]]:
    monkeypatch.setattr(engine, "SETTLE_LOOK_S", 0.001)
    provider = SQLiteProvider(path / "store.db")
    await provider.start()
    connection = provider._file._db = Failing(provider._file._db)  # type: ignore[assignment]
    try:
        yield provider, connection
    finally:
        await provider.stop()


async def rows(provider: SQLiteProvider) -> list[tuple[bytes, bytes]]:
    return await provider.view("a").scan(b"\x00", b"\xff", limit=100)


async def test_a_commit_whose_sync_failed_is_overwritten_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frames are whole in the WAL: a crash later would bring it back."""
    async with failing(tmp_path, monkeypatch) as (provider, connection):
        store = await provider.open("a")
        await store.commit(Batch({b"k": b"1"}))
        connection.before = Once("COMMIT", sqlite3.SQLITE_IOERR_FSYNC)
        with pytest.raises(StoreUnavailable):
            await store.commit(Batch({b"k": b"2"}))

        assert connection.seen[-4:] == ["BEGIN", "SELECT", "UPDATE", "COMMIT"]
        await (await provider.open("a")).commit(Batch({b"l": b"3"}))
        assert await rows(provider) == [(b"k", b"1"), (b"l", b"3")]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_commit_that_happened_all_the_same_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Also if the same befalls the settling."""
    async with failing(tmp_path, monkeypatch) as (provider, connection):
        store = await provider.open("a")
        connection.after = Once("COMMIT", sqlite3.SQLITE_IOERR_FSYNC, times)
        await store.commit(Batch({b"k": b"1"}))
        await store.commit(Batch({b"l": b"2"}))

        assert await rows(provider) == [(b"k", b"1"), (b"l", b"2")]


@pytest.mark.parametrize("happened", [False, True])
async def test_nobody_gets_an_answer_until_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    async with failing(tmp_path, monkeypatch) as (provider, connection):
        store, other = await provider.open("a"), await provider.open("other")
        asked, may_answer = threading.Event(), threading.Event()
        once = Once("COMMIT", sqlite3.SQLITE_IOERR_FSYNC)

        def unreadable(sql: str) -> None:
            if not happened:
                once(sql)
            if sql.startswith("SELECT v") and not may_answer.is_set():
                asked.set()
                raise fault(sqlite3.SQLITE_IOERR_READ)

        connection.before = unreadable
        if happened:
            connection.after = once
        commit = store.commit(Batch({b"k": b"1"}))
        await asyncio.to_thread(asked.wait, 10)
        behind = other.commit(Batch({b"k": b"1"}))
        asked.clear()
        await asyncio.to_thread(asked.wait, 10)
        assert not commit.done() and not behind.done()
        may_answer.set()
        await asyncio.wait([commit, behind])

        assert ((commit.exception() is None), bool(await rows(provider))) == (happened, happened)
        assert behind.exception() is None


async def test_a_commit_that_certainly_left_nothing_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with failing(tmp_path, monkeypatch) as (provider, connection):
        store = await provider.open("a")
        connection.before = Once("COMMIT", sqlite3.SQLITE_FULL, times=2)  # again, once the reserve is given up
        with pytest.raises(StoreFull):
            await store.commit(Batch({b"k": b"1"}))

        assert [sql for sql in connection.seen if sql != "PRAGMA"][-1] == "ROLLBACK", (
            "a log that is moved changes nothing"
        )
        assert await rows(provider) == []


@pytest.mark.parametrize("code", [None, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_READONLY])
async def test_a_writer_that_is_cancelled_still_tells_what_became_of_its_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    async with failing(tmp_path, monkeypatch) as (provider, connection):
        store = await provider.open("a")
        writing, go_on = threading.Event(), threading.Event()

        def hold(sql: str) -> None:
            if sql == "COMMIT" and not writing.is_set():
                writing.set()
                go_on.wait(10)
                if code is not None:
                    raise fault(code)

        connection.before = hold
        commit = store.commit(Batch({b"k": b"1"}))
        await asyncio.to_thread(writing.wait, 10)
        for _ in range(3):
            assert provider.combiner._task is not None and provider.combiner._task.cancel()
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([commit])

        assert type(commit.exception()) is (type(None) if code is None else StoreUnavailable)
        assert await rows(provider) == ([(b"k", b"1")] if code is None else [])
