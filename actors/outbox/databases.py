"""Databases with an outbox table: a SQLite file, an asyncpg pool, or a SQLAlchemy engine. Each runs statements, no
more.

Drivers are imported when a database of theirs is made: of those only SQLite comes with tocsin.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tocsin.actors.outbox.statements import Dialect, Statement, dialect_of
from tocsin.actors.runtime.clock import Clock, SystemClock
from tocsin.dispatch.threads import submitted
from tocsin.errors import SettingsError
from tocsin.storage.aside import aside

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

log = logging.getLogger("tocsin.outbox")

Row = tuple[Any, ...]
BUSY_S: Final = 5.0
"""How long another writer of the file is waited for."""
MOST_WAITING: Final = 32
"""Threads that wait for a sync engine; of a drain that is answered there is one."""
LISTEN_S: Final = 1.0
"""How long a connection to listen on is waited for."""
LISTEN_AGAIN_S: Final = 30.0
"""How long it does without, where there was none."""
PROBE_S: Final = 10.0
"""How long a connection that only listens is believed: one that was dropped without a word looks like a quiet one."""


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
        Called again and again, every PROBE_S at least: what has ceased is begun anew."""
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
        return await asyncio.wrap_future(submitted(self._thread, self._run, list(statements)))

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """Listen to nothing: a file does not announce rows."""

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """Run on the thread, to the end even if the caller is cancelled."""
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

    def __init__(self, pool: asyncpg.Pool[Any], *, listen: bool = True, clock: Clock | None = None) -> None:
        self._pool, self._listens = pool, listen and pool.get_max_size() > 1
        self._clock = clock or SystemClock()
        self._listening: PoolConnectionProxy[Any] | None = None
        self._wake: Callable[[], None] = _nothing
        self._channel = ""
        self._again_at = self._probe_at = -math.inf

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        connection = await self._pool.acquire()
        try:
            return await self._transact(connection, statements)
        except asyncio.CancelledError:
            await self._give_up(connection)
            raise
        finally:
            await self._pool.release(connection)

    async def _transact(self, connection: PoolConnectionProxy[Any], statements: Sequence[Statement]) -> list[list[Row]]:
        transaction = connection.transaction()
        await transaction.start()
        try:
            rows = [[tuple(row) for row in await connection.fetch(*statement.dollar)] for statement in statements]
        except Exception:
            if not connection.is_closed():
                await transaction.rollback()
            raise
        await transaction.commit()
        return rows

    async def _give_up(self, connection: PoolConnectionProxy[Any]) -> None:
        """Without a word to the server: whoever was cancelled may have waited for an answer that never comes, and to
        roll back, or to give back the connection in order, would wait again. Others that lay idle are as silent."""
        connection.terminate()
        await self._pool.expire_connections()

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        now = self._clock.monotonic()
        if self._listening is not None:
            if now >= self._probe_at:
                self._probe_at = now + PROBE_S
                await self._probe(self._listening)
            return
        if not self._listens or now < self._again_at:
            return
        self._channel, self._wake = channel, wake
        self._again_at, self._probe_at = now + LISTEN_AGAIN_S, now + PROBE_S
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

    async def _probe(self, connection: PoolConnectionProxy[Any]) -> None:
        try:
            await connection.execute("SELECT 1")
        except asyncio.CancelledError:
            log.warning("the connection that listens for rows of the outbox gave no answer: another one is taken")
            await self._drop(connection)
            raise
        except Exception as error:
            log.warning("the connection that listens for rows of the outbox failed, another one is taken: %r", error)
            await self._drop(connection)

    async def _drop(self, connection: PoolConnectionProxy[Any]) -> None:
        connection.remove_termination_listener(self._lost)
        self._lost()
        await self._give_up(connection)
        await self._pool.release(connection)

    def _heard(self, *_: object) -> None:
        self._wake()

    def _lost(self, *_: object) -> None:
        """Forget a connection that the pool has closed."""
        self._listening, self._again_at = None, -math.inf

    async def aclose(self) -> None:
        connection, self._listening = self._listening, None
        if connection is not None:
            connection.remove_termination_listener(self._lost)
            try:
                await connection.remove_listener(self._channel, self._heard)
            except asyncio.CancelledError:
                connection.terminate()
                raise
            finally:
                await self._pool.release(connection)


def _nothing() -> None:
    """Wake nobody: nobody listens yet."""


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
        self._running, self._counting = 0, threading.Lock()

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    async def run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        if self._async is not None:
            async with self._async.begin() as connection:
                return await connection.run_sync(self._execute, statements)
        # Not on the loop's own threads, which belong to the app, nor on some of ours: a thread waits for a silent
        # database for as long as its driver does.
        if self._running >= MOST_WAITING:
            raise TimeoutError(f"{self._running} queries have no answer yet: give the driver of the engine timeouts")
        return await aside(self._run, statements)

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """Listen to nothing: SQLAlchemy cannot. Give such a drain the pool of a driver, or let it poll."""

    async def aclose(self) -> None:
        """Leave the engine open: it is the user's."""

    def _run(self, statements: Sequence[Statement]) -> list[list[Row]]:
        assert self._sync is not None
        with self._counting:
            self._running += 1
        try:
            with self._sync.begin() as connection:
                return self._execute(connection, statements)
        finally:
            with self._counting:
                self._running -= 1

    def _execute(self, connection: Connection, statements: Sequence[Statement]) -> list[list[Row]]:
        results = (connection.execute(self._text(one.sql), dict(one.values)) for one in statements)
        return [[tuple(row) for row in result] if result.returns_rows else [] for result in results]
