"""Checks before a SQLite file is opened as the whole store. SQLite itself, without an error, takes an empty file for a
new one, moves the pages of any WAL into any file, and deletes a WAL that it cannot read.

The lock file tells the last commit of a process that did not stop in order. The pages of file and WAL tell whether
they belong together: see `lineage`.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

from tocsin.errors import RolledBack, StoreCorrupt
from tocsin.storage.sqlite.identity import Identity
from tocsin.storage.sqlite.lineage import HEAD, READS_OF_A_PAGE, Mark, counter, is_base, small_table
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.wal import head_of_wal, images_in_wal, keep_wal, page_size_in_wal, pages_in_wal, wal_of

_META_PAGE: Final = 2
"""The first page after the schema: `meta` is the first table, also after a VACUUM."""

_NO_PAGE: Final = 0x40000000
"""The offset of SQLite's locks: the page that holds this byte is never written."""


def check_whole(path: Path, lock: LockFile) -> None:
    """Refuse a missing or empty file that SQLite would take for a new store although there was one."""
    if path.exists() and path.stat().st_size:
        return
    state, wal = "is empty" if path.exists() else "is missing", wal_of(path)
    if wal.exists() and wal.stat().st_size:
        raise StoreCorrupt(
            f"{path} {state}, but {wal.name} holds transactions of it: put the file back, or move {wal.name} away"
        )
    if path.exists() and path.with_name(path.name + ".reserve").exists():
        raise StoreCorrupt(f"{path} {state}, but there was a store: restore a backup, or remove it to begin anew")
    if known := lock.last_commit():
        raise RolledBack(
            f"{path} {state}, but {known} transactions were committed to it, and the process that had it did not stop "
            f"in order: put the file back or restore a backup. To begin anew, remove {path.name}.lock"
        )


def check_wal_is_of_this_file(path: Path, identity: Identity, lock: LockFile) -> frozenset[int]:
    """Refuse a WAL of another file, whose pages SQLite would move into this one.

    Return the lineages that the WAL may bring into the file."""
    wal = wal_of(path)
    if not wal.exists() or not wal.stat().st_size:
        return frozenset()
    size = identity.pages()[1]
    (page, moved), noted = lock.moved(), lock.counter()
    number, counted = page or _META_PAGE, counter(identity.page(1, HEAD))
    mark = Mark.of(small_table(identity.page(number, size)))
    heads, marks = _marks_in_wal(path, number)
    # The first page 1 in the WAL was written at most once more than the file's; a file with a WAL has a counter.
    made_by_sqlite = counted < max(noted, heads[0] - 1 if heads else 0, 1 if marks else 0)
    if mark.seq < moved or made_by_sqlite or lock.another_file(identity.inode) or not is_base(mark, marks):
        raise _not_of_this_file(path)
    return frozenset(mark.lineage for mark in marks)


def _marks_in_wal(path: Path, number: int) -> tuple[list[int], list[Mark]]:
    """Return the counters of all pages 1 in the WAL, and the marks of all pages of `meta`, which has this number."""
    head = head_of_wal(path)
    if not (size := page_size_in_wal(head)):
        return [], []
    images = images_in_wal(path, size, frozenset({1, number}), size)
    tables = [small_table(page) for at, page in images if at == number]
    return [counter(page) for at, page in images if at == 1], [Mark.of(rows) for rows in tables if "layout" in rows]


def check_wal_from_outside(path: Path) -> None:
    """Check the same for a reader from outside: only what did not change during the check is judged.

    Only SQLite opens the file: closing it here would release the locks that this process may have on it.
    """
    for _ in range(READS_OF_A_PAGE):
        head, found = head_of_wal(path), _mark_in_file(path)
        if found is None:
            continue
        _, marks = _marks_in_wal(path, found[0])
        if (head, found) == (head_of_wal(path), _mark_in_file(path)):
            if not is_base(found[1], marks):
                raise _not_of_this_file(path)
            return


def uri_of(path: Path, query: str) -> str:
    """Return a path as SQLite takes one with a query. `Path.as_uri` imports what it needs when it is called, which
    fails where no descriptor is left, and hides that."""
    return f"file://{quote_from_bytes(os.fsencode(path.absolute()))}?{query}"


def _mark_in_file(path: Path) -> tuple[int, Mark] | None:
    """Return the page of `meta` in the file itself, and the mark on it, whatever is in the WAL.

    None if the file cannot be read without its WAL: a checkpoint is under way, or was killed."""
    uri = uri_of(path, "mode=ro&immutable=1")
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as db:
        found = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'meta'").fetchone()
        if found is None:  # a new file: all is in its WAL
            return _META_PAGE, Mark.of({})
        return int(found[0]), Mark.of(dict(db.execute("SELECT k, v FROM meta")))
    return None


def _not_of_this_file(path: Path) -> StoreCorrupt:
    wal = wal_of(path)
    return StoreCorrupt(
        f"{path} is not the file that {wal.name} belongs to: it was replaced behind a crash. Move "
        f"{wal.name} away if {path.name} is a backup, or put the file back that was there"
    )


def check_not_cut(path: Path, identity: Identity) -> None:
    """Refuse a file that lacks pages which it has by its header.

    With a WAL, SQLite takes the length from there and reads missing pages as zeros. A checkpoint that was killed leaves
    pages missing that the WAL still has."""
    pages, size = identity.pages()
    there = path.stat().st_size // size if size else 0
    wal = wal_of(path)
    if there >= pages or not wal.exists() or not wal.stat().st_size:
        return
    missing = set(range(there + 1, pages + 1)) - {_NO_PAGE // size + 1}
    if lost := len(missing - pages_in_wal(path, size)):
        raise StoreCorrupt(
            f"{path} was cut: {lost:,} of its {pages:,} pages are missing. Nothing was changed: restore a backup"
        )


def check_nothing_lost(path: Path, known: int, found: int) -> None:
    """Refuse a store that lacks commits of a process that ended without a stop in order."""
    if found < known:
        raise lacking(path, known, found, keep_wal(path))


def lacking(path: Path, known: int, found: int, kept: str = "") -> RolledBack:
    """Return the error; `kept` names the copy of the WAL, if any."""
    return RolledBack(
        f"{path} lacks the last {known - found} transactions that were committed: its -wal was damaged or "
        f"removed{kept}, or an older backup lies in its place. To go on without them, remove {path.name}.lock"
    )
