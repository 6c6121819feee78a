"""Reading a store in PostgreSQL as of one instant, beside the hosts that use it: a transaction that only reads.

The readers of snapshots are synchronous, and the driver is not: it runs in an event loop on a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import finalize

from tocsin.errors import StoreUnavailable
from tocsin.storage.api import MAX_SCAN_BYTES, Range, Row, StoreView
from tocsin.storage.ownership.engine import slot_of
from tocsin.storage.postgres.address import Address, read_url
from tocsin.storage.postgres.connections import PLANS, check_server, connect
from tocsin.storage.postgres.errors import FAILURES, translate
from tocsin.storage.postgres.layout import LAYOUT, NUMBER_BITS
from tocsin.storage.postgres.migrate import layout_of
from tocsin.storage.postgres.statements import Statements, backwards, statements

if TYPE_CHECKING:
    from tocsin.storage.postgres.connections import Connection

T = TypeVar("T")
FAULTS_SHOWN: Final = 20
NAMES_AT_ONCE: Final = 5_000
_BEGIN: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_ROWS_OF_NOBODY: Final = (
    "SELECT k.actor, count(*) AS rows FROM %s.kv k WHERE NOT EXISTS (SELECT FROM %s.actor a WHERE a.actor = k.actor) "
    "GROUP BY k.actor ORDER BY k.actor LIMIT $1"
)
_NAMED: Final = "SELECT actor, name FROM %s.actor WHERE name > $1 ORDER BY name LIMIT $2"


class PostgresLook:
    """A `StoreLook` on a database. One connection serves all its snapshots, one after the other."""

    def __init__(self, url: str) -> None:
        self._address = read_url(url)
        self.place = self._address.place
        self._thread: _Thread | None = None

    def integrity(self) -> list[str]:
        """Check what the tables say of each other, in a snapshot of its own. The pages are PostgreSQL's to check
        (pg_amcheck)."""
        with self.snapshot() as snapshot:
            return snapshot.faults()

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        thread, connection = self._connected()
        try:
            thread.run(_begin(connection))
            yield PostgresSnapshot(thread, connection, self._address)
        finally:
            with suppress(StoreUnavailable):  # the connection broke: what was read was whole, or has failed already
                thread.run(connection.execute("ROLLBACK"))

    def _connected(self) -> tuple[_Thread, Connection]:
        if self._thread is None or self._thread.connection.is_closed():
            self.close()
            self._thread = _Thread(self._address)
            finalize(self, self._thread.close)
        return self._thread, self._thread.connection

    def close(self) -> None:
        """Give the connection up. A look that is forgotten does so by itself."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()


class _Thread:
    """A connection, and the thread of the event loop in which it lives."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name="tocsin-snapshot", daemon=True).start()
        try:
            self.connection = self.run(_connect(address))
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(self._translated(work), self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what it comes to. StoreError."""
        return self.submit(work).result()

    async def _translated(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except FAILURES as error:
            raise translate(error, self._address.place) from error

    def close(self) -> None:
        """End the connection at once: it only reads."""

        def end() -> None:
            self.connection.terminate()
            self._loop.call_soon(self._loop.stop)  # once its socket is closed, which is the loop's next step

        with suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(end)


async def _connect(address: Address) -> Connection:
    """Connect, without limits of time for statements: whoever holds a snapshot reads as long as it takes."""
    connection = await connect(address, plain=True)
    try:
        await check_server(connection, address.place)
        layout = await layout_of(connection, address)
        if layout < LAYOUT:
            found = "there is no store at" if layout == 0 else f"an older version of tocsin wrote (layout {layout})"
            raise StoreUnavailable(f"{found} {address.place}: check the address, or run tocsin migrate")
        for name, value in PLANS.items():
            await connection.execute(f"SET {name} = {value}")
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _begin(connection: Connection) -> None:
    await connection.execute(_BEGIN)
    await connection.execute("SELECT 1")  # only a statement takes the snapshot


class PostgresSnapshot:
    """A `StoreSnapshot`: one open transaction."""

    def __init__(self, thread: _Thread, connection: Connection, address: Address) -> None:
        self._thread, self._connection, self._schema = thread, connection, address.schema
        self._sql = statements(address.schema)

    def _fetch(self, sql: str, *given: Any) -> list[Any]:
        return self._thread.run(self._connection.fetch(sql, *given))

    def names(self, start: str, limit: int) -> list[str]:
        return [row["name"] for row in self._fetch(self._sql.names, start, limit)]

    def wake_at(self, name: str) -> int | None:
        rows = self._fetch(self._sql.stored, name)
        return rows[0]["wake_at"] if rows else None

    def lineage(self) -> str:
        rows = self._fetch(f"SELECT v FROM {self._schema}.meta WHERE k = 'cluster_id'")
        return str(rows[0]["v"]).replace("-", "")[:12] if rows else ""

    def view(self, name: str) -> PostgresSnapshotView:
        return PostgresSnapshotView(self._thread, self._connection, self._sql, name)

    def faults(self) -> list[str]:
        """Return what the tables of the engine contradict each other in, the first ones."""
        faults = [
            f"actor number {row['actor']} has {row['rows']} rows, and there is no such actor"
            for row in self._fetch(_ROWS_OF_NOBODY.replace("%s", self._schema), FAULTS_SHOWN)
        ]
        last = ""
        while rows := self._fetch(_NAMED.replace("%s", self._schema), last, NAMES_AT_ONCE):
            last = rows[-1]["name"]
            faults += [
                f"{row['name']} lies in slot {row['actor'] >> NUMBER_BITS}, and belongs to slot {slot_of(row['name'])}"
                for row in rows
                if row["actor"] >> NUMBER_BITS != slot_of(row["name"])
            ]
        return faults[:FAULTS_SHOWN]


class PostgresSnapshotView(StoreView):
    """Committed state of one actor, inside an open transaction."""

    def __init__(self, thread: _Thread, connection: Connection, sql: Statements, name: str) -> None:
        self._thread, self._connection, self._name = thread, connection, name
        self._sql, self._backwards = sql, backwards(sql)

    async def _fetch(self, sql: str, *given: Any) -> list[Any]:
        return await asyncio.wrap_future(self._thread.submit(self._connection.fetch(sql, *given)))

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {row["key"]: row["value"] for row in await self._fetch(self._sql.get, self._name, keys)}

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        sql = (self._backwards if reverse else self._sql).scan_many
        answer: list[list[Row]] = [[] for _ in ranges]
        starts, ends, limits = ([one[part] for one in ranges] for part in range(3))
        for row in await self._fetch(sql, self._name, starts, ends, limits, max(max_bytes, 1)):
            answer[row["n"] - 1].append((row["key"], row["value"]))
        return answer


async def has_store(url: str) -> bool:
    """Tell whether there is a store, without making one. StoreError if the server is not reached."""
    address = read_url(url)
    connection = await connect(address, plain=True)
    try:
        return await layout_of(connection, address) > 0
    except FAILURES as error:
        raise translate(error, address.place) from error
    finally:
        connection.terminate()
