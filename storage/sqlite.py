"""The SQLite engine: one file, WAL, synchronous=FULL, one writing connection, reads beside it (aiosqlite).

A transaction is one hop to the writer's thread, a batch of reads one hop to a reader's. One process owns the
file (`<file>.lock`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import aiosqlite

from tocsin.errors import StoreClosed, StoreFull
from tocsin.storage.api import (
    MAX_SCAN_BYTES,
    Batch,
    Capabilities,
    Event,
    Grant,
    OrderedStore,
    Owned,
    Range,
    Row,
    StoreStats,
    StoreView,
)
from tocsin.storage.combiner import ActorWrites, Combiner, Handle
from tocsin.storage.lockfile import LockFile
from tocsin.storage.reserve import Reserve
from tocsin.storage.sqlite_errors import translate
from tocsin.storage.sqlite_file import Reader, Writer, connect

log = logging.getLogger("tocsin.storage")

T = TypeVar("T")
WAKES_PER_PAGE = 10_000
CHECKPOINT_BYTES = 16 * 1024 * 1024
TRUNCATE_BYTES = 128 * 1024 * 1024
LOOK_EVERY = 64
"""Transactions between two looks at the WAL's size and the reserve."""


class Thread:
    """One connection on its own thread. The only place that uses aiosqlite's inside: a whole transaction must
    be one hop, and its public methods are one hop per statement."""

    def __init__(self) -> None:
        self._connection: aiosqlite.Connection | None = None

    async def open(self, connector: Callable[[], sqlite3.Connection]) -> None:
        connection = aiosqlite.Connection(connector, iter_chunk_size=64)
        try:
            self._connection = await connection
        except sqlite3.Error as error:
            raise translate(error) from error

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """A caller that is cancelled does not interrupt the function: it is on the thread already."""
        if self._connection is None:
            raise StoreClosed("the store is not open")
        try:
            answer: T = await self._connection._execute(function, *args)  # type: ignore[no-untyped-call]
        except sqlite3.Error as error:
            raise translate(error) from error
        return answer

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class SQLiteView:
    """Committed state of one actor, read on a given thread."""

    def __init__(self, name: str, thread: Thread, reader: Reader) -> None:
        self.name = name
        self._thread, self._reader = thread, reader

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._thread.run(self._reader.get, self.name, keys)

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        return await self._thread.run(self._reader.scan_many, self.name, ranges, max_bytes, reverse)

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False, max_bytes: int = MAX_SCAN_BYTES
    ) -> list[Row]:
        return (await self.scan_many([(start, end, limit)], max_bytes=max_bytes, reverse=reverse))[0]


class SQLiteStore(SQLiteView):
    """The writing handle of one actor."""

    def __init__(self, view: SQLiteView, provider: SQLiteProvider, handle: Handle, wake_at: int | None) -> None:
        super().__init__(view.name, view._thread, view._reader)
        self.grant = Grant(provider.owner, provider.starts)
        self.wake_at = wake_at
        self._provider, self._handle = provider, handle

    def commit(self, batch: Batch) -> asyncio.Future[None]:
        return self._provider.combiner.submit(self._handle, batch)

    async def close(self) -> None:
        await self._provider.close(self._handle)


class SQLiteProvider:
    """A `StoreProvider` on one file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.capabilities = Capabilities(durable=True, shared=False)
        self.owner = os.urandom(12).hex()
        self.full = False
        self.combiner = Combiner(self._write, self.capabilities)
        self._lock = LockFile(self._beside(".lock"))
        self._reserve = Reserve(self._beside(".reserve"))
        self._writer, self._turns, self._views = Thread(), Thread(), Thread()
        self._file, self._turn_reader, self._view_reader = (
            Writer(self.path),
            Reader(self.path),
            Reader(self.path),
        )
        self._handles: dict[str, Handle] = {}
        self._upkeep: asyncio.Task[None] | None = None
        self._transactions = 0
        self._stopped: asyncio.Event | None = None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @property
    def starts(self) -> int:
        return self._file.starts

    # ---- Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._lock.take()
        try:
            await self._writer.open(self._file.open)
            await self._turns.open(self._turn_reader.open)
            await self._views.open(self._view_reader.open)
            await asyncio.to_thread(self._reserve.make)
        except BaseException:
            await self._close_threads()
            raise
        self._stopped = asyncio.Event()

    async def stop(self) -> None:
        if self._stopped is None or self._stopped.is_set():
            return
        await self.combiner.drain()
        for handle in self._handles.values():
            handle.closed = True
        self._stopped.set()
        if self._upkeep is not None:
            await asyncio.wait([self._upkeep])
        await self._close_threads()

    async def _close_threads(self) -> None:
        try:
            for thread in (self._views, self._turns, self._writer):
                await thread.close()
        finally:
            self._lock.release()

    # ---- Handles and views -----------------------------------------------------------------------

    async def open(self, name: str, *, create: bool = True) -> OrderedStore:
        if (earlier := self._handles.get(name)) is not None:
            await self.close(earlier)
        if not create and not await self.exists(name):
            raise KeyError(name)
        wake_at = await self._turns.run(self._turn_reader.wake, name)
        handle = self._handles[name] = Handle(name)
        return SQLiteStore(SQLiteView(name, self._turns, self._turn_reader), self, handle, wake_at)

    async def close(self, handle: Handle) -> None:
        handle.closed = True
        await self.combiner.settle(handle)
        if self._handles.get(handle.name) is handle:
            del self._handles[handle.name]

    def view(self, name: str) -> StoreView:
        return SQLiteView(name, self._views, self._view_reader)

    async def exists(self, name: str) -> bool:
        return await self._views.run(self._view_reader.id, name) is not None

    async def events(self) -> AsyncIterator[Event]:
        if self._stopped is None:
            raise StoreClosed("the store is not open")
        last = 0
        while rows := await self._views.run(self._view_reader.wakes, last, WAKES_PER_PAGE):
            last = rows[-1][0]
            yield Owned([(name, wake_at) for _, name, wake_at in rows])
        await self._stopped.wait()

    async def names(self, start: str, limit: int) -> list[str]:
        return await self._views.run(self._view_reader.names, start, limit)

    def stats(self) -> StoreStats:
        return self.combiner.stats()

    # ---- Writing ---------------------------------------------------------------------------------

    async def _write(self, group: Sequence[ActorWrites]) -> None:
        try:
            await self._writer.run(self._file.apply, group)
        except StoreFull:
            given_up = await asyncio.to_thread(self._reserve.give_up)
            if not self.full:
                log.error("the disk of %s is full: no new work is accepted until space is freed", self.path)
            self.full = True
            self._look_after()
            if not given_up:
                raise
            await self._writer.run(self._file.apply, group)
        self._transactions += 1
        if self._transactions % LOOK_EVERY == 0:
            self._look_after()

    def _look_after(self) -> None:
        if self._upkeep is None or self._upkeep.done():
            self._upkeep = asyncio.get_running_loop().create_task(self._keep_up())

    async def _keep_up(self) -> None:
        """In the background: bound the WAL, and set the reserve aside again once there is space."""
        assert self._stopped is not None
        try:
            await asyncio.to_thread(checkpoint, self.path)
            while self.full and not self._stopped.is_set():
                if await asyncio.to_thread(self._reserve.make):
                    self.full = False
                    log.warning("the disk of %s has space again", self.path)
                    return
                async with asyncio.timeout(1.0):
                    await self._stopped.wait()
        except TimeoutError:
            self._upkeep = None
            self._look_after()
        except (sqlite3.Error, OSError) as error:
            # The next look tries again; commits do not depend on it.
            log.warning("upkeep of %s failed: %r", self.path, error)


def checkpoint(path: Path) -> None:
    """Move the WAL into the file when it has grown; cut it down when it is large. On a thread of its own."""
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size < CHECKPOINT_BYTES:
        return
    connection = connect(path)
    try:
        connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if size >= TRUNCATE_BYTES else 'PASSIVE'})")
    finally:
        connection.close()
