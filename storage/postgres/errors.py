"""The errors of PostgreSQL and its driver as the named errors of the storage seam: mapped once, here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

import asyncpg

from tocsin.errors import SettingsError, StoreCorrupt, StoreError, StoreFull, StoreSchema, StoreTooLarge
from tocsin.errors import StoreUnavailable as Unavailable

FAILURES: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
)
"""Everything that a statement, or a connection, can end with besides its result."""
AGAIN: Final = frozenset({"40001", "40P01"})
"""Codes of statements that had no effect and may be sent again: they met others in a circle."""
DUPLICATE: Final = "23505"
MAY_NOT: Final = "42501"
MISSING: Final = frozenset({"42P01", "3F000"})
"""Codes of tables and schemas that are not there."""

_BY_CODE: Final[Mapping[str, tuple[type[StoreError], str]]] = {
    "53100": (StoreFull, "no space is left for the database: free some on its disk"),
    "53300": (Unavailable, "the server accepts no more connections: raise max_connections, or lower connections="),
    "25006": (Unavailable, "the server only reads: it is a standby, or default_transaction_read_only is on"),
    "57014": (Unavailable, "the statement was ended by the server: it took too long, or an operator ended it"),
    "57P03": (Unavailable, "the server is starting, or does not accept connections"),
    "28000": (Unavailable, "the server refuses this role: check the user of the URL, and pg_hba.conf"),
    "28P01": (Unavailable, "the server refuses the password"),
    "3D000": (Unavailable, "the database does not exist: make it with createdb"),
    MAY_NOT: (Unavailable, "the role has too few rights on the tables of the store"),
    "42P01": (StoreSchema, "a table of the store is missing: run tocsin migrate"),
    "42703": (StoreSchema, "a column of the store is missing: run tocsin migrate"),
    "3F000": (StoreSchema, "the schema of the store is missing: run tocsin migrate"),
    "42704": (StoreSchema, "the server does not know a setting that the URL names, or a type of the store"),
    "XX001": (StoreCorrupt, "the database is damaged: stop, keep its files, restore a backup"),
    "XX002": (StoreCorrupt, "an index of the database is damaged: stop, and rebuild it with REINDEX"),
}
_BY_CLASS: Final[Mapping[str, tuple[type[StoreError], str]]] = {
    "08": (Unavailable, "the connection to the server broke"),
    "53": (Unavailable, "the server has too little memory or too few connections"),
    "54": (StoreTooLarge, "a row or statement is too large for the server"),
    "55": (Unavailable, "the server could not lock what the statement needs"),
    "57": (Unavailable, "the server ended the connection"),
    "58": (Unavailable, "the disk or system of the server failed"),
    "40": (Unavailable, "the statement met others in a circle, again and again"),
}


def code_of(error: BaseException) -> str:
    """Return the server's code of an error; empty if it is not of the server."""
    return (error.sqlstate or "") if isinstance(error, asyncpg.PostgresError) else ""


def leaves_nothing(error: BaseException) -> bool:
    """Tell whether the server itself has said that the statement had no effect: it did, and the connection lives on."""
    code = code_of(error)
    severity = getattr(error, "severity_en", None) or getattr(error, "severity", None)
    return bool(code) and severity == "ERROR" and code[:2] != "08" and not code.startswith("57P")


def said(error: BaseException) -> str:
    """Return the driver's own words."""
    return str(error).partition("\n")[0] or type(error).__name__


def translate(error: BaseException, place: str, words_of_all: str = "") -> StoreError:
    """Return the named error, with the driver's own words, or those of all attempts. `place` is the store, without a
    password."""
    kind, words = _meaning(error)
    translated = kind(f"{words} ({words_of_all or said(error)}); the store is {place}")
    translated.__cause__ = error
    return translated


def _meaning(error: BaseException) -> tuple[type[StoreError], str]:
    if code := code_of(error):
        return _BY_CODE.get(code) or _BY_CLASS.get(code[:2]) or (StoreError, f"the store failed with {code}")
    if isinstance(error, asyncpg.DataError):
        return StoreError, "a value does not fit the table of the store"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return Unavailable, "no server of the URL is a primary"
    if isinstance(error, TimeoutError):
        return Unavailable, "the server does not answer"
    if isinstance(error, OSError):
        return Unavailable, "the server is not reached"
    return Unavailable, "the connection to the server broke"


def misconfigured(error: Exception, place: str, secrets: Iterable[str]) -> SettingsError:
    """Return the error for what the driver finds wrong in the URL, in its words unless they hold one of the secrets."""
    words = said(error)
    if any(secret in words for secret in secrets):
        words = type(error).__name__
    return SettingsError(f"the URL of the store {place} is not accepted by the driver: {words}")
