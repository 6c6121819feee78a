"""Where an outbox table is: a SQLite file, an asyncpg pool, or a SQLAlchemy engine. Each runs statements, no more.

Drivers are imported when a database of theirs is made: of those only SQLite comes with tocsin.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tocsin.actors.outbox.statements import Dialect, Statement, dialect_of
from tocsin.errors import SettingsError

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger("tocsin.outbox")

Row = tuple[Any, ...]
BUSY_S: Final = 5.0
"""How long another writer of the file is waited for."""
SQL_THREADS: Final = 4
LISTEN_S: Final = 1.0
"""How long a connection to listen on is waited for."""
LISTEN_AGAIN_S: Final = 30.0
"""How long it does without, where there was none."""


class Database(Protocol):
    """Runs statements in a transaction of their own, never in one of the app's."""

    @property
    def dialect(self) -> Dialect: ...

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """All of them or none, durable when this returns; the rows of each. Raises what its driver raises; a caller
        that is cancelled does not know whether it was done."""
        ...

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """From now on call `wake`, from any thread, when rows are announced on `channel`; nothing where none can be.
        Called again and again: what has ceased is begun anew."""
        ...

    async def aclose(self) -> None:
        """Give back what is held; what was handed in stays open."""
        ...


# ---- SQLite --------------------------------------------------------------------------------------


class SQLiteDatabase:
    """A file, with a connection of its own on a thread of its own. Its journal mode stays as it is."""

    dialect: Final[Dialect] = "sqlite"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise SettingsError("path must name a file: a database in memory is seen by nobody else")
        self._path = Path(path).absolute()  # a later chdir must not open another file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tocsin-outbox")
        self._db: sqlite3.Connection | None = None

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, list(statements))

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """A file tells nobody."""

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """On the thread, so that it comes to its end whatever becomes of who asked."""
        db = self._db = self._db or self._open()
        reading = all(statement.sql.startswith("SELECT ") for statement in statements)
        # One that first reads and then writes would be refused, did another write in between.
        db.execute("BEGIN" if reading else "BEGIN IMMEDIATE")
        try:
            rows = [db.execute(*statement.named).fetchall() for statement in statements]
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # a full disk, for one, has ended it already
                db.execute("ROLLBACK")
            raise
        return rows

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        db.text_factory = lambda text: text.decode("utf-8", "replace")  # a broken text is refused, and nobody else
        db.execute("PRAGMA synchronous = FULL")  # what is marked must be on disk before it is submitted
        return db

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


# ---- asyncpg -------------------------------------------------------------------------------------


class AsyncpgDatabase:
    """A pool of asyncpg, which stays yours. Of more than one connection it holds one to hear of announced rows, unless
    `listen=False`."""

    dialect: Final[Dialect] = "postgresql"

    def __init__(self, pool: asyncpg.Pool[Any], *, listen: bool = True) -> None:
        self._pool, self._listens = pool, listen and pool.get_max_size() > 1
        self._listening: PoolConnectionProxy[Any] | None = None
        self._wake: Callable[[], None] = _nothing
        self._channel = ""
        self._again_at = 0.0

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        async with self._pool.acquire() as connection, connection.transaction():
            return [[tuple(row) for row in await connection.fetch(*statement.dollar)] for statement in statements]

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        if not self._listens or self._listening is not None or loop.time() < self._again_at:
            return
        self._channel, self._wake = channel, wake
        self._again_at = loop.time() + LISTEN_AGAIN_S
        try:
            connection = await self._pool.acquire(timeout=LISTEN_S)
            try:
                await connection.add_listener(channel, self._heard)
                connection.add_termination_listener(self._lost)
            except BaseException:
                await self._pool.release(connection)
                raise
        except Exception as error:  # a pool in use, a proxy that lets nobody listen: it polls instead
            log.warning("nobody listens for rows of the outbox, it is looked at now and then: %r", error)
            return
        self._listening = connection
        wake()  # what was announced before

    def _heard(self, *_: object) -> None:
        self._wake()

    def _lost(self, *_: object) -> None:
        """The connection is gone; the pool knows."""
        self._listening, self._again_at = None, 0.0

    async def aclose(self) -> None:
        connection, self._listening = self._listening, None
        if connection is not None:
            connection.remove_termination_listener(self._lost)
            await connection.remove_listener(self._channel, self._heard)
            await self._pool.release(connection)


def _nothing() -> None:
    """Nobody is to be woken yet."""


# ---- SQLAlchemy ----------------------------------------------------------------------------------


class SQLAlchemyDatabase:
    """An engine, sync or async, on SQLite or PostgreSQL; it stays yours. A sync one is used on threads."""

    def __init__(self, engine: AsyncEngine | Engine) -> None:
        from sqlalchemy import Engine, text

        self._text = text
        # Its async module needs greenlet, which SQLAlchemy brings along on some machines only.
        self._sync = engine if isinstance(engine, Engine) else None
        self._async = None if isinstance(engine, Engine) else engine
        self._dialect = dialect_of(engine.dialect.name)
        # Not the loop's own: those belong to the app, which may keep all of them busy.
        self._threads = ThreadPoolExecutor(SQL_THREADS, thread_name_prefix="tocsin-outbox")

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        if self._async is not None:
            async with self._async.begin() as connection:
                return await connection.run_sync(self._execute, statements)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, statements)

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """SQLAlchemy has no way to listen: give such a drain the pool of a driver, or let it poll."""

    async def aclose(self) -> None:
        """The engine is the user's."""
        self._threads.shutdown(wait=False)

    def _run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        assert self._sync is not None
        with self._sync.begin() as connection:
            return self._execute(connection, statements)

    def _execute(self, connection: Connection, statements: Sequence[Statement]) -> list[list[Row]]:
        results = (connection.execute(self._text(one.sql), dict(one.values)) for one in statements)
        return [[tuple(row) for row in result] if result.returns_rows else [] for result in results]
