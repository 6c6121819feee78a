"""Reading a SQLite file without a trace: no lock file, no `-wal` or `-shm` is made, nothing is migrated.

While a process has the file open, or after a crash, there is a WAL, and a reading connection uses it. Writers do not
wait for such a snapshot, but the WAL grows while it is held. A file without a WAL is read as immutable, because SQLite
would make a WAL even for a reader; if a writer opens the file meanwhile, `Changed` is raised at the end.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tocsin.errors import StoreCorrupt, StoreUnavailable
from tocsin.storage.api import MAX_SCAN_BYTES, Range, Row, StoreView
from tocsin.storage.snapshot import Changed
from tocsin.storage.sqlite.errors import translate
from tocsin.storage.sqlite.lock import last_commit
from tocsin.storage.sqlite.reader import SCAN_DOWN, SCAN_UP
from tocsin.storage.sqlite.start_checks import check_wal_from_outside, lacking
from tocsin.storage.sqlite.writer import check_layout, connect

FAULTS_SHOWN = 20


class SnapshotReader:
    """A `StoreLook` on one file. StoreUnavailable if there is none."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self.place = str(path)
        _stamp(self.path)

    def integrity(self) -> list[str]:
        """Check every page of the file, in a snapshot of its own; return what is wrong."""
        with self.reading() as db:
            said = [text for (text,) in db.execute(f"PRAGMA integrity_check({FAULTS_SHOWN})")]
        return [] if said == ["ok"] else [line for text in said for line in str(text).splitlines()]

    @contextmanager
    def snapshot(self) -> Iterator[SQLiteSnapshot]:
        with self.reading() as db:
            yield SQLiteSnapshot(db)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a connection in a transaction; errors of SQLite become named ones. RolledBack if the store lacks
        commits."""
        before = _stamp(self.path)
        known = last_commit(self.path.with_name(self.path.name + ".lock"))  # read before the file: commits go on
        alone = not _in_use(self.path)
        try:
            if not alone:
                check_wal_from_outside(self.path)
            with closing(connect(self.path, mode="ro&immutable=1" if alone else "ro", readonly=True)) as db:
                db.execute("BEGIN")
                _check_layout(db, self.path, known)
                yield db
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        if alone and (_in_use(self.path) or _stamp(self.path) != before):
            raise Changed


def _in_use(path: Path) -> bool:
    """Tell whether there is a WAL: a process has the file open, or ended without closing it."""
    wal, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    try:
        return wal.stat().st_size > 0 or shared.exists()
    except FileNotFoundError:
        return False


def _stamp(path: Path) -> tuple[int, int, int, int]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise StoreUnavailable(f"there is no store at {path}: check the name, or start a server to make one") from None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be reached: {error.strerror}") from error
    if not path.is_file():
        raise StoreUnavailable(f"{path} is not a file")
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreUnavailable(f"{path} may not be read: check its rights")
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _check_layout(db: sqlite3.Connection, path: Path, known: int) -> None:
    """Refuse a file that is no store of tocsin, is of a newer layout, or lacks transactions."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if known and not tables:
        raise lacking(path, known, 0)
    row = db.execute("SELECT v FROM meta WHERE k = 'layout'").fetchone() if {"meta", "actor", "kv"} <= tables else None
    check_layout(path, row)
    [found] = db.execute("SELECT v FROM meta WHERE k = 'seq'").fetchone() or (0,)
    if found < known:
        raise lacking(path, known, found)


class SQLiteSnapshot:
    """A `StoreSnapshot`: one open transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def names(self, start: str, limit: int) -> list[str]:
        sql = "SELECT name FROM actor WHERE name > ? ORDER BY name LIMIT ?"
        return [name for (name,) in self._run(sql, (start, limit))]

    def wake_at(self, name: str) -> int | None:
        rows = self._run("SELECT wake_at FROM actor WHERE name = ?", (name,))
        return rows[0][0] if rows else None

    def lineage(self) -> str:
        rows = self._run("SELECT v FROM meta WHERE k = ?", ("lineage",))
        return f"{rows[0][0]:x}" if rows else ""

    def view(self, name: str) -> SQLiteSnapshotView:
        rows = self._run("SELECT id FROM actor WHERE name = ?", (name,))
        return SQLiteSnapshotView(self._db, rows[0][0] if rows else None)

    def _run(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, values).fetchall()


class SQLiteSnapshotView(StoreView):
    """Committed state of one actor, inside an open transaction."""

    def __init__(self, db: sqlite3.Connection, actor: int | None) -> None:
        self._db, self._actor = db, actor

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for key in keys if self._actor is not None else ():
            row = self._db.execute("SELECT value FROM kv WHERE actor = ? AND key = ?", (self._actor, key)).fetchone()
            if row is not None:
                found[key] = _bytes(key, row[0])
        return found

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        answer: list[list[Row]] = [[] for _ in ranges]
        size = 0
        if self._actor is None:
            return answer
        for (start, end, limit), rows in zip(ranges, answer, strict=True):
            for key, value in self._db.execute(SCAN_DOWN if reverse else SCAN_UP, (self._actor, start, end, limit)):
                rows.append((key, _bytes(key, value)))
                size += len(key) + len(value)
                if size >= max_bytes:
                    return answer
        return answer


def _bytes(key: bytes, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise StoreCorrupt(
            f"the value of {key[:64]!r} is no bytes but {type(value).__name__}: others wrote to this file"
        )
    return value
