"""The file of the SQLite engine: its tables, its pragmas, one transaction, one snapshot of reads.

Everything here is synchronous and runs on the thread of one connection.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tocsin.errors import RolledBack, StoreSchema, StoreUnavailable
from tocsin.storage.api import UNSET, Range, Row
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.sqlite_errors import Unsettled, leaves_nothing

log = logging.getLogger("tocsin.storage")

LAYOUT = 1
PAGE_SIZE = 4096
WAL_AUTOCHECKPOINT = 20_000
"""Pages. A safety net: the background checkpoint comes long before."""

BUSY_MS = 5000

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS meta (k TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS actor (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, wake_at INTEGER)",
    "CREATE TABLE IF NOT EXISTS kv (actor INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (actor, key)) WITHOUT ROWID",
)
_PUT = "INSERT OR REPLACE INTO kv (actor, key, value) VALUES (?, ?, ?)"
_DELETE = "DELETE FROM kv WHERE actor = ? AND key = ?"
_SCAN = "SELECT key, value FROM kv WHERE actor = ? AND key >= ? AND key < ? ORDER BY key {} LIMIT ?"
_SCAN_UP, _SCAN_DOWN = _SCAN.format("ASC"), _SCAN.format("DESC")


def connect(path: Path, *, create: bool = False, readonly: bool = False) -> sqlite3.Connection:
    """A connection with the pragmas every connection needs; transactions are ours to begin and end.

    Only the writer may make the file: a file that was removed must not come back empty.
    """
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        connection.execute("PRAGMA cache_size = -65536")
        if readonly:
            connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


class Writer:
    """The one writing connection. `seq` rises with every transaction: it tells a commit from a lost one, and
    our file from another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.starts = 0
        self.seq = 0
        self._db: sqlite3.Connection
        self._inode: tuple[int, int] = (0, 0)
        self._ids: dict[str, int] = {}

    def open(self) -> sqlite3.Connection:
        """Called on the connection's own thread; returns the connection for it to keep. A file that is not
        ours, or newer than us, is left as it was."""
        if self.path.exists() and not os.access(self.path, os.W_OK, effective_ids=True):
            # SQLite would make files beside it with the same rights, and they would stay so.
            raise StoreUnavailable(f"{self.path} is read-only: check the rights of file and folder")
        self._db = connect(self.path, create=True)
        try:
            self._check_layout()
            self._set_pragmas()
            self._migrate()
            self._inode = _inode(self.path)
        except BaseException:
            self._db.close()
            raise
        self._ids = {}
        return self._db

    def _check_layout(self) -> None:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            return
        columns = {row[1] for row in self._db.execute("PRAGMA table_info(meta)")}
        layout = None
        if {"k", "v"} <= columns:
            layout = self._db.execute("SELECT v FROM meta WHERE k = 'layout'").fetchone()
        if layout is None or not isinstance(layout[0], int):
            raise StoreSchema(f"{self.path} is a SQLite database, but not one of tocsin's")
        if layout[0] > LAYOUT:
            raise StoreSchema(
                f"{self.path} was written by a newer tocsin (layout {layout[0]}); this one reads up to "
                f"layout {LAYOUT}: upgrade tocsin"
            )

    def _set_pragmas(self) -> None:
        self._db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        (mode,) = self._db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreUnavailable(f"the file system of {self.path} cannot share memory, which SQLite's WAL needs")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT}")

    def _migrate(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            self._db.execute(statement)
        meta = dict(self._db.execute("SELECT k, v FROM meta"))
        self.starts, self.seq = meta.get("starts", 0) + 1, meta.get("seq", 0) + 1
        values = [("layout", LAYOUT), ("starts", self.starts), ("seq", self.seq)]
        self._db.executemany("INSERT OR REPLACE INTO meta (k, v) VALUES (?, ?)", values)
        self._db.execute("COMMIT")

    def apply(self, group: Sequence[ActorWrites]) -> None:
        """One durable transaction. After an error nothing of it is in the file."""
        if _inode(self.path) != self._inode:
            raise RolledBack(f"{self.path} was replaced or removed while it was in use: start again on the right file")
        new: dict[str, int] = {}
        self._roll_back()  # should an earlier one have failed to
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._bump()
            self._write(group, new)
            try:
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if leaves_nothing(error):
                    raise
                raise Unsettled(error) from error
        finally:
            self._roll_back()
        self.seq += 1
        self._ids.update(new)

    def settle(self) -> bool:
        """Whether the transaction that was left `Unsettled` is in the file. Raises if that cannot be known yet.

        If it is not, its frames may still lie behind the end of the WAL, where a crash would find them; if it is,
        it may not be synced. The empty transaction written here takes their place, or their side.
        """
        before = self.seq
        self._roll_back()
        self._db.execute("BEGIN IMMEDIATE")
        try:
            seq = self._stored_seq()
            if seq in (before, before + 1):
                self._db.execute("UPDATE meta SET v = ? WHERE k = 'seq'", (seq + 2,))
            elif seq not in (before + 2, before + 3):  # what an earlier try of ours left
                raise self._restored()
            self._db.execute("COMMIT")
        finally:
            self._roll_back()
        applied = seq in (before + 1, before + 3)
        self.seq += 3 if applied else 2
        self._ids.clear()
        return applied

    def _roll_back(self) -> None:
        """Never raises: what brought us here is the error to tell of, and the next transaction rolls back first."""
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error as error:
                log.warning("rolling back in %s failed: %s", self.path, error)

    def _bump(self) -> None:
        changed = self._db.execute("UPDATE meta SET v = v + 1 WHERE k = 'seq' AND v = ?", (self.seq,)).rowcount
        if changed != 1:
            raise self._restored()

    def _restored(self) -> RolledBack:
        return RolledBack(f"{self.path} is not as this process left it: it was restored or written by others")

    def _stored_seq(self) -> int:
        (seq,) = self._db.execute("SELECT v FROM meta WHERE k = 'seq'").fetchone()
        return int(seq)

    def truncate_wal(self) -> None:
        """Cut the WAL down, unless a reader stands in the way just now; never waits for one."""
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _write(self, group: Sequence[ActorWrites], new: dict[str, int]) -> None:
        puts: list[tuple[int, bytes, bytes]] = []
        deletes: list[tuple[int, bytes]] = []
        wakes: list[tuple[int | None, int]] = []
        for one in group:
            actor = self._id(one.name, new)
            for key, value in one.rows.items():
                if value is None:
                    deletes.append((actor, key))
                else:
                    puts.append((actor, key, value))
            if one.wake_at is not UNSET:
                wakes.append((one.wake_at, actor))
        # In key order: neighbours share a page.
        if deletes:
            deletes.sort()
            self._db.executemany(_DELETE, deletes)
        if puts:
            puts.sort()
            self._db.executemany(_PUT, puts)
        if wakes:
            self._db.executemany("UPDATE actor SET wake_at = ? WHERE id = ?", wakes)

    def _id(self, name: str, new: dict[str, int]) -> int:
        known = self._ids.get(name) or new.get(name)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO actor (name) VALUES (?)", (name,))
            (known,) = self._db.execute("SELECT id FROM actor WHERE name = ?", (name,)).fetchone()
            new[name] = known
        return known


def _inode(path: Path) -> tuple[int, int]:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be reached: {error.strerror}") from error
    return stat.st_dev, stat.st_ino


class Reader:
    """A reading connection: every call is one snapshot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection
        self._ids: dict[str, int] = {}

    def open(self) -> sqlite3.Connection:
        self._db = connect(self._path, readonly=True)
        self._ids = {}
        return self._db

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            if self._db.in_transaction:  # SQLite may have ended it itself, at an error worth more than ours
                self._db.execute("COMMIT")

    def id(self, name: str) -> int | None:
        known = self._ids.get(name)
        if known is None:
            row = self._db.execute("SELECT id FROM actor WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            known = self._ids[name] = int(row[0])
        return known

    def stored(self, name: str) -> tuple[bool, int | None]:
        """Whether the actor exists, and when it wants waking."""
        row = self._db.execute("SELECT wake_at FROM actor WHERE name = ?", (name,)).fetchone()
        return (True, row[0]) if row else (False, None)

    def get(self, name: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        actor = self.id(name)
        if actor is None or not keys:
            return {}
        found: dict[bytes, bytes] = {}
        with self._snapshot():
            for key in keys:
                row = self._db.execute("SELECT value FROM kv WHERE actor = ? AND key = ?", (actor, key)).fetchone()
                if row is not None:
                    found[key] = row[0]
        return found

    def scan_many(self, name: str, ranges: Sequence[Range], max_bytes: int, reverse: bool) -> list[list[Row]]:
        actor = self.id(name)
        answer: list[list[Row]] = [[] for _ in ranges]
        if actor is None:
            return answer
        sql = _SCAN_DOWN if reverse else _SCAN_UP
        size = 0
        with self._snapshot():
            for (start, end, limit), rows in zip(ranges, answer, strict=True):
                for row in self._db.execute(sql, (actor, start, end, limit)):
                    rows.append(row)
                    size += len(row[0]) + len(row[1])
                    if size >= max_bytes:
                        return answer
        return answer

    def wakes(self, after_id: int, limit: int) -> list[tuple[int, str, int]]:
        """Actors that want waking, in id order, behind `after_id`."""
        sql = "SELECT id, name, wake_at FROM actor WHERE id > ? AND wake_at IS NOT NULL ORDER BY id LIMIT ?"
        return self._db.execute(sql, (after_id, limit)).fetchall()

    def names(self, start: str, limit: int) -> list[str]:
        sql = "SELECT name FROM actor WHERE name > ? ORDER BY name LIMIT ?"
        return [name for (name,) in self._db.execute(sql, (start, limit))]
