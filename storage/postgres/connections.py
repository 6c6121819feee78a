"""Connections to a server: how they are made, and pools of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from tocsin.errors import StoreClosed, StoreSchema
from tocsin.storage.ownership.timing import Timing
from tocsin.storage.postgres.address import Address
from tocsin.storage.postgres.errors import FAILURES, misconfigured, said, translate
from tocsin.storage.tasks import begin_soon

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = asyncpg.Connection[asyncpg.Record]
    Pooled = PoolConnectionProxy[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]

log = logging.getLogger("tocsin.storage")

OLDEST_SERVER: Final = 14
STATEMENT_S: Final = 10.0
"""Most time for one statement, after which the server ends it."""
KEEPALIVE: Final = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}
"""A host that vanished without a word is noticed by the server within seconds, and its session lock is free."""
PLANS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_material": "off",
    "jit": "off",
}
"""Each statement has one good plan, along the indexes, whatever the statistics of a table say of it."""
PROMISES: Final = {"default_transaction_isolation": "read committed", "synchronous_commit": "on"}
_TIMELINE: Final = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"


@dataclass(frozen=True, slots=True)
class Limits:
    """Times for one statement."""

    statement_s: float = STATEMENT_S
    """After so long the server ends it."""
    silence_s: float = STATEMENT_S * 1.25
    """After so long without an answer it is given up, and with it the connection. It is more: the server speaks first.
    """


def limits_for_rows(timing: Timing) -> Limits:
    """Return the limits for rows: a connection that was cut without a word holds up a host for less than its lease."""
    statement_s = min(max(timing.ttl_s * 0.6, 3.0), STATEMENT_S)
    return Limits(statement_s, statement_s * 1.25)


def limits_for_life(timing: Timing) -> Limits:
    """Return the limits for signs of life and who owns what: another try still comes in time."""
    silence_s = min(max((timing.ttl_s - timing.margin_s) / 2, 2.0), STATEMENT_S)
    return Limits(silence_s * 0.8, silence_s)


async def connect(address: Address, *, limits: Limits | None = None, plain: bool = False) -> Connection:
    """Connect to the first server that is a primary; a server that does not answer costs `connect_s`. StoreError.

    `plain` leaves the planner as the server has it, and statements unlimited: for changes of the layout.
    """
    limits = limits or limits_for_rows(address.timing)
    settings = {"application_name": address.application, **PROMISES, **KEEPALIVE}
    if not plain:
        settings |= PLANS
        settings |= {"idle_in_transaction_session_timeout": "5000"}
        settings |= {"statement_timeout": str(round(limits.statement_s * 1000))}
    failed: list[tuple[str, Exception]] = []
    servers: list[tuple[str, int] | None] = [*address.in_turn] or [None]
    for server in servers:
        host, port = server or (None, None)
        wait_s = address.connect_s if server is None else address.wait_for(server, limits.silence_s / 2)
        try:
            connection = await asyncpg.connect(
                address.dsn, host=host, port=port, timeout=wait_s, server_settings=settings,
                target_session_attrs=SessionAttribute.primary, command_timeout=None if plain else limits.silence_s,
            )  # fmt: skip
        except OSError as error:  # of certificates too, which are a ValueError as well
            failed.append((f"{host}:{port}", error))
        except ValueError as error:
            raise misconfigured(error, address.place, address.secrets) from None
        except FAILURES as error:
            failed.append((f"{host}:{port}", error))
        else:
            if server is not None:
                address.heard(server, True)
            return connection
        if server is not None:
            address.heard(server, not isinstance(failed[-1][1], TimeoutError))
    each = "; ".join(f"{server}: {said(error)}" for server, error in failed) if len(failed) > 1 else ""
    raise translate(failed[-1][1], address.place, each)


async def timeline(connection: Connection | Pooled) -> str:
    """Return which history of the database this is: it changes when a standby takes over. Empty where none is told."""
    try:
        return str(await connection.fetchval(_TIMELINE))
    except (asyncpg.UndefinedFunctionError, asyncpg.FeatureNotSupportedError, asyncpg.InsufficientPrivilegeError):
        return ""
    except asyncpg.ObjectNotInPrerequisiteStateError:
        return ""  # a standby; what writes there is refused


async def check_server(connection: Connection, place: str) -> None:
    """Refuse a server that is too old, and a database that does not hold every name. StoreSchema."""
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise StoreSchema(f"PostgreSQL {version.major} is too old for the store {place}: {OLDEST_SERVER} is needed")
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreSchema(
            f"the database of the store {place} has the encoding {encoding}: make one with createdb --encoding UTF8 "
            "--template template0"
        )


class ClosedMeanwhile(Exception):
    """The connections were closed while a statement was under way: it may or may not have been done."""


class Connections:
    """A pool. Each use of it runs to its end, also when its caller is cancelled: no statement is left halfway."""

    def __init__(
        self, address: Address, size: int, limits: Limits, on_new: Callable[[str], None], on_silence: Callable[[], None]
    ) -> None:
        """`on_new(timeline)` is called for each connection that is made, `on_silence()` after one gave no answer."""
        self._address, self._size, self._limits = address, size, limits
        self._on_new, self._on_silence = on_new, on_silence
        self._pool: Pool | None = None
        self._uses: set[asyncio.Task[Any]] = set()
        self._retiring: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._pool = await self._new_pool()

    async def renew(self) -> None:
        """Use none of the connections again that there are. What is under way on them may end."""
        earlier, new = self._pool, await self._new_pool()
        if earlier is None or self._pool is not earlier:
            new.terminate()  # it was closed meanwhile
            return
        self._pool = new
        retiring = begin_soon(_retire(earlier, [*self._uses]))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def _new_pool(self) -> Pool:
        return await asyncpg.create_pool(
            min_size=0, max_size=self._size, connect=self._connect, init=self._greet, reset=_as_it_is
        )

    async def close(self, wait_s: float) -> None:
        """Let what is under way end, for so long, and close."""
        pool, self._pool = self._pool, None
        if self._uses:
            await asyncio.wait(self._uses, timeout=wait_s)
        for use in self._uses:
            use.cancel()
        if pool is not None:
            pool.terminate()
            if self._uses:
                await asyncio.wait(self._uses)
            await pool.close()
        if self._retiring:
            await asyncio.wait(self._retiring)

    async def fetch(self, sql: str, *given: Any) -> list[asyncpg.Record]:
        """Run one statement. StoreError where there is no connection; else what the driver raises, or
        ClosedMeanwhile."""
        task = begin_soon(self._fetch(sql, given))
        self._uses.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and not (caller and caller.cancelling()):
                raise ClosedMeanwhile("the store was closed") from None
            raise

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._uses.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have been cancelled, and has then no use for it

    async def _fetch(self, sql: str, given: Sequence[Any]) -> list[asyncpg.Record]:
        pool = self._pool
        if pool is None:
            raise StoreClosed("the store is not open")
        try:
            connection = await pool.acquire()
        except FAILURES as error:
            raise translate(error, self._address.place) from error
        try:
            return await connection.fetch(sql, *given)
        except TimeoutError:
            connection.terminate()  # nobody knows what the server still does with it
            self._on_silence()
            raise
        except asyncio.CancelledError:
            connection.terminate()
            raise
        finally:
            await self._give_back(pool, connection)

    async def _give_back(self, pool: Pool, connection: Pooled) -> None:
        try:
            await pool.release(connection)
        except FAILURES as error:
            log.debug("a connection to %s could not be given back: %r", self._address.place, error)

    async def _connect(self, *_: object, **__: object) -> Connection:
        return await connect(self._address, limits=self._limits)

    async def _greet(self, connection: Connection) -> None:
        self._on_new(await timeline(connection))


async def _retire(pool: Pool, uses: Sequence[asyncio.Task[Any]]) -> None:
    """End a pool once what was under way has ended. Nobody is told: a connection that is silent would not answer."""
    if uses:
        await asyncio.wait(uses)
    pool.terminate()


async def _as_it_is(connection: Connection) -> None:
    """Leave a connection that comes back as it is: no statement here changes it."""
