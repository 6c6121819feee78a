"""The connection that a host keeps for itself: it hears hints, and its lock tells others that this process lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tocsin.errors import StoreError, StoreUnavailable
from tocsin.storage.postgres.address import Address
from tocsin.storage.postgres.connections import connect, limits_for_life
from tocsin.storage.postgres.errors import FAILURES, translate
from tocsin.storage.tasks import begin_soon

if TYPE_CHECKING:
    from tocsin.storage.postgres.connections import Connection

log = logging.getLogger("tocsin.storage")

AGAIN_S: Final = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Times between attempts to have a connection again; the last one for good. Others wait 250 ms for our lock."""
LOCK_AGAIN_S: Final = 0.05
PROBE_S: Final = 3.0
"""A connection that was cut without a word looks like a quiet one: it is asked so often."""
PROBE_ANSWER_S: Final = 5.0
"""Most time for the answer. With PROBE_S it is less than the server takes to find a cut connection (KEEPALIVE) and to
give its lock to others: this host stops to trust its memory before they act."""
_END_EARLIER: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = $2 AND locktype = 'advisory' AND granted "
    "AND objsubid = 1 AND classid::int8 = ($1::int8 >> 32) & 4294967295 AND objid::int8 = $1::int8 & 4294967295"
)


def channel_of(schema: str, host: str = "") -> str:
    """Return the name under which hints travel: those for one host, or for all."""
    return f"{schema}_{host}" if host else f"{schema}_hosts"


class Session:
    """Makes the connection, and makes it again when it breaks, with all that it held."""

    def __init__(self, address: Address) -> None:
        self._address, self._limits = address, limits_for_life(address.timing)
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._host, self._lock = "", 0
        self._pid = 0  # of the process at the server that had the lock last
        self.lost_at: float | None = None
        """The loop's time at which the connection that held the lock was found to be broken; None while it is held."""
        self.held_at = float("-inf")
        """The loop's time at which the lock was had last."""
        self._hinted = asyncio.Event()
        self._broken = asyncio.Event()
        self._held = asyncio.Event()
        """Set while the connection listens, and holds the lock that it is to hold."""
        self._closed = False

    async def open(self) -> None:
        """Connect, or raise why not."""
        self._closed = False
        self._hinted.clear()
        connection = await connect(self._address, limits=self._limits)
        self._task = begin_soon(self._keep(connection))

    async def close(self) -> None:
        self._closed = True
        self._hinted.set()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def stand_for(self, host: str, lock: int, wait_s: float) -> None:
        """Listen for this host, and take its lock (0: none), in place of what was before. StoreUnavailable."""
        if self._held.is_set() and (host, lock) == (self._host, self._lock):
            return
        self._host, self._lock, self.lost_at = host, lock, None
        self._held.clear()
        self._broken.set()
        try:
            async with asyncio.timeout(wait_s):
                await self._held.wait()
        except TimeoutError:
            raise StoreUnavailable(
                f"no connection of its own was had within {wait_s:g} s; the store is {self._address.place}"
            ) from None

    async def hints(self) -> AsyncIterator[None]:
        while True:
            await self._hinted.wait()
            if self._closed:
                return
            self._hinted.clear()
            yield

    async def _keep(self, connection: Connection | None) -> None:
        failures = 0
        try:
            while True:
                try:
                    connection = connection or await connect(self._address, limits=self._limits)
                    await self._hold(connection, failures)
                    failures = 0
                except (StoreError, *FAILURES) as error:
                    if failures == len(AGAIN_S):  # told once, and not for a connection that is back at once
                        why = error if isinstance(error, StoreError) else translate(error, self._address.place)
                        log.warning("hints from other hosts do not arrive: %s", why)
                if connection is not None:
                    connection.terminate()
                    connection = None
                await asyncio.sleep(AGAIN_S[min(failures, len(AGAIN_S) - 1)])
                failures += 1
        finally:
            if connection is not None:
                connection.terminate()

    async def _hold(self, connection: Connection, failures: int) -> None:
        """Return when the connection is to be made anew."""
        self._broken.clear()
        host, lock = self._host, self._lock
        connection.add_termination_listener(lambda _: self._broken.set())
        for channel in {channel_of(self._address.schema), channel_of(self._address.schema, host)}:
            await connection.add_listener(channel, lambda *_: self._hinted.set())
        pid = await connection.fetchval("SELECT pg_backend_pid()")  # a proxy tells the driver another one
        while lock and not await connection.fetchval("SELECT pg_try_advisory_lock($1)", lock):
            # Another host looks whether it is free, or the server has not noticed yet that we were cut off.
            await connection.fetch(_END_EARLIER, lock, self._pid)
            if await self._breaks_within(LOCK_AGAIN_S):
                return
        if failures > len(AGAIN_S):
            log.info("hints from other hosts arrive again")
        if not self._broken.is_set():
            self._held.set()
            self._pid, self.lost_at = pid, None
            self.held_at = asyncio.get_running_loop().time() if lock else self.held_at
        self._hinted.set()  # what came in between was missed
        try:
            while not await self._breaks_within(PROBE_S):
                await connection.fetchval("SELECT 1", timeout=min(PROBE_ANSWER_S, self._limits.silence_s))
        finally:
            self._held.clear()
            if lock == self._lock:  # and not given up for that of another host
                self.lost_at = asyncio.get_running_loop().time() if lock else None

    async def _breaks_within(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                await self._broken.wait()
        except TimeoutError:
            return False
        return True
