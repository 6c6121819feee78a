"""Background work of the SQLite engine: it keeps the WAL bounded, and notices when trouble has passed.

It runs on a thread of its own; only the short end of a checkpoint runs on the writer's.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tocsin.errors import StoreClosed, StoreError, StoreFull
from tocsin.storage.aside import aside
from tocsin.storage.condition import Condition
from tocsin.storage.sqlite.reserve import Reserve
from tocsin.storage.sqlite.thread import Thread
from tocsin.storage.sqlite.writer import Writer, connect

log = logging.getLogger("tocsin.storage")

CHECKPOINT_BYTES = 4 * 1024 * 1024
TRUNCATE_BYTES = 64 * 1024 * 1024
WARN_BYTES = 256 * 1024 * 1024
LOOK_S = 1.0
"""Seconds between two looks while something is wrong: a full disk, a store that fails, a WAL that is too long."""


class Upkeep:
    """A connection of its own, and a task that lives as long as there is something to do."""

    def __init__(
        self,
        path: Path,
        writer: Thread,
        file: Writer,
        reserve: Reserve,
        condition: Condition,
        probe: Callable[[], Awaitable[None]],
    ) -> None:
        """`probe` writes an empty transaction, or raises a StoreError."""
        self._wal = path.with_name(path.name + "-wal")
        self._path, self._writer, self._file = path, writer, file
        self._reserve, self._condition, self._probe = reserve, condition, probe
        self._db: sqlite3.Connection
        self._thread = Thread()
        self._task: asyncio.Task[None] | None = None
        self._stopped: asyncio.Event | None = None
        self._warned = False
        self._all_moved_at = 0  # how long the WAL was when all of it was in the file

    # ---- Life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._thread.open(self._connect)

    def _connect(self) -> sqlite3.Connection:
        """Connect at the start: by a path that leads to another file later, the WAL would be moved into that one."""
        self._db = connect(self._path)
        return self._db

    def start(self) -> None:
        self._stopped = asyncio.Event()
        if self._condition.trouble is not None:
            self.look()

    async def stop(self) -> None:
        if self._stopped is not None:
            self._stopped.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        await self._thread.close()

    def forget(self) -> None:
        """Drop task and thread in a forked process: they are the parent's."""
        self._task = self._stopped = None
        self._thread.forget()

    # ---- When to look ----------------------------------------------------------------------------

    def look(self) -> None:
        """Start the task, unless it runs: it looks now, and again as long as there is something to do."""
        if self._stopped is not None and not self._stopped.is_set() and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._keep_up(self._stopped))

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def wal_bytes(self) -> int:
        try:
            return os.stat(self._wal).st_size
        except OSError:
            return 0

    async def _keep_up(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            large = await self._bound_wal()
            if self._condition.passes:
                await self._see_whether_it_passed()
            if not large and not self._condition.passes:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), LOOK_S)

    # ---- Trouble ---------------------------------------------------------------------------------

    async def _see_whether_it_passed(self) -> None:
        refusals = self._condition.refusals
        if self._condition.full and not await aside(self._reserve.make):
            return
        try:
            await self._probe()
        except StoreFull:
            return
        except StoreError as error:
            self._condition.note(error, writing=True)
        else:
            self._condition.has_space(refusals)
            self._condition.works()

    # ---- The WAL ---------------------------------------------------------------------------------

    async def _bound_wal(self) -> bool:
        """Shorten the WAL; return whether it is still longer than it should be."""
        # On a full disk the WAL is moved whatever its size: the next transactions then reuse its space.
        least = 1 if self._condition.full else CHECKPOINT_BYTES
        try:
            if (size := self.wal_bytes) >= least and (size != self._all_moved_at or self._condition.full):
                await self.move_wal()
                # What was committed meanwhile is little. Once nothing is left the next commit begins the WAL anew, in
                # place: on bytes that the disk has already a commit is a quarter faster than at the end of the file.
                self._all_moved_at = size if await self._writer.run(self._file.move_rest) else 0
            if self.wal_bytes >= TRUNCATE_BYTES:
                await self._writer.run(self._file.truncate_wal)
        except StoreError as error:
            self._unmoved(error)
        size = self.wal_bytes
        if size >= WARN_BYTES and not self._warned:
            log.warning(
                "the WAL of %s has %d MiB: another program reads the store in one transaction for long; it is cut "
                "when that ends",
                self._path,
                size // 2**20,
            )
        self._warned = size >= WARN_BYTES
        return size >= TRUNCATE_BYTES

    async def move_wal(self) -> None:
        try:
            await self._thread.run(self._checkpoint)
        except StoreError as error:
            self._unmoved(error)

    def _unmoved(self, error: StoreError) -> None:
        """Log it: commits do not depend on it, and the next look tries again. Known trouble is not logged twice."""
        level = logging.DEBUG if self._condition.trouble or isinstance(error, StoreClosed) else logging.WARNING
        log.log(level, "the WAL of %s could not be moved into the file: %r", self._path, error)

    def _checkpoint(self) -> None:
        """Move the WAL into the file as far as readers no longer need it, while commits go on."""
        self._file.check_file()
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
