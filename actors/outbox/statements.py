"""SQL of the outbox table, with `:name` parameters, and how it is written for drivers that want others.

Two dialects, and no more of each than they share, but for how rows are locked and bytes are counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from tocsin.errors import SettingsError

Dialect = Literal["sqlite", "postgresql"]
DIALECTS: Final = get_args(Dialect)
TABLE: Final = "tocsin_outbox"

_TABLE: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,47}", re.ASCII)
_SCHEMA: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,29}", re.ASCII)
_PARAMETER: Final = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)")


def table_name(value: object) -> str:
    """Check a name that is written into SQL: it needs no quotes; in PostgreSQL it may have a schema."""
    if not isinstance(value, str) or not _TABLE.fullmatch(value):
        raise SettingsError(f"table must be a plain SQL name of at most 48 characters, like {TABLE}, not {value!r:.80}")
    return value


def schema_name(value: object) -> str:
    """Check the name of the schema of a store; it needs no quotes."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise SettingsError(f"store must be the name of the store's schema, tocsin by default, not {value!r:.80}")
    return value


def dialect_of(value: object) -> Dialect:
    for dialect in DIALECTS:
        if value == dialect:
            found: Dialect = dialect
            return found
    raise SettingsError(f"dialect must be one of {', '.join(DIALECTS)}, not {value!r:.80}")


# ---- One statement, for every driver -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with `:name` parameters, and their values."""

    sql: str
    values: Mapping[str, Any]

    @property
    def named(self) -> tuple[str, dict[str, Any]]:
        """`:name` and a dict: SQLAlchemy's `text`, sqlite3."""
        return self.sql, dict(self.values)

    @property
    def pyformat(self) -> tuple[str, dict[str, Any]]:
        """Return `%(name)s` and a dict, for psycopg: `cursor.execute(*entry.pyformat)`."""
        return _PARAMETER.sub(r"%(\1)s", self.sql), dict(self.values)

    @property
    def qmark(self) -> tuple[str, tuple[Any, ...]]:
        """Return `?` and a tuple, for sqlite3 and aiosqlite: `connection.execute(*entry.qmark)`."""
        return _PARAMETER.sub("?", self.sql), tuple(self.values[name] for name in _PARAMETER.findall(self.sql))

    @property
    def dollar(self) -> tuple[Any, ...]:
        """Return `$1` and the values behind it, for asyncpg: `await connection.execute(*entry.dollar)`."""
        names = list(dict.fromkeys(_PARAMETER.findall(self.sql)))
        sql = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", self.sql)
        return sql, *(self.values[name] for name in names)


# ---- The table -----------------------------------------------------------------------------------


def schema(dialect: Dialect, table: str = TABLE, *, announce: bool = False) -> list[str]:
    """Return the statements that create the table if it is missing. `announce` (PostgreSQL): a trigger that tells
    drains of new rows when their transaction commits."""
    dialect, table = dialect_of(dialect), table_name(table)
    if dialect == "sqlite" and (announce or "." in table):
        raise SettingsError("announce, and a schema in front of the table's name, are for PostgreSQL only")
    index = table.replace(".", "_")
    made = [
        f"CREATE TABLE IF NOT EXISTS {table} (id TEXT PRIMARY KEY, instance TEXT NOT NULL, job TEXT NOT NULL, "
        "created_at BIGINT NOT NULL, batch TEXT, batch_at BIGINT, held_until BIGINT, "
        "tries INTEGER NOT NULL DEFAULT 0, next_try_at BIGINT NOT NULL DEFAULT 0, error TEXT, parked_at BIGINT)",
        f"CREATE INDEX IF NOT EXISTS {index}_waiting ON {table} (id) WHERE batch IS NULL AND parked_at IS NULL",
        f"CREATE INDEX IF NOT EXISTS {index}_held ON {table} (held_until) WHERE batch IS NOT NULL",
        f"CREATE INDEX IF NOT EXISTS {index}_batch ON {table} (batch) WHERE batch IS NOT NULL",
        f"CREATE INDEX IF NOT EXISTS {index}_parked ON {table} (parked_at) WHERE parked_at IS NOT NULL",
    ]
    return made + _announcing(table) if announce else made


def _announcing(table: str) -> list[str]:
    """Return the trigger. PostgreSQL notifies when, and only if, the transaction commits; equal notifications once."""
    function = f"{table}_announce"
    return [
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM pg_notify('{channel(table)}', ''); RETURN NULL; END $$",
        f"CREATE OR REPLACE TRIGGER {table.replace('.', '_')}_announce AFTER INSERT ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {function}()",
    ]


def channel(table: str) -> str:
    return table.replace(".", "_").lower()


ENTRY: Final = ("id", "instance", "job", "created_at")


def insert(table: str) -> str:
    """Return the insert of one row, for the user's transaction."""
    return f"INSERT INTO {table} ({', '.join(ENTRY)}) VALUES ({', '.join(':' + name for name in ENTRY)})"


# ---- What a drain says ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Which:
    """Rows that wait at `now`, of which instances: of `only`, or of all but `resting`."""

    now: int
    beyond: int
    only: str | None = None
    resting: Sequence[str] = ()

    @property
    def sql(self) -> str:
        if self.only is not None:
            return " AND instance = :only"
        if not self.resting:
            return ""
        return f" AND instance NOT IN ({', '.join(f':resting{n}' for n in range(len(self.resting)))})"

    @property
    def values(self) -> dict[str, Any]:
        instants = {"now": self.now, "beyond": self.beyond}
        if self.only is not None:
            return {**instants, "only": self.only}
        return {**instants, **{f"resting{n}": name for n, name in enumerate(self.resting)}}


WAITING: Final = "batch IS NULL AND parked_at IS NULL AND (next_try_at <= :now OR next_try_at > :beyond)"
LAPSED: Final = "batch IS NOT NULL AND (held_until <= :now OR held_until > :beyond)"
"""Or so far away that a clock was wrong when it was written: nobody waits longer than to `beyond`."""
TAKEN: Final = "id, instance, job, created_at, tries, batch, batch_at"


class Statements:
    """Those of one table in one dialect."""

    def __init__(self, dialect: Dialect, table: str) -> None:
        self._table, postgresql = table_name(table), dialect_of(dialect) == "postgresql"
        self._lock = " FOR UPDATE SKIP LOCKED" if postgresql else ""
        self._bytes = "octet_length(job)" if postgresql else "length(CAST(job AS BLOB))"
        self.durable = [Statement("SET LOCAL synchronous_commit TO on", {})] if postgresql else []
        """Statements that make the rest of a transaction durable, whatever the database's default is."""

    def look(self, which: Which) -> Statement:
        """Ask for two flags: whether there is a batch that nobody holds, and whether rows wait."""
        return Statement(
            f"SELECT EXISTS (SELECT 1 FROM {self._table} WHERE {LAPSED}{which.sql}), "
            f"EXISTS (SELECT 1 FROM {self._table} WHERE {WAITING}{which.sql})",
            which.values,
        )

    def take(self, until: int, which: Which) -> Statement:
        """Hold the batch whose hold has been over for longest; its rows."""
        return Statement(
            f"UPDATE {self._table} SET held_until = :until WHERE {LAPSED} AND batch = (SELECT batch FROM "
            f"{self._table} WHERE {LAPSED}{which.sql} ORDER BY held_until, batch LIMIT 1) RETURNING {TAKEN}",
            {"until": until, **which.values},
        )

    def form(self, until: int, batch: str, rows: int, most_bytes: int, which: Which) -> Statement:
        """Make a batch of the oldest rows that wait, of one instance; its rows."""
        oldest = f"SELECT instance FROM {self._table} WHERE {WAITING}{which.sql} ORDER BY id LIMIT 1"
        candidates = (
            f"SELECT id, {self._bytes} AS size FROM {self._table} WHERE {WAITING} AND instance = ({oldest}) "
            f"ORDER BY id LIMIT :rows{self._lock}"
        )
        numbered = (
            "SELECT id, SUM(size) OVER (ORDER BY id) AS total, ROW_NUMBER() OVER (ORDER BY id) AS n FROM candidates"
        )
        return Statement(
            f"UPDATE {self._table} SET batch = :batch, batch_at = :now, held_until = :until WHERE "
            f"id IN (WITH candidates AS ({candidates}), numbered AS ({numbered}) "
            f"SELECT id FROM numbered WHERE n = 1 OR total <= :most_bytes) RETURNING {TAKEN}",
            {"until": until, "batch": batch, "rows": rows, "most_bytes": most_bytes, **which.values},
        )

    def hold(self, batch: str, until: int) -> Statement:
        return Statement(
            f"UPDATE {self._table} SET held_until = :until WHERE batch = :batch", {"batch": batch, "until": until}
        )

    def release(
        self, row: str, batch: str, tries: int, next_try_at: int, error: str | None, parked_at: int | None
    ) -> Statement:
        """Let a row wait again, or park it."""
        return Statement(
            f"UPDATE {self._table} SET batch = NULL, batch_at = NULL, held_until = NULL, tries = :tries, "
            "next_try_at = :next_try_at, error = :error, parked_at = :parked_at WHERE id = :id AND batch = :batch",
            {
                "id": row, "batch": batch, "tries": tries, "next_try_at": next_try_at, "error": error,
                "parked_at": parked_at,
            },
        )  # fmt: skip

    def delete(self, batch: str) -> Statement:
        """Delete all that is left in a batch."""
        return Statement(f"DELETE FROM {self._table} WHERE batch = :batch", {"batch": batch})

    def parked(self, limit: int) -> Statement:
        return Statement(
            f"SELECT id, instance, job, created_at, tries, error, parked_at FROM {self._table} "
            "WHERE parked_at IS NOT NULL ORDER BY parked_at, id LIMIT :rows",
            {"rows": limit},
        )

    def unpark(self, row: str) -> Statement:
        return Statement(
            f"UPDATE {self._table} SET parked_at = NULL, tries = 0, next_try_at = 0 "
            "WHERE id = :id AND parked_at IS NOT NULL RETURNING id",
            {"id": row},
        )

    def discard(self, row: str) -> Statement:
        return Statement(
            f"DELETE FROM {self._table} WHERE id = :id AND parked_at IS NOT NULL RETURNING id", {"id": row}
        )
