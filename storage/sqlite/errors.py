"""SQLite's errors as the named errors of the storage seam."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from typing import Final

from tocsin.errors import RolledBack, StoreCorrupt, StoreError, StoreFull, StoreTooLarge, StoreUnavailable

_BY_CODE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "no space is left for the store: free some on its disk"),
    sqlite3.SQLITE_TOOBIG: (StoreTooLarge, "a row is too large for SQLite"),
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, "this process has no memory left for the store"),
    sqlite3.SQLITE_PROTOCOL: (StoreUnavailable, "the store is busy: another program opens it all the time"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "the store is damaged: stop, keep the file, restore a backup"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "the file is not a SQLite database"),
    sqlite3.SQLITE_BUSY: (StoreUnavailable, "the store is busy: another program holds it"),
    sqlite3.SQLITE_LOCKED: (StoreUnavailable, "the store is locked"),
    sqlite3.SQLITE_READONLY: (StoreUnavailable, "the store is read-only: check the rights of file and folder"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "the disk of the store failed"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "the store cannot be opened: check its folder and rights"),
    sqlite3.SQLITE_PERM: (StoreUnavailable, "the store may not be opened: check its rights"),
}
_BY_EXTENDED_CODE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_IOERR_NOMEM: _BY_CODE[sqlite3.SQLITE_NOMEM],
    # The shared memory beside the file is a file too.
    sqlite3.SQLITE_IOERR_SHMSIZE: _BY_CODE[sqlite3.SQLITE_FULL],
    sqlite3.SQLITE_IOERR_CORRUPTFS: (StoreCorrupt, "the file system of the store is damaged: check it"),
    sqlite3.SQLITE_IOERR_DATA: _BY_CODE[sqlite3.SQLITE_CORRUPT],
    sqlite3.SQLITE_READONLY_DBMOVED: (RolledBack, "the file of the store was moved while it was in use: put it back"),
}
"""Extended codes whose first eight bits would name a wrong cause."""
_BY_ERRNO: Final[Mapping[int, tuple[type[StoreError], str]]] = {
    errno.ENOSPC: (StoreFull, "no space is left for {}: free some on its disk"),
    errno.EDQUOT: (StoreFull, "no space is left for {}: the quota there is used up, so free some or raise it"),
    errno.EFBIG: (StoreFull, "no space is left for {}: the limit on the size of files is reached, raise ulimit -f"),
    errno.EROFS: (StoreUnavailable, "the file system of {} is read-only: mount it so that it can be written"),
    errno.EMFILE: (StoreUnavailable, "{} cannot be used: this process has too many files open, raise ulimit -n"),
    errno.ENFILE: (StoreUnavailable, "{} cannot be used: this machine has too many files open"),
}

_COMMIT_LEAVES_NOTHING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT}
_COMMIT_LEAVES_NOTHING_EXACTLY = {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHMSIZE}


class Unsettled(Exception):
    """A COMMIT failed, and a crash might still bring its transaction back: call `settle` until it answers."""

    def __init__(self, error: sqlite3.Error) -> None:
        super().__init__(str(error))
        self.error = error


def leaves_nothing(error: sqlite3.Error) -> bool:
    """Tell whether a COMMIT that failed so has certainly left nothing that a recovery of the WAL could find.

    Its last frame marks the transaction as whole. If that was written and only the sync, or what follows it,
    failed, a crash would bring the transaction back.
    """
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in _COMMIT_LEAVES_NOTHING or code in _COMMIT_LEAVES_NOTHING_EXACTLY


def says_little(error: StoreError) -> bool:
    """Tell whether the operating system may know a more precise cause: see `by_errno`."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    if code in _BY_EXTENDED_CODE and code != sqlite3.SQLITE_IOERR_SHMSIZE:
        return False
    return code & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def by_errno(error: OSError | None, what: object) -> StoreError | None:
    """Return the named error for an error of the system in writing `what`; None if SQLite's error says as much."""
    if error is None or error.errno is None or error.errno not in _BY_ERRNO:
        return None
    kind, words = _BY_ERRNO[error.errno]
    translated = kind(words.format(what))
    translated.__cause__ = error
    return translated


def translate(error: sqlite3.Error, file: object = None) -> StoreError:
    """Return the named error for what SQLite raised, with SQLite's own words. It names `file` if that is no store."""
    code = getattr(error, "sqlite_errorcode", -1)
    kind, words = _BY_EXTENDED_CODE.get(code) or _BY_CODE.get(code & 0xFF, (StoreError, f"the store failed ({error})"))
    if file is not None and code & 0xFF == sqlite3.SQLITE_NOTADB:
        words = words.replace("the file", f"the file {file}", 1)
    # SQLite's words would mislead where the first eight bits of its code name a wrong cause.
    translated = kind(words if code in _BY_EXTENDED_CODE or f"({error})" in words else f"{words} ({error})")
    translated.__cause__ = error
    return translated
