"""The outbox table as a drain sees it: batches that are held for a while, and what becomes of their rows.

A row waits, is in a batch, or is parked. A batch never gains rows, and loses them all in one transaction; who holds it
may be two at once, so whatever is written of its rows says of which batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.outbox.databases import Database, Row
from tocsin.actors.outbox.statements import Statement, Statements, Which, schema

BATCH_ROWS: Final = 500
BATCH_BYTES: Final = 3 * 1024 * 1024
"""Of text: what a scheduler counts of a job may be more than its text, and one call takes 7 MiB."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row of the table. `job` is its text, `tries` how often it was refused, `created_at` in epoch ms."""

    id: str
    instance: str
    job: str
    created_at: int
    tries: int


@dataclass(frozen=True, slots=True)
class ParkedRow(OutboxRow):
    """A row that was given up, and why. It stays until somebody retries or discards it."""

    error: str
    parked_at: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are submitted together, under one key. `at`: when they were put together, epoch ms."""

    id: str
    instance: str
    at: int
    rows: Sequence[OutboxRow]


@dataclass(frozen=True, slots=True)
class Release:
    """The fate of a row that was not accepted."""

    tries: int
    next_try_at: int
    error: str | None = None
    parked_at: int | None = None


class Table:
    """One table in one database."""

    def __init__(self, database: Database, name: str) -> None:
        self._database, self.name = database, name
        self._say = Statements(database.dialect, name)

    async def create(self, *, announce: bool = False) -> None:
        made = schema(self._database.dialect, self.name, announce=announce)
        await self._database.run([Statement(sql, {}) for sql in made])

    async def claim(self, which: Which, until: int, new_batch: str, rows: int) -> Batch | None:
        """Take a batch that nobody holds any more, or else a new one; held `until` then. None: nothing waits."""
        [[(lapsed, waiting)]] = await self._database.run([self._say.look(which)])
        if lapsed and (batch := await self._batch(self._say.take(until, which))) is not None:
            return batch
        if not waiting:
            return None
        return await self._batch(self._say.form(until, new_batch, rows, BATCH_BYTES, which))

    async def _batch(self, statement: Statement) -> Batch | None:
        found = (await self._database.run([*self._say.durable, statement]))[-1]
        if not found:
            return None
        rows = sorted((_row(row) for row in found), key=lambda row: row.id)
        *_, batch, at = found[0]
        return Batch(batch, rows[0].instance, at, rows)

    async def hold(self, batch: Batch, until: int) -> None:
        await self._database.run([self._say.hold(batch.id, until)])

    async def settle(self, batch: Batch, released: Mapping[str, Release]) -> None:
        """End a batch: those rows wait again or are parked, the others are deleted."""
        kept = [
            self._say.release(row, batch.id, one.tries, one.next_try_at, one.error, one.parked_at)
            for row, one in released.items()
        ]
        await self._database.run([*self._say.durable, *kept, self._say.delete(batch.id)])

    async def parked(self, limit: int) -> list[ParkedRow]:
        [rows] = await self._database.run([self._say.parked(limit)])
        return [ParkedRow(*row) for row in rows]

    async def unpark(self, row: str) -> bool:
        return bool((await self._database.run([self._say.unpark(row)]))[0])

    async def discard(self, row: str) -> bool:
        return bool((await self._database.run([self._say.discard(row)]))[0])


def _row(columns: Row) -> OutboxRow:
    row, instance, job, created_at, tries, *_ = columns
    text = job if isinstance(job, str) else bytes(job).decode("utf-8", "replace")  # SQLite lets a column hold bytes
    return OutboxRow(row, instance, text, created_at, tries)
