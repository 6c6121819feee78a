"""One SQLite connection on a thread of its own: the only place that uses a private method of aiosqlite.

A whole transaction must be one hop to the thread; aiosqlite's public methods are one hop per statement.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NoReturn, Protocol, TypeVar

import aiosqlite

from tocsin.errors import StoreClosed
from tocsin.storage.sqlite.errors import translate

T = TypeVar("T")
_EXECUTE: Final = aiosqlite.Connection._execute
"""Taken by name at import, so that an aiosqlite without it fails at once and not at the first commit."""


class Execute(Protocol):
    """Queues a function for a thread; the awaitable is its answer, or raises what it raises."""

    def __call__(self, function: Callable[..., T], /, *args: object) -> Awaitable[T]: ...


class Thread:
    """A connection, opened, used and closed on one thread."""

    def __init__(self) -> None:
        self._connection: aiosqlite.Connection | None = None
        self._forgotten: object = None
        self.execute: Execute = _not_open
        """Queue a function; the caller translates SQLite's errors, which `run` does by itself."""

    async def open(self, connector: Callable[[], sqlite3.Connection], file: object = None) -> None:
        """Open the connection; after an error there is none, and no thread. An error names `file`.

        Must not be cancelled: see `whole`.
        """
        failed: list[Exception] = []

        def connected() -> sqlite3.Connection:
            try:
                return connector()
            except Exception as error:
                # aiosqlite does not end the thread of an opening that failed, but closes one that opened.
                failed.append(error)
                return sqlite3.connect(":memory:")

        connection = aiosqlite.Connection(connected, iter_chunk_size=64)
        # A program must end even without `stop`. Before aiosqlite 0.22 the connection itself is the thread.
        getattr(connection, "_thread", connection).daemon = True  # type: ignore[union-attr]
        await connection
        if failed:
            await connection.close()
            raise translate(failed[0], file) if isinstance(failed[0], sqlite3.Error) else failed[0]
        self._connection, self.execute = connection, partial(_EXECUTE, connection)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function on the thread. Cancelling the caller does not interrupt a function that was queued."""
        try:
            return await self.execute(function, *args)
        except sqlite3.Error as error:
            raise translate(error) from error

    def forget(self) -> None:
        """Drop the connection in a forked process, which has no such thread: it must be neither used nor closed."""
        self._forgotten, self._connection = self._connection, None
        self.execute = _forked

    async def close(self) -> None:
        """Close the connection once everything that was queued is done."""
        connection, self._connection = self._connection, None
        self.execute = _not_open
        if connection is not None:
            try:
                await connection.close()
            except sqlite3.Error as error:
                raise translate(error) from error


def _not_open(*_: object) -> NoReturn:
    raise StoreClosed("the store is not open")


def _forked(*_: object) -> NoReturn:
    raise StoreClosed("this process was forked from the one that has the store: open another store in it")


async def whole(task: asyncio.Task[T]) -> T:
    """Wait for a task to its end; a cancellation of the caller takes effect afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()
