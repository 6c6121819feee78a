"""Reads of the SQLite engine: each call is one hop to a reader's thread, and one snapshot there."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tocsin.errors import StoreError
from tocsin.storage.api import MAX_SCAN_BYTES, Range, Row, StoreView
from tocsin.storage.sqlite.errors import translate
from tocsin.storage.sqlite.identity import Identity
from tocsin.storage.sqlite.thread import Thread
from tocsin.storage.sqlite.writer import MAX_IDS, connect

T = TypeVar("T")

_SCAN = "SELECT key, value FROM kv WHERE actor = ? AND key >= ? AND key < ? ORDER BY key {} LIMIT ?"
SCAN_UP, SCAN_DOWN = _SCAN.format("ASC"), _SCAN.format("DESC")
KEYS_AT_ONCE = 64
_GET = tuple(
    f"SELECT key, value FROM kv WHERE actor = ? AND key IN ({', '.join('?' * keys)})"
    for keys in range(KEYS_AT_ONCE + 1)
)
"""By the number of keys."""

STEPS_BETWEEN_LOOKS = 10_000
"""Steps of SQLite's virtual machine, about a millisecond, after which a read checks that somebody waits for it."""


class Asked:
    """The mark of a read whose caller may have left. `left` is set on the loop's thread, and read on the reader's."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = False


class NobodyWaits(Exception):
    """A read was not begun, because its caller had left. Nobody receives this error."""


class Reader:
    """A reading connection: every call is one snapshot. Everything here is synchronous and runs on its thread."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self._path, self._identity = path, identity
        self._db: sqlite3.Connection
        self._ids: dict[str, int] = {}
        self._asked: Asked | None = None

    def run(self, asked: Asked, function: Callable[..., T], *args: object) -> T:
        """Call a function of this reader, if the file is still the store's.

        The read is interrupted when its caller leaves, so that the next one need not wait for it."""
        if asked.left:
            raise NobodyWaits
        if not self._identity.is_untouched():
            self._identity.check()
        self._asked = asked
        try:
            return function(*args)
        finally:
            self._asked = None

    def _is_unwanted(self) -> bool:
        return self._asked is not None and self._asked.left

    def open(self) -> sqlite3.Connection:
        self._db = connect(self._path, readonly=True)
        # `interrupt` would hit whatever runs by then, perhaps the read of the next caller.
        self._db.set_progress_handler(self._is_unwanted, STEPS_BETWEEN_LOOKS)
        self._ids = {}
        return self._db

    @contextmanager
    def _snapshot(self, *, several: bool) -> Iterator[None]:
        """Let several statements see the same state; one alone is a snapshot by itself."""
        if not several:
            yield
            return
        try:
            self._db.execute("BEGIN")  # may be interrupted although it took effect
            yield
        finally:
            self._asked = None  # the end of a snapshot must not be interrupted: the next one could not begin
            if self._db.in_transaction:  # after some errors SQLite has ended it, and that error must be the one raised
                self._db.execute("COMMIT")

    def id(self, name: str) -> int | None:
        known = self._ids.get(name)
        if known is None:
            row = self._db.execute("SELECT id FROM actor WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            if len(self._ids) >= MAX_IDS:
                self._ids.clear()
            known = self._ids[name] = int(row[0])
        return known

    def stored(self, name: str) -> tuple[bool, int | None]:
        """Return whether the actor exists, and its wake time."""
        row = self._db.execute("SELECT wake_at FROM actor WHERE name = ?", (name,)).fetchone()
        return (True, row[0]) if row else (False, None)

    def get(self, name: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        actor = self.id(name)
        if actor is None or not keys:
            return {}
        found: dict[bytes, bytes] = {}
        with self._snapshot(several=len(keys) > KEYS_AT_ONCE):
            for at in range(0, len(keys), KEYS_AT_ONCE):
                part = keys[at : at + KEYS_AT_ONCE]
                found.update(self._db.execute(_GET[len(part)], (actor, *part)))
        return found

    def scan_many(self, name: str, ranges: Sequence[Range], max_bytes: int, reverse: bool) -> list[list[Row]]:
        actor = self.id(name)
        answer: list[list[Row]] = [[] for _ in ranges]
        if actor is None:
            return answer
        sql = SCAN_DOWN if reverse else SCAN_UP
        size = 0
        with self._snapshot(several=len(ranges) > 1):
            for (start, end, limit), rows in zip(ranges, answer, strict=True):
                for row in self._db.execute(sql, (actor, start, end, limit)):
                    rows.append(row)
                    size += len(row[0]) + len(row[1])
                    if size >= max_bytes:
                        return answer
        return answer

    def wakes(self, after_id: int, limit: int) -> list[tuple[int, str, int]]:
        """Return the actors that have a wake time, in id order, with ids after `after_id`."""
        sql = "SELECT id, name, wake_at FROM actor WHERE id > ? AND wake_at IS NOT NULL ORDER BY id LIMIT ?"
        return self._db.execute(sql, (after_id, limit)).fetchall()

    def names(self, start: str, limit: int) -> list[str]:
        sql = "SELECT name FROM actor WHERE name > ? ORDER BY name LIMIT ?"
        return [name for (name,) in self._db.execute(sql, (start, limit))]


class Reading:
    """A reader and its thread, called from the event loop. `met` is called with each error."""

    def __init__(self, reader: Reader, met: Callable[[StoreError], None]) -> None:
        self.reader, self.thread = reader, Thread()
        self._met = met

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call a function of the reader. A caller that is cancelled frees the thread for others."""
        asked = Asked()
        try:
            return await self.thread.execute(self.reader.run, asked, function, *args)
        except asyncio.CancelledError:
            asked.left = True
            raise
        except (sqlite3.Error, StoreError) as error:
            named = translate(error) if isinstance(error, sqlite3.Error) else error
            self._met(named)
            raise named from named.__cause__


class SQLiteView(StoreView):
    """Committed state of one actor, read on a given thread."""

    def __init__(self, name: str, reading: Reading) -> None:
        self.name = name
        self._reading = reading

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._reading.run(self._reading.reader.get, self.name, keys)

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        return await self._reading.run(self._reading.reader.scan_many, self.name, ranges, max_bytes, reverse)
