"""What is looked at before a SQLite file is taken for the whole store: SQLite itself takes an empty file for a new one,
moves the pages of any WAL into any file, and throws a WAL away that it cannot read, without a word.

The witness is the lock file: how far the commits of a process came that did not stop in order. Whether file and WAL
belong together, their own pages say: see `lineage`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from tocsin.errors import RolledBack, StoreCorrupt
from tocsin.storage.sqlite.identity import Identity
from tocsin.storage.sqlite.lineage import HEAD, READS_OF_A_PAGE, Mark, counter, is_base, small_table
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.wal import head_of_wal, images_in_wal, keep_wal, page_size_in_wal, pages_in_wal, wal_of

_META_PAGE: Final = 2
"""The first page behind the schema: `meta` is the first table, also behind a VACUUM."""

_NO_PAGE: Final = 0x40000000
"""The page that holds this byte is never written: SQLite has its locks there."""


def check_whole(path: Path, lock: LockFile) -> None:
    """Refuse what SQLite would take for a new store, and what it would then throw away."""
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
    """SQLite would move the pages of any WAL into any file. The lineages that the WAL may bring into the file."""
    wal = wal_of(path)
    if not wal.exists() or not wal.stat().st_size:
        return frozenset()
    size = identity.pages()[1]
    (page, moved), noted = lock.moved(), lock.counter()
    number, counted = page or _META_PAGE, counter(identity.page(1, HEAD))
    mark = Mark.of(small_table(identity.page(number, size)))
    heads, marks = _marks_in_wal(path, number)
    # The WAL's first page 1 was written once more than the file's at most; the file has a WAL, and says so.
    made_by_sqlite = counted < max(noted, heads[0] - 1 if heads else 0, 1 if marks else 0)
    if mark.seq < moved or made_by_sqlite or lock.another_file(identity.inode) or not is_base(mark, marks):
        raise _not_of_this_file(path)
    return frozenset(mark.lineage for mark in marks)


def _marks_in_wal(path: Path, number: int) -> tuple[list[int], list[Mark]]:
    """The counters of all pages 1 in the WAL, and the marks of all pages of `meta`, which has this number."""
    head = head_of_wal(path)
    if not (size := page_size_in_wal(head)):
        return [], []
    images = images_in_wal(path, size, frozenset({1, number}), size)
    tables = [small_table(page) for at, page in images if at == number]
    return [counter(page) for at, page in images if at == 1], [Mark.of(rows) for rows in tables if "layout" in rows]


def check_wal_from_outside(path: Path) -> None:
    """The same for who only looks, perhaps while another process has the store: judged is what stood still meanwhile.

    Nothing is opened but by SQLite: closing a file would let go of the locks that this process has on it.
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


def _mark_in_file(path: Path) -> tuple[int, Mark] | None:
    """Of the file itself, whatever is in its WAL, and the number of the page that it is on. None if the file cannot be
    read without its WAL: a checkpoint goes on, or was killed."""
    uri = f"{path.as_uri()}?mode=ro&immutable=1"
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
    """That every page is there which the file has by its own head. SQLite goes by its WAL's word, where there is one,
    and takes what is missing for zeros. A checkpoint that was killed leaves pages missing that its WAL still has."""
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
    """That all is there which the process before had committed when it ended without a stop in order."""
    if found < known:
        raise lacking(path, known, found, keep_wal(path))


def lacking(path: Path, known: int, found: int, kept: str = "") -> RolledBack:
    """`kept`: words on what was kept of the WAL."""
    return RolledBack(
        f"{path} lacks the last {known - found} transactions that were committed: its -wal was damaged or "
        f"removed{kept}, or an older backup lies in its place. To go on without them, remove {path.name}.lock"
    )
