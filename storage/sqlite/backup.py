"""A consistent copy of a SQLite file, made while others write to it, and given its name only once it is whole."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from tocsin.errors import StoreCorrupt, StoreError, StoreUnavailable
from tocsin.storage.snapshot import Changed
from tocsin.storage.sqlite.errors import by_errno, translate
from tocsin.storage.sqlite.lineage import draw
from tocsin.storage.sqlite.reserve import why_unwritable
from tocsin.storage.sqlite.snapshot import SnapshotReader

TRIES = 5


def back_up(path: Path, target: Path) -> int:
    """Copy the store to a new file, and return the size of the copy in bytes.

    The copy is written under another name, checked by SQLite page by page, synced, and only then given its name.
    Writers do not wait for it. StoreUnavailable if the target exists or cannot be written.
    """
    _check_free(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    look = SnapshotReader(path)
    try:
        for left in reversed(range(TRIES)):
            try:
                _copy(look, partial, target)
                break
            except Changed:
                if not left:
                    raise StoreUnavailable(f"{path} was opened and closed all the time: try again") from None
        _verify(partial)
        _sync(partial)
        _name(partial, target)
        _sync(target.parent)
    except OSError as error:
        named = by_errno(error, f"the copy {target}")
        raise named or StoreUnavailable(f"the copy {target} cannot be written: {error.strerror}") from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                partial.with_name(partial.name + suffix).unlink()
    return target.stat().st_size


def _check_free(target: Path) -> None:
    if os.path.lexists(target):
        raise StoreUnavailable(f"{target} is there already: a backup overwrites nothing, choose another name")
    if not target.parent.is_dir():
        raise StoreUnavailable(f"the folder {target.parent} does not exist: make it")


def _copy(look: SnapshotReader, partial: Path, target: Path) -> None:
    """Copy all pages in one step, which makes it one snapshot; free pages are copied, too."""
    file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # it holds what the store holds
    os.close(file)
    try:
        with look.reading() as source, closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            try:
                source.backup(copy, pages=-1)
                # The copy is a branch of its own: the store's WAL must not be moved into it.
                lineage = draw()
                marks = [("lineage", lineage), ("parent", lineage)]
                copy.executemany("INSERT OR REPLACE INTO meta (k, v) VALUES (?, ?)", marks)
                copy.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error as error:
                raise _of_the_copy(error, partial, target, look.path.stat().st_size) or error from error
    except sqlite3.Error as error:
        raise translate(error) from error


def _of_the_copy(error: sqlite3.Error, partial: Path, target: Path, size: int) -> StoreError | None:
    """Name the cause if it lies with the copy: SQLite does not tell which of the two files failed."""
    full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
    said = OSError(errno.ENOSPC, str(error)) if full else why_unwritable(partial, size)
    return by_errno(said, f"the copy {target}")


def _verify(partial: Path) -> None:
    faults = SnapshotReader(partial).integrity()
    if faults:
        raise StoreCorrupt(f"the store is damaged, so its copy was not kept: {faults[0]}")


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _name(partial: Path, target: Path) -> None:
    """Name the copy without overwriting a file that was made meanwhile."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise StoreUnavailable(f"{target} is there already: a backup overwrites nothing, choose another name") from None
    except OSError:  # a file system without links
        _check_free(target)
        partial.rename(target)
