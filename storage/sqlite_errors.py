"""What SQLite says, in the words of the seam."""

from __future__ import annotations

import sqlite3

from tocsin.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTooLarge,
    StoreUnavailable,
)

_BY_CODE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "no space is left for the store: free some on its disk"),
    sqlite3.SQLITE_TOOBIG: (StoreTooLarge, "a row is too large for SQLite"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "the store is damaged: stop, keep the file, restore a backup"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "the file is not a SQLite database"),
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "the store is busy: another program holds it"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "the store is locked"),
    sqlite3.SQLITE_READONLY: (StoreUnavailable, "the store is read-only: check the rights of file and folder"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "the disk of the store failed"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "the store cannot be opened: check its folder and rights"),
    sqlite3.SQLITE_PERM: (StoreUnavailable, "the store may not be opened: check its rights"),
}


_COMMIT_LEAVES_NOTHING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT}
_COMMIT_LEAVES_NOTHING_EXACTLY = {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHMSIZE}


class Unsettled(Exception):
    """A COMMIT failed, and a crash might still bring its transaction back: `settle` until that answers."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(str(error))
        self.error = error


def leaves_nothing(error: sqlite3.Error) -> bool:
    """Whether a COMMIT that failed so has certainly left nothing that a recovery of the WAL could find.

    Its last frame marks the transaction as whole. If that was written and only the sync, or what follows it,
    failed, a crash would bring the transaction back.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _COMMIT_LEAVES_NOTHING or code in _COMMIT_LEAVES_NOTHING_EXACTLY


def says_little(error: StoreError) -> bool:
    """It may be want of space: SQLite knows a full disk, but no quota and no limit on the size of files."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    return bool(code & 0xFF == sqlite3.SQLITE_IOERR)


def translate(error: sqlite3.Error) -> StoreError:
    """The named error for what SQLite raised; its own words go along."""
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:
        code = sqlite3.SQLITE_FULL  # the shared memory beside the file is a file too
    kind, words = _BY_CODE.get(code & 0xFF if code is not None else -1, (StoreError, "the store failed"))
    translated = kind(f"{words} ({error})")
    translated.__cause__ = error
    return translated
