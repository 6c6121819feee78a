"""What is looked at before a SQLite file is taken for the whole store: SQLite itself takes an empty file for a new one,
moves the pages of any WAL into any file, and throws a WAL away that it cannot read, without a word.

The witness is the lock file: how far the commits of a process came that did not stop in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tocsin.errors import RolledBack, StoreCorrupt
from tocsin.storage.sqlite.identity import Identity, small_table
from tocsin.storage.sqlite.lock import LockFile
from tocsin.storage.sqlite.wal import keep_wal, pages_in_wal, wal_of

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


def check_wal_is_of_this_file(path: Path, identity: Identity, lock: LockFile) -> None:
    """SQLite would move the pages of any WAL into any file."""
    wal = wal_of(path)
    if not wal.exists() or not wal.stat().st_size:
        return
    page, moved = lock.moved()
    overwritten = page and small_table(identity.page(page, identity.pages()[1])).get("seq", 0) < moved
    if overwritten or lock.another_file(identity.inode):
        raise StoreCorrupt(
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
