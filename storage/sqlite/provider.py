"""The SQLite engine: one file, WAL, synchronous=FULL, one writing connection, reads beside it (aiosqlite).

A transaction is one hop to the writer's thread, a batch of reads one hop to a reader's. One process owns the
file (`<file>.lock`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Generic, TypeVar, cast
from weakref import WeakSet

from tocsin.errors import StoreClosed, StoreError, StoreFull, StoreUnavailable
from tocsin.storage.api import Capabilities, Event, Grant, OrderedStore, Owned, StoreStats, StoreView
from tocsin.storage.aside import aside
from tocsin.storage.combiner import ActorWrites, Combiner, Committing, Handle, Handles
from tocsin.storage.condition import Condition
from tocsin.storage.sqlite.errors import Unsettled, by_errno, says_little, translate
from tocsin.storage.sqlite.identity import Identity
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.reader import Reader, Reading, SQLiteView
from tocsin.storage.sqlite.reserve import Reserve, why_unwritable
from tocsin.storage.sqlite.snapshot import SQLiteSnapshot
from tocsin.storage.sqlite.thread import Thread, whole
from tocsin.storage.sqlite.upkeep import Upkeep
from tocsin.storage.sqlite.writer import Writer, connect

log = logging.getLogger("tocsin.storage")

T = TypeVar("T")
WAKES_PER_PAGE = 1_000
LOOK_EVERY = 64
"""Transactions between two looks at the size of the WAL."""
SETTLE_LOOK_S = 0.5
"""Seconds between two tries to find out what became of a commit that failed."""


class SQLiteStore(SQLiteView, Committing):
    """The writing handle of one actor."""

    def __init__(self, reading: Reading, provider: SQLiteProvider, handle: Handle, wake_at: int | None) -> None:
        SQLiteView.__init__(self, handle.name, reading)
        Committing.__init__(self, provider.combiner, provider.handles, handle)
        self.grant = Grant(provider.owner, provider.starts)
        self.wake_at = wake_at


class SQLiteProvider:
    """A `StoreProvider` on one file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()  # a link, or a later chdir, must not give one file two lock files
        self.capabilities = Capabilities(durable=True, shared=False)
        self.owner, self._made_by = os.urandom(12).hex(), os.getpid()
        self.combiner = Combiner(self._write, self.capabilities)
        self.handles = Handles()
        self.full = False
        self.trouble: StoreError | None = None
        self._condition = Condition(self.path, self._condition_changed)
        self._lock, self._identity = LockFile(self._beside(".lock")), Identity(self.path)
        self._reserve = Reserve(self._beside(".reserve"))
        self._writer = Thread()
        self._file = Writer(self.path, self._lock, self._identity)
        self._turns = Reading(Reader(self.path, self._identity), self._met)
        self._views = Reading(Reader(self.path, self._identity), self._met)
        self._upkeep = Upkeep(
            self.path, self._writer, self._file, self._reserve, self._condition, lambda: self._apply(())
        )
        self._transaction, self._transactions = asyncio.Lock(), 0
        self._stopped: asyncio.Event | None = None
        self._stopping: asyncio.Task[None] | None = None

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @property
    def lock(self) -> LockFile:
        """Return the file that names who has the store."""
        return self._lock

    @property
    def starts(self) -> int:
        return self._file.starts

    def _condition_changed(self) -> None:
        self.full, self.trouble = self._condition.full, self._condition.trouble

    # ---- Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._check_is_file()
        if self._made_by != os.getpid():
            # Made before a fork: two processes with one name would take each other's leases for their own.
            self.owner, self._made_by = os.urandom(12).hex(), os.getpid()
        self._lock.take()
        self._transaction = asyncio.Lock()
        try:
            await whole(asyncio.create_task(self._open()))
        except BaseException:
            await whole(asyncio.create_task(self._close(in_order=False)))
            raise
        self._stopped, self._stopping = asyncio.Event(), None
        _open.add(self)
        self.handles.open_all()
        self._upkeep.start()

    def _check_is_file(self) -> None:
        """Refuse a folder or a device before anything is made beside it."""
        try:
            mode = self.path.stat().st_mode
        except OSError:
            return  # it is made later, or taking the lock raises the error
        if not stat.S_ISREG(mode):
            raise StoreUnavailable(f"{self.path} is {'a folder' if stat.S_ISDIR(mode) else 'not a file'}: name a file")

    async def _open(self) -> None:
        self._condition.start()
        try:
            await self._open_writer()
        except StoreFull as error:
            if not await aside(self._reserve.give_up):
                raise
            self._condition.now_full(error)
            await self._open_writer()
        try:
            await self._turns.thread.open(self._turns.reader.open)
            await self._views.thread.open(self._views.reader.open)
            await self._upkeep.open()
        except StoreError as error:
            raise await self._with_its_cause(error) from error.__cause__
        if not self.full:
            await aside(self._reserve.make)

    async def _open_writer(self) -> None:
        try:
            await self._writer.open(self._file.open, self._file.path)
        except StoreError as error:
            raise await self._with_its_cause(error) from error.__cause__

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
        await self._upkeep.stop()
        await aside(self._file.leave)
        await self._close(in_order=True)

    async def _close(self, *, in_order: bool) -> None:
        async with AsyncExitStack() as last_first:
            last_first.callback(_open.discard, self)
            last_first.callback(self._lock.let_go)
            last_first.callback(self._identity.let_go)
            if in_order:
                last_first.push_async_callback(aside, self._file.conclude)
            for thread in (self._writer, self._turns.thread, self._views.thread, self._upkeep):
                last_first.push_async_callback(thread.close)

    def forked(self) -> None:
        """Give the store up in a forked process: the file, its lock and its threads are the parent's."""
        self._lock.let_go()
        self._identity.let_go()
        self.handles.close_all()
        self._upkeep.forget()
        for thread in (self._writer, self._turns.thread, self._views.thread):
            thread.forget()
        self._stopped = None

    # ---- Handles and views -----------------------------------------------------------------------

    async def open(self, name: str, *, create: bool = True) -> OrderedStore:
        async with self.handles.renew(name) as handle:
            exists, wake_at = await self._turns.run(self._turns.reader.stored, name)
            if not create and not exists:
                raise KeyError(name)
        return SQLiteStore(self._turns, self, handle, wake_at)

    def view(self, name: str) -> StoreView:
        return SQLiteView(name, self._views)

    async def exists(self, name: str) -> bool:
        return await self._views.run(self._views.reader.id, name) is not None

    async def events(self) -> AsyncIterator[Event]:
        if self._stopped is None:
            raise StoreClosed("the store is not open")
        last = 0
        while rows := await self._views.run(self._views.reader.wakes, last, WAKES_PER_PAGE):
            last = rows[-1][0]
            yield Owned([(name, wake_at) for _, name, wake_at in rows], more=True)
        yield Owned([])
        await self._stopped.wait()

    async def names(self, start: str, limit: int) -> list[str]:
        return await self._views.run(self._views.reader.names, start, limit)

    @contextmanager
    def live(self) -> Iterator[SQLiteSnapshot]:
        """Hold one snapshot on a connection of its own. The files are opened by SQLite alone: a process that opens and
        closes one of them beside it gives up all locks that SQLite has."""
        try:
            with closing(connect(self.path, mode="ro", readonly=True)) as db:
                db.execute("BEGIN")
                yield SQLiteSnapshot(db)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def scratch(self) -> BinaryIO:
        try:
            return cast(BinaryIO, TemporaryFile(dir=self.path.parent))  # where there is room for a store
        except OSError as error:
            beside = f"no file can be made beside {self.path}"
            raise by_errno(error, beside) or StoreUnavailable(f"{beside}: {error.strerror}") from error

    def stats(self) -> StoreStats:
        return replace(self.combiner.stats(), wal_bytes=self._upkeep.wal_bytes)

    # ---- Writing ---------------------------------------------------------------------------------

    async def _write(self, group: Sequence[ActorWrites]) -> None:
        try:
            await self._apply(group)
        except StoreError as error:
            await self._write_on_reserve(group, error)
        self._transactions += 1
        if self.trouble is not None or self._transactions % LOOK_EVERY == 0:
            await self._look_after_commit()

    async def _write_on_reserve(self, group: Sequence[ActorWrites], error: StoreError) -> None:
        """Try again on a full disk, once the reserve is given up; raise `error` for any other cause."""
        try:
            if not isinstance(error, StoreFull):
                raise error
            given_up = await aside(self._reserve.give_up)
            self._condition.now_full(error)
            self._upkeep.look()
            if not given_up:
                raise error
            await self._apply(group)
        except StoreError as last:
            if isinstance(last, StoreFull):
                self._condition.now_full(last)
            self._met(last, writing=True)
            raise

    async def _look_after_commit(self) -> None:
        self._condition.works()
        if self._transactions % LOOK_EVERY == 0:
            self._upkeep.look()
        if self.full:
            # Before other programs take the space that is left: afterwards the WAL begins anew.
            await self._upkeep.move_wal()

    def _met(self, error: StoreError, *, writing: bool = False) -> None:
        self._condition.note(error, writing=writing)
        if self._condition.passes:
            self._upkeep.look()

    async def _apply(self, group: Sequence[ActorWrites]) -> None:
        """Apply in one durable transaction. After an error nothing of it is in the file."""
        try:
            async with self._transaction:
                try:
                    await self._run_to_end(self._file.apply, group)
                except Unsettled as unsettled:
                    if not await self._settled():
                        raise translate(unsettled.error) from unsettled.error
        except StoreError as error:
            raise await self._with_its_cause(error) from error.__cause__

    async def _run_to_end(self, function: Callable[..., T], *args: object) -> T:
        """Run a function on the writer's thread. Its answer is never lost: a cancelled caller waits for it, too."""
        once = _Once(function, args)
        while True:
            try:
                # The queue is ordered: a second call of `once` runs after the first one, and finds its answer.
                return await self._writer.execute(once.run)
            except asyncio.CancelledError:
                continue
            except sqlite3.Error as error:
                raise translate(error) from error

    async def _with_its_cause(self, error: StoreError) -> StoreError:
        """Return the error that names the system's cause, where SQLite names none."""
        return (by_errno(await aside(self._why_unwritable), self.path) if says_little(error) else None) or error

    def _why_unwritable(self) -> OSError | None:
        longest = max(self._upkeep.wal_bytes, self.path.stat().st_size if self.path.exists() else 0)
        return why_unwritable(self.path, longest)

    async def _settled(self) -> bool:
        """Return whether the last transaction is in the file.

        Until that is known no commit is answered, because a commit never ends "maybe". Only a stop does not wait for a
        disk that may never come back."""
        told = False
        while True:
            try:
                return await self._run_to_end(self._file.settle)
            except StoreError as error:
                if error.owner_lost or isinstance(error, StoreClosed):
                    raise
                if self._stopping is not None:
                    log.critical("%s: stopped before it was known whether the last commit happened", self.path)
                    raise
                if not told:
                    log.error("%s: a commit failed, and what became of it cannot be read yet: %s", self.path, error)
                told = True
                self._condition.note(error, writing=True)
            await asyncio.sleep(SETTLE_LOOK_S)


class _Once(Generic[T]):
    def __init__(self, function: Callable[..., T], args: tuple[object, ...]) -> None:
        self._function, self._args = function, args
        self._answer: list[T] = []
        self._error: Exception | None = None

    def run(self) -> T:
        if self._error is None and not self._answer:
            try:
                self._answer.append(self._function(*self._args))
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return self._answer[0]


_open: WeakSet[SQLiteProvider] = WeakSet()


def _forked() -> None:
    for provider in list(_open):
        provider.forked()


os.register_at_fork(after_in_child=_forked)
