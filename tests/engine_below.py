"""The engine below the suites of the product: memory, unless `--engine` names another one.

With `--engine postgresql` hosts of the simulated loop, and those on the real clock, stand on a real server: a disk is
a schema of one database. Of virtual time a statement takes none: it is done on a loop of its own in another thread,
while the simulated one is held. So what a suite says of instants holds on either engine, and what it says of rows is
read off the server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

import asyncpg

from tests.postgres import Postgres, postgres_server
from tocsin.actors.cluster.network import NoNetwork
from tocsin.actors.runtime.store_clock import BAND_MS
from tocsin.actors.testing import Process
from tocsin.storage import api
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, MemoryProvider
from tocsin.storage.ownership.engine import Beat, SharedEngine, slot_of
from tocsin.storage.ownership.provider import OwnedProvider
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.postgres.engine import PostgresEngine
from tocsin.storage.postgres.statements import numbers_of

T = TypeVar("T")
ENGINES: Final = ("memory", "postgresql")
PATIENT: Final = Timing(ttl_s=3_600, beat_s=1_000, margin_s=700, look_s=3_600)
"""A simulated month is a thousand beats: more often would be a test of the server's patience."""
ANSWER_S: Final = 30.0


class Outside:
    """A loop of its own in a thread of its own, on the machine's clock."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="outside", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, and hold the caller's loop meanwhile: no virtual time passes."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(ANSWER_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(ANSWER_S)
        self.loop.close()


class Server:
    """A database whose schemas are disks."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.outside = Outside()
        self._numbers = count(1)
        self._disks: list[tuple[asyncio.AbstractEventLoop | None, ServerDisk]] = []
        self._connection: asyncpg.Connection[Any] = self.outside.run(asyncpg.connect(url))

    def sql(self, statement: str, *given: Any) -> list[Any]:
        return self.outside.run(self._connection.fetch(statement, *given))

    def number(self) -> int:
        """A number that nobody else has: hosts draw their ids, and the locks of their sessions, from it."""
        return next(self._numbers)

    def disk(self) -> ServerDisk:
        """A new one. Those of simulations that have ended are dropped."""
        try:
            loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        over = [disk for owner, disk in self._disks if owner is None or owner.is_closed()]
        for disk in over:
            disk.drop()
        self._disks = [(owner, disk) for owner, disk in self._disks if disk not in over]
        made = ServerDisk(self, f"disk_{self.number()}")
        self.sql(f"DROP SCHEMA IF EXISTS {made.schema} CASCADE")
        self._disks.append((loop, made))
        return made

    def close(self) -> None:
        for _, disk in self._disks:
            disk.drop()
        self.outside.run(self._connection.close())
        self.outside.close()


# ---- A disk ----------------------------------------------------------------------------------------


class ServerRows:
    """The rows of one actor, as a `SortedMap` has them."""

    def __init__(self, disk: ServerDisk, name: str, actor: int) -> None:
        self._disk, self._name, self._actor = disk, name, actor

    def get(self, key: bytes) -> bytes | None:
        found = self._disk.sql("SELECT value FROM %s.kv WHERE actor = $1 AND key = $2", self._actor, key)
        return found[0]["value"] if found else None

    def range(self, start: bytes, end: bytes, limit: int, reverse: bool) -> list[api.Row]:
        rows = self._disk.sql(
            "SELECT key, value FROM %s.kv WHERE actor = $1 AND key >= $2 AND key < $3 "
            f"ORDER BY key {'DESC' if reverse else ''} LIMIT $4",
            self._actor, start, end, limit,
        )  # fmt: skip
        return [(row["key"], row["value"]) for row in rows]

    def apply(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Write beside whoever owns the actor, as damage does."""
        for key, value in rows.items():
            if value is None:
                self._disk.sql("DELETE FROM %s.kv WHERE actor = $1 AND key = $2", self._actor, key)
            else:
                self._disk.sql(
                    "INSERT INTO %s.kv (actor, key, value) VALUES ($1, $2, $3) "
                    "ON CONFLICT (actor, key) DO UPDATE SET value = excluded.value",
                    self._actor, key, value,
                )  # fmt: skip

    def copy(self) -> ServerRows:
        raise NotImplementedError("rows of a server are not copied")


class _Maps(Mapping[str, ServerRows]):
    def __init__(self, disk: ServerDisk) -> None:
        self._disk = disk

    def __getitem__(self, name: str) -> ServerRows:
        found = self._disk.sql("SELECT actor FROM %s.actor WHERE name = $1", name)
        if not found:
            raise KeyError(name)
        return ServerRows(self._disk, name, found[0]["actor"])

    def __iter__(self) -> Iterator[str]:
        return iter([row["name"] for row in self._disk.sql("SELECT name FROM %s.actor ORDER BY name")])

    def __len__(self) -> int:
        return len(list(iter(self)))


class _Wakes(Mapping[str, int | None]):
    def __init__(self, disk: ServerDisk) -> None:
        self._disk = disk

    def __getitem__(self, name: str) -> int | None:
        found = self._disk.sql("SELECT wake_at FROM %s.actor WHERE name = $1", name)
        if not found:
            raise KeyError(name)
        wake_at: int | None = found[0]["wake_at"]
        return wake_at

    def __iter__(self) -> Iterator[str]:
        return iter(self._disk.maps)

    def __len__(self) -> int:
        return len(self._disk.maps)


class ServerDisk(MemoryDisk):
    """A schema of the server: what tests look at, and do, beside the hosts that stand on it."""

    def __init__(self, server: Server, schema: str) -> None:
        super().__init__()
        self.server, self.schema = server, schema
        self.maps: Any = _Maps(self)
        self.wakes: Any = _Wakes(self)
        self.engines: list[tuple[Process, SharedEngine]] = []
        self.sql_made = False

    @property
    def url(self) -> str:
        return f"{self.server.url}{'&' if '?' in self.server.url else '?'}schema={self.schema}"

    def sql(self, statement: str, *given: Any) -> list[Any]:
        if (
            not self.sql_made
            and not self.server.sql("SELECT to_regclass($1) AS there", f"{self.schema}.kv")[0]["there"]
        ):
            return []
        self.sql_made = True
        return self.server.sql(statement.replace("%s", self.schema), *given)

    def apply(self, writes: Sequence[ActorWrites]) -> None:
        for one in writes:
            if one.name not in self.maps:
                low, _ = numbers_of(slot_of(one.name), slot_of(one.name))
                self.sql(
                    "INSERT INTO %s.actor (actor, name) VALUES ($1, $2)", low + (1 << 39) + len(self.maps), one.name
                )
            self.maps[one.name].apply(one.rows)
            if one.wake_at is not api.UNSET:
                self.sql("UPDATE %s.actor SET wake_at = $2 WHERE name = $1", one.name, one.wake_at)

    def drop(self) -> None:
        """Remove all of it, and what was left open by a test that failed."""
        for _, engine in self.engines:
            self.server.outside.run(engine.close())
        self.engines.clear()
        self.server.sql(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")

    def bury(self) -> None:
        """Let the connections of dead processes break, as they do, and have their hosts declared dead at once."""
        for process, engine in self.engines:
            if not process.alive:
                self.server.outside.run(engine.close())
                self.sql("UPDATE %s.host SET state = 'dead'")
        self.engines = [(process, engine) for process, engine in self.engines if process.alive]


# ---- An engine whose statements are done outside -----------------------------------------------------


class EngineOutside:
    """A `SharedEngine` of a simulated host: every statement of `engine` is done outside, and takes no virtual time."""

    def __init__(self, engine: SharedEngine, outside: Outside, process: Process, now_ms: Callable[[], int]) -> None:
        self._engine, self._outside, self._process, self._now_ms = engine, outside, process, now_ms
        self.place = engine.place
        self.session_lost_at: float | None = None
        self.session_held_at = float("-inf")

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._engine, name)

        async def call(*given: Any) -> Any:
            await self._hop()
            return self._outside.run(method(*given))

        return call

    async def _hop(self) -> None:
        """Give other tasks a chance. Nothing answers a process that is dead."""
        if not self._process.alive:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(0)

    async def beat(self, host: str, ttl_s: float) -> Beat | None:
        await self._hop()
        beat = self._outside.run(self._engine.beat(host, ttl_s))
        return None if beat is None else replace(beat, now_ms=self._now_ms())

    async def wakes(self, slots: Sequence[int]) -> AsyncIterator[Sequence[tuple[str, int | None]]]:
        async def all_pages() -> list[Sequence[tuple[str, int | None]]]:
            return [page async for page in self._engine.wakes(slots)]

        await self._hop()
        for page in self._outside.run(all_pages()):
            yield page

    async def hints(self) -> AsyncIterator[None]:
        """None comes: a hint may be lost, and nothing depends on it."""
        await asyncio.get_running_loop().create_future()
        yield


class OneClockProvider(OwnedProvider):
    """Owned by hosts that all go by the one clock of a simulation, of which a sign of life takes nothing."""

    @property
    def clocks_differ_ms(self) -> int:
        """Take back what a scheduler adds, too: leases of a host that was lost end at the instant that they say."""
        return -2 * BAND_MS


class MortalProvider(MemoryProvider):
    """Falls silent when its process dies."""

    def __init__(self, disk: MemoryDisk, process: Process) -> None:
        super().__init__(disk)
        self._process = process

    async def hop(self) -> None:
        if not self._process.alive:
            await asyncio.get_running_loop().create_future()
        await super().hop()


# ---- What was asked for --------------------------------------------------------------------------------


class EngineBelow:
    """Makes disks, and providers on them."""

    def __init__(self, asked: str = "memory") -> None:
        self.asked = asked
        self._life = ExitStack()
        self._server: Server | None = None

    @property
    def is_memory(self) -> bool:
        return self.asked == "memory"

    @property
    def server(self) -> Server:
        if self._server is None:
            url = self.asked
            if url == "postgresql":
                made = self._life.enter_context(postgres_server())
                url = made.url(made.database())
            self._server = Server(url)
            self._life.callback(self._server.close)
        return self._server

    def disk(self) -> MemoryDisk:
        return MemoryDisk() if self.is_memory else self.server.disk()

    def provider(self, disk: MemoryDisk, process: Process, now_ms: Callable[[], int]) -> api.StoreProvider:
        """A provider of a simulated host."""
        if not isinstance(disk, ServerDisk):
            return MortalProvider(disk, process)
        disk.bury()
        engine: Any = PostgresEngine(disk.url)
        disk.engines.append((process, engine))
        bridged: Any = EngineOutside(engine, disk.server.outside, process, now_ms)
        return OneClockProvider(bridged, timing=PATIENT, random=Random(disk.server.number()))

    @property
    def options(self) -> dict[str, Any]:
        """Options of a simulated host: it has no sockets."""
        return {} if self.is_memory else {"peer_address": NoNetwork()}

    def url(self) -> str:
        """The URL of a store of its own, for a host on the real clock."""
        return "memory:" if self.is_memory else self.server.disk().url

    @contextmanager
    def on(self, server: Postgres) -> Iterator[None]:
        """Stand on a database of this server for a while."""
        asked, made, before = self.asked, Server(server.url(server.database())), self._server
        self.asked, self._server = "postgresql", made
        try:
            yield
        finally:
            made.close()
            self.asked, self._server = asked, before

    def close(self) -> None:
        self._life.close()


BELOW: Final = EngineBelow()
