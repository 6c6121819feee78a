"""Where an outbox table is: a SQLite file, an asyncpg pool, or a SQLAlchemy engine. Each runs statements, no more.

Drivers are imported when a database of theirs is made: of those only SQLite comes with tocsin.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger("tocsin.outbox")

Row = tuple[Any, ...]
BUSY_S: Final = 5.0
"""How long another writer of the file is waited for."""


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
        self._listening: Any = None
        self._heard: tuple[str, Any] | None = None

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        async with self._pool.acquire() as connection, connection.transaction():
            return [[tuple(row) for row in await connection.fetch(*statement.dollar)] for statement in statements]

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        if not self._listens or (self._listening is not None and not self._listening.is_closed()):
            return
        await self._give_back()

        def heard(*_: object) -> None:
            wake()

        connection = await self._pool.acquire()
        self._listening, self._heard = connection, (channel, heard)
        await connection.add_listener(channel, heard)
        wake()  # what was announced before

    async def aclose(self) -> None:
        await self._give_back()

    async def _give_back(self) -> None:
        connection, self._listening = self._listening, None
        if connection is None:
            return
        assert self._heard is not None
        # Its connection may be gone; then there is nothing to take back, and the pool makes another.
        with contextlib.suppress(Exception):
            await connection.remove_listener(*self._heard)
        with contextlib.suppress(Exception):
            await self._pool.release(connection)


# ---- SQLAlchemy ----------------------------------------------------------------------------------


class SQLAlchemyDatabase:
    """An engine, sync or async, on SQLite or PostgreSQL; it stays yours. A sync one is used on threads."""

    def __init__(self, engine: AsyncEngine | Engine) -> None:
        from sqlalchemy import text
        from sqlalchemy.ext.asyncio import AsyncEngine

        self._text = text
        self._async = engine if isinstance(engine, AsyncEngine) else None
        self._sync = None if isinstance(engine, AsyncEngine) else engine
        self._dialect = dialect_of(engine.dialect.name)

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        if self._async is not None:
            async with self._async.begin() as connection:
                return await connection.run_sync(self._execute, statements)
        return await asyncio.to_thread(self._run, statements)

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """SQLAlchemy has no way to listen: give such a drain the pool of a driver, or let it poll."""

    async def aclose(self) -> None:
        """The engine is the user's."""

    def _run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        assert self._sync is not None
        with self._sync.begin() as connection:
            return self._execute(connection, statements)

    def _execute(self, connection: Connection, statements: Sequence[Statement]) -> list[list[Row]]:
        results = (connection.execute(self._text(one.sql), dict(one.values)) for one in statements)
        return [[tuple(row) for row in result] if result.returns_rows else [] for result in results]
