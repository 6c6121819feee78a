"""The SQLite engine: one file, WAL, synchronous=FULL, one writing connection, reads beside it (aiosqlite).

A transaction is one hop to the writer's thread, a batch of reads one hop to a reader's. One process owns the
file (`<file>.lock`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path

from tocsin.errors import StoreClosed, StoreError, StoreFull
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
from tocsin.storage.combiner import ActorWrites, Combiner
from tocsin.storage.handles import Handle, Handles
from tocsin.storage.lockfile import LockFile
from tocsin.storage.reserve import Reserve
from tocsin.storage.sqlite_errors import Unsettled, translate
from tocsin.storage.sqlite_file import Reader, Writer, connect
from tocsin.storage.sqlite_thread import Thread, whole

log = logging.getLogger("tocsin.storage")

WAKES_PER_PAGE = 10_000
CHECKPOINT_BYTES = 16 * 1024 * 1024
TRUNCATE_BYTES = 128 * 1024 * 1024
LOOK_EVERY = 64
"""Transactions between two looks at the WAL's size."""
FULL_LOOK_S = 1.0
"""Between two looks whether a full disk has space again."""
SETTLE_LOOK_S = 0.5
"""Between two looks what became of a commit that failed."""


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
        await self._provider.handles.close(self._handle)


class SQLiteProvider:
    """A `StoreProvider` on one file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()  # a link, or a later chdir, must not give one file two locks
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
        self.handles = Handles()
        self._upkeep: asyncio.Task[None] | None = None
        self._transactions = 0
        self._stopped: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @property
    def starts(self) -> int:
        return self._file.starts

    # ---- Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._lock.take()
        try:
            await whole(asyncio.create_task(self._open()))
        except BaseException:
            await whole(asyncio.create_task(self._close()))
            raise
        self._stopped, self._stopping = asyncio.Event(), None
        self.handles.open_all()
        if self.full:
            self._look_after()

    async def _open(self) -> None:
        self.full = False
        try:
            await self._writer.open(self._file.open)
        except StoreFull:
            if not await asyncio.to_thread(self._reserve.give_up):
                raise
            self._now_full()
            await self._writer.open(self._file.open)
        await self._turns.open(self._turn_reader.open)
        await self._views.open(self._view_reader.open)
        if not self.full:
            await asyncio.to_thread(self._reserve.make)

    async def stop(self) -> None:
        if self._stopped is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(self._stopped))
        await whole(self._stopping)

    async def _stop(self, stopped: asyncio.Event) -> None:
        await self.combiner.drain()
        self.handles.close_all()
        stopped.set()
        if self._upkeep is not None:
            await asyncio.wait([self._upkeep])
        await self._close()

    async def _close(self) -> None:
        async with AsyncExitStack() as last_first:
            last_first.callback(self._lock.release)
            for thread in (self._writer, self._turns, self._views):
                last_first.push_async_callback(thread.close)

    # ---- Handles and views -----------------------------------------------------------------------

    async def open(self, name: str, *, create: bool = True) -> OrderedStore:
        async with self.handles.renew(name) as handle:
            exists, wake_at = await self._turns.run(self._turn_reader.stored, name)
            if not create and not exists:
                raise KeyError(name)
        return SQLiteStore(SQLiteView(name, self._turns, self._turn_reader), self, handle, wake_at)

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
            await self._apply(group)
        except StoreFull:
            given_up = await asyncio.to_thread(self._reserve.give_up)
            self._now_full()
            self._look_after()
            if not given_up:
                raise
            await self._apply(group)
        self._transactions += 1
        if self._transactions % LOOK_EVERY == 0:
            self._look_after()

    async def _apply(self, group: Sequence[ActorWrites]) -> None:
        try:
            await self._writer.run_to_end(self._file.apply, group)
        except Unsettled as unsettled:
            if not await self._settled():
                raise translate(unsettled.error) from unsettled.error

    async def _settled(self) -> bool:
        """Whether the last transaction is in the file. Until that is known, nobody gets an answer: a commit never
        ends "maybe". Only a stop does not wait for a disk that may never come back."""
        told = False
        while True:
            try:
                return await self._writer.run_to_end(self._file.settle)
            except StoreError as error:
                if error.owner_lost or isinstance(error, StoreClosed):
                    raise
                if self._stopping is not None:
                    log.critical("%s: stopped before it was known whether the last commit happened", self.path)
                    raise
                if not told:
                    log.error("%s: a commit failed, and what became of it cannot be read yet: %s", self.path, error)
                told = True
            await asyncio.sleep(SETTLE_LOOK_S)

    def _now_full(self) -> None:
        if not self.full:
            log.error("the disk of %s is full: no new work is accepted until space is freed", self.path)
        self.full = True

    def _look_after(self) -> None:
        if self._stopped is not None and (self._upkeep is None or self._upkeep.done()):
            self._upkeep = asyncio.get_running_loop().create_task(self._keep_up(self._stopped))

    async def _keep_up(self, stopped: asyncio.Event) -> None:
        """In the background: bound the WAL, and set the reserve aside again once there is space."""
        await self._bound_wal()
        while self.full and not stopped.is_set():
            if await asyncio.to_thread(self._reserve.make):
                self.full = False
                log.warning("the disk of %s has space again", self.path)
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), FULL_LOOK_S)
            await self._bound_wal()

    async def _bound_wal(self) -> None:
        try:
            # On a full disk the WAL is moved whatever its size: its space then serves the next transactions.
            size = await asyncio.to_thread(checkpoint, self.path, 0 if self.full else CHECKPOINT_BYTES)
            if size >= TRUNCATE_BYTES:
                await self._writer.run(self._file.truncate_wal)
        except (sqlite3.Error, StoreError, OSError) as error:
            # The next look tries again; commits do not depend on it. That the disk is full was said before.
            level = logging.DEBUG if self.full else logging.WARNING
            log.log(level, "the WAL of %s could not be moved into the file: %r", self.path, error)


def checkpoint(path: Path, at_least: int) -> int:
    """Move a WAL of that size into the file, as far as readers let go of it, while commits go on; its size.
    On a thread of its own."""
    wal = path.with_name(path.name + "-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size >= max(at_least, 1):
        with closing(connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return size
