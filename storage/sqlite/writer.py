"""The file of the SQLite engine: its tables, its pragmas, one transaction.

Everything here is synchronous and runs on the thread of one connection.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from tocsin.errors import RolledBack, StoreCorrupt, StoreSchema, StoreUnavailable
from tocsin.storage.api import UNSET
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.sqlite.errors import Unsettled, leaves_nothing
from tocsin.storage.sqlite.identity import Identity
from tocsin.storage.sqlite.lineage import FileReplaced, draw
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.start_checks import (
    check_not_cut,
    check_nothing_lost,
    check_wal_is_of_this_file,
    check_whole,
    lacking,
    uri_of,
)
from tocsin.storage.sqlite.wal import WalLost, make_private

log = logging.getLogger("tocsin.storage")

LAYOUT = 1
PAGE_SIZE = 4096
WAL_AUTOCHECKPOINT = 20_000
"""Pages. A safety net: the checkpoint of `upkeep` comes long before."""

WAL_KEPT_BYTES = 64 * 1024 * 1024
"""SQLite cuts a longer WAL to this length when it begins anew."""
BUSY_MS = 5000
MAX_IDS = 10_000
"""Actors whose ids a connection keeps in memory."""

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS meta (k TEXT PRIMARY KEY, v INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS actor (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, wake_at INTEGER)",
    "CREATE TABLE IF NOT EXISTS kv (actor INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,"
    " PRIMARY KEY (actor, key)) WITHOUT ROWID",
)
ROWS_AT_ONCE = 16
_PUT = tuple(
    f"INSERT OR REPLACE INTO kv (actor, key, value) VALUES {', '.join(['(?, ?, ?)'] * rows)}"
    for rows in range(ROWS_AT_ONCE + 1)
)
"""By the number of rows. Sixteen rows release the GIL once; with more it becomes no faster, by measurement."""
_DELETE = tuple(
    f"DELETE FROM kv WHERE actor = ? AND key IN ({', '.join('?' * rows)})" for rows in range(ROWS_AT_ONCE + 1)
)
"""By the number of rows, for the sake of the GIL: `executemany` releases it for each row, and in an app that keeps it
busy waits as often to have it back."""


def connect(path: Path, *, mode: str = "rw", readonly: bool = False) -> sqlite3.Connection:
    """Open a connection with the pragmas that every connection needs; it begins and ends no transaction by itself.

    Only the writer may create the file: a file that was removed must not come back empty.
    """
    uri = uri_of(path, f"mode={mode}")
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


def check_layout(path: Path, row: tuple[object] | None) -> None:
    """Refuse a file that is no store of tocsin, by its row of the layout, or is of a newer layout."""
    if row is None or not isinstance(row[0], int):
        raise StoreSchema(f"{path} is a SQLite database, but not one of tocsin's")
    if row[0] > LAYOUT:
        raise StoreSchema(
            f"{path} was written by a newer tocsin (layout {row[0]}); this one reads up to layout {LAYOUT}: "
            "upgrade tocsin"
        )


class Writer:
    """The one writing connection. `seq` rises with every transaction: by it a lost commit, and another file, are
    noticed."""

    def __init__(self, path: Path, lock: LockFile, identity: Identity) -> None:
        self.path = path
        self.starts = 0
        self.seq = 0
        self._lock, self._identity = lock, identity
        self._db: sqlite3.Connection
        self._ids: dict[str, int] = {}
        self._meta_page = 0
        self._lineage, self._lineages = 0, frozenset[int]()

    def open(self) -> sqlite3.Connection:
        """Open the store on the connection's own thread, and return the connection for the thread to keep.

        A file that is no store of tocsin, or of a newer layout, is left as it was."""
        if self.path.exists() and not os.access(self.path, os.W_OK, effective_ids=True):
            # SQLite would create files beside it with the same rights, which would stay read-only.
            raise StoreUnavailable(f"{self.path} is read-only: check the rights of file and folder")
        check_whole(self.path, self._lock)
        self._lineages = frozenset()
        held = self.path.exists()
        if held:
            self._identity.hold()
            self._lineages = check_wal_is_of_this_file(self.path, self._identity, self._lock)
            check_not_cut(self.path, self._identity)
        try:
            make_private(self.path)
            self._db = connect(self.path, mode="rwc")
            self._open(held)
        except BaseException:
            self._identity.let_go()
            raise
        return self._db

    def _open(self, held: bool) -> None:
        try:
            self._check_layout()
            check_nothing_lost(self.path, self._lock.last_commit(), self._stored_seq() if self._tables() else 0)
            self._set_pragmas()
            self._migrate()
            if not held:
                self._identity.hold()
            self._lock.note_file(self._identity.inode)
            self._remember_page()
        except BaseException:
            self._db.close()
            raise
        self._ids = {}

    def _remember_page(self) -> None:
        (size,) = self._db.execute("PRAGMA page_size").fetchone()
        (self._meta_page,) = self._db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'meta'").fetchone()
        self._mark_file()
        self._identity.sync()
        moved, counter = self._identity.lineage.hold(
            self._meta_page, size, self._lineage, self._lineages, lambda: self.seq
        )
        self._lock.note_moved(self._meta_page, moved)
        self._lock.note_counter(counter)
        self._identity.wal.hold(self.seq, self._identity.lineage.moved_seq)

    def _mark_file(self) -> None:
        """Move this start's lineage into the file, so that no earlier copy is taken for it.

        The store opens even if that fails (a full disk, a reader of another program): the WAL has the lineage, too."""
        try:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            log.debug("the lineage of %s could not be moved into the file yet: %s", self.path, error)

    def _tables(self) -> set[str]:
        return {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def _check_layout(self) -> None:
        if not self._tables():
            return
        columns = {row[1] for row in self._db.execute("PRAGMA table_info(meta)")}
        layout = None
        if {"k", "v"} <= columns:
            layout = self._db.execute("SELECT v FROM meta WHERE k = 'layout'").fetchone()
        check_layout(self.path, layout)

    def _set_pragmas(self) -> None:
        self._db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        (mode,) = self._db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreUnavailable(f"the file system of {self.path} cannot share memory, which SQLite's WAL needs")
        self._db.execute("PRAGMA synchronous = FULL")
        # A statement of several rows notes the pages it changes, in case it fails halfway. More than 15 went to a file.
        self._db.execute("PRAGMA temp_store = MEMORY")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {WAL_AUTOCHECKPOINT}")
        self._db.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")

    def _migrate(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            self._db.execute(statement)
        meta = dict(self._db.execute("SELECT k, v FROM meta"))
        self.starts, self.seq = meta.get("starts", 0) + 1, meta.get("seq", 0) + 1
        self._lineage, parent = draw(), meta.get("lineage", 0)
        self._lineages |= {parent}
        values = [("layout", LAYOUT), ("starts", self.starts), ("seq", self.seq)]
        values += [("lineage", self._lineage), ("parent", parent)]
        self._db.executemany("INSERT OR REPLACE INTO meta (k, v) VALUES (?, ?)", values)
        # Writes page 1, whose counter tells this file from copies that SQLite makes of it.
        self._db.execute(f"PRAGMA user_version = {self.starts % 2**31}")
        self._db.execute("COMMIT")
        self._lock.note_commit(self.seq)

    def check(self) -> None:
        """Verify that the open file is still the one at the store's path, and that its pages match SQLite's cache."""
        if self._identity.is_untouched(self._lock):
            return
        self._lock.check()
        try:
            self.check_file()
        except WalLost:
            self._move_wal_without_name()
            raise

    def _move_wal_without_name(self) -> None:
        """Move a WAL that was removed into the file at once: SQLite still has it open, but its commits would be lost if
        this process was killed."""
        if not self._identity.wal.whole or self._identity.lineage.moved_seq() >= self.seq:
            return
        try:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            log.warning("the WAL of %s has no name, and could not be moved into the file: %s", self.path, error)
        if self._identity.lineage.moved_seq() >= self.seq:
            log.warning("the WAL of %s has no name: what it held was moved into the file", self.path)

    def check_file(self) -> None:
        """Verify file and WAL alone, on any thread."""
        self._identity.check()

    def apply(self, group: Sequence[ActorWrites]) -> None:
        """Write one durable transaction; an empty one shows whether the store can be written. After an error nothing of
        it is in the file."""
        self.check()
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
        if len(self._ids) + len(new) > MAX_IDS:
            self._ids.clear()
        self._ids.update(new)
        self._written()

    def _written(self) -> None:
        """Note that the transaction is durable, and verify that the store's path still leads to it."""
        self._lock.note_commit(self.seq)
        # Only what the file holds for certain: a loss of power may undo a checkpoint that is not synced yet.
        if (moved := self._identity.committed(self.seq)) is not None:
            self._lock.note_moved(self._meta_page, moved)

    def settle(self) -> bool:
        """Return whether the transaction that was left `Unsettled` is in the file. Raise if that is not known yet.

        If it is not, its frames may still lie behind the end of the WAL, where a crash would find them; if it is,
        it may not be synced. The empty transaction written here takes their place, or their side.
        """
        before = self.seq
        self.check()
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
        self._written()
        return applied

    def _roll_back(self) -> None:
        """Roll back without raising: the error before this is the one to report, and the next transaction rolls back
        first."""
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
        """Empty the WAL, unless a reader prevents it at present; never wait for one."""
        self.check_file()
        self._db.execute("PRAGMA busy_timeout = 0")
        try:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def move_rest(self) -> bool:
        """Move what is left of the WAL into the file, between two transactions; return whether nothing is left.

        It waits for nobody: a reader may prevent it."""
        self.check_file()
        _, frames, moved = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return bool(frames == moved)

    def leave(self) -> None:
        """Prepare closing, which moves the WAL into the file at the store's path.

        If that is another file, or if the WAL was cut, empty the WAL first and keep a copy."""
        wal = self._identity.wal
        try:
            self.check_file()
        except FileReplaced:
            if self.path.exists():
                wal.forget()
        except WalLost:
            wal.keep_stranger()
            if not wal.whole:
                wal.forget()
        except StoreUnavailable as error:
            log.warning("%s", error)

    def conclude(self) -> None:
        """Note after closing that no commit can be missing at the next start, if so.

        RolledBack if a commit is neither in the file nor in the WAL: the next start raises it, too."""
        try:
            self._identity.check_file()
            self._identity.lineage.check()
        except FileReplaced as error:
            raise RolledBack(
                f"{self.path} is not, or not all of, the file that was committed to: it was replaced, overwritten, "
                f"removed or cut while it was in use. Put it back before the next start, which refuses it while "
                f"transactions are missing; to go on without them, remove {self.path.name}.lock"
            ) from error
        found = self._identity.lineage.moved_seq()
        if found >= self.seq:
            self._lock.note_commit(0)
            return
        try:  # closing moves nothing on a full disk, nor while another program has the file open
            self._identity.wal.check()
            held = self._identity.wal.whole
        except WalLost:
            held = False
        if not held:
            raise lacking(self.path, self.seq, found)

    def _write(self, group: Sequence[ActorWrites], new: dict[str, int]) -> None:
        puts: list[tuple[int, bytes, bytes]] = []
        deletes: list[tuple[int, list[bytes]]] = []
        wakes: list[tuple[int | None, int]] = []
        for one in group:
            actor = self._id(one.name, new)
            puts.extend([(actor, key, value) for key, value in one.rows.items() if value is not None])
            if gone := [key for key, value in one.rows.items() if value is None]:
                deletes.append((actor, gone))
            if one.wake_at is not UNSET:
                wakes.append((one.wake_at, actor))
        # In key order: neighbours share a page.
        for actor, gone in sorted(deletes):
            gone.sort()
            for at in range(0, len(gone), ROWS_AT_ONCE):
                keys = gone[at : at + ROWS_AT_ONCE]
                self._db.execute(_DELETE[len(keys)], (actor, *keys))
        puts.sort()
        for at in range(0, len(puts), ROWS_AT_ONCE):
            part = puts[at : at + ROWS_AT_ONCE]
            self._db.execute(_PUT[len(part)], tuple(chain.from_iterable(part)))
        if wakes:
            self._db.executemany("UPDATE actor SET wake_at = ? WHERE id = ?", wakes)

    def _id(self, name: str, new: dict[str, int]) -> int:
        known = self._ids.get(name) or new.get(name)
        if known is None:
            self._db.execute("INSERT OR IGNORE INTO actor (name) VALUES (?)", (name,))
            row = self._db.execute("SELECT id FROM actor WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise StoreCorrupt(f"the index of actors in {self.path} is damaged: it hides {name!r}")
            known = new[name] = int(row[0])
        return known
