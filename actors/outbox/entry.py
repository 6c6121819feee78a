"""`Outbox`: what an app writes into its own transaction. Checks at the call what the scheduler would check."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Unpack

from tocsin.actors.outbox import statements
from tocsin.actors.outbox.job_text import JobWriter
from tocsin.actors.outbox.statements import Dialect, Statement
from tocsin.actors.outbox.store_mail import hint, mail
from tocsin.actors.runtime.clock import Clock, SystemClock
from tocsin.actors.scheduler.client.job_checks import JobOptions
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.catalog_check import CatalogCheck, CatalogGiven
from tocsin.dispatch.durations import Duration
from tocsin.dispatch.tracing import Tracers, Tracing
from tocsin.dispatch.values import LEFT_OUT
from tocsin.errors import SettingsError

if TYPE_CHECKING:
    from sqlalchemy import Insert


@dataclass(frozen=True, slots=True)
class OutboxEntry(Statement):
    """A row to be written: execute one of its forms in your transaction. `id` is the job's."""

    id: str
    table: str

    @property
    def statement(self) -> Statement:
        """Return the insert of the row."""
        return self

    @property
    def insert(self) -> Insert:
        """Return the form for SQLAlchemy: `session.execute(entry.insert)`."""
        import sqlalchemy  # the user's own; nothing else needs it
        from sqlalchemy.dialects.postgresql import UUID

        schema, _, name = self.table.rpartition(".")
        kinds: dict[str, Any] = {
            "created_at": sqlalchemy.BigInteger, "slot": sqlalchemy.Integer, "body": sqlalchemy.LargeBinary,
            "op": UUID(as_uuid=False),
        }  # fmt: skip
        columns = [sqlalchemy.column(name, kinds.get(name, sqlalchemy.Text)) for name in self.values]
        table = sqlalchemy.table(name, *columns, schema=schema or None)
        return sqlalchemy.insert(table).values(**self.values)


class Outbox:
    """Makes the rows of a table in your database, `tocsin_outbox`, for the scheduler named `instance`.

    Touches no database itself, and may be used from any thread. A `Drain` brings to the scheduler what was committed.
    Where your database is the store's, on PostgreSQL, give the schema of the store (`store="tocsin"`): then the rows
    are mail to its hosts, and there is neither a table nor a drain. With the host's `catalog`, what is not in it is an
    error here, and not a row that is refused later. `tracing` as for `ActorHost.open`.
    """

    def __init__(
        self,
        instance: str = "default",
        *,
        table: str = statements.TABLE,
        store: str | None = None,
        catalog: CatalogGiven | Callable[[], CatalogGiven | None] | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        tracing: bool | Tracers = True,
    ) -> None:
        self.instance, self.table = arguments.instance_name(instance), statements.table_name(table)
        self.store = None if store is None else statements.schema_name(store)
        if store is not None and table != statements.TABLE:
            raise SettingsError(
                f"table={table!r:.80} and store={store!r:.80}: rows for a store need no table, give one"
            )
        self._clock, self._random = clock or SystemClock(), random or SystemRandom()
        self._writer = JobWriter(
            CatalogCheck(catalog, self._clock.monotonic), self._random, self._clock.now_ms, self.instance,
            Tracing(tracing),
        )  # fmt: skip
        self._minting, self._last = threading.Lock(), 0

    def schema(self, dialect: Dialect, *, announce: bool = False) -> list[str]:
        """Return the statements that make the table, for your migrations; they change nothing where the table exists.

        `announce` (PostgreSQL only) adds a trigger that wakes drains when a transaction with rows commits. None where
        the rows go into the store, which has the table that they need.
        """
        if self.store is not None:
            return []
        return statements.schema(dialect, self.table, announce=announce)

    @property
    def hint(self) -> Statement:
        """Return a statement that has the hosts of the store read their mail at once. To be executed after the commit,
        and in no transaction that writes; without it they look every few seconds. SettingsError without a store."""
        if self.store is None:
            raise SettingsError("hint is for rows that go into the store: Outbox(store=...); a Drain has notify()")
        return hint(self.store)

    def run_at(
        self,
        at: datetime | int,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> OutboxEntry:
        """Write a job due at an instant (aware datetime or epoch ms). Arguments and errors: see `Scheduler.run_at`.

        An `id` of your own that is taken when the row comes to the scheduler is a refusal, unless `on_conflict` is
        "keep" or "replace"; see docs/outbox.md.
        """
        return self._entry(arguments.instant_ms(at, "at"), path, workflow, args, options)

    def run_after(
        self,
        delay: Duration,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> OutboxEntry:
        """Write a job due after a delay, counted from now, not from the commit. The rest as `run_at`."""
        due = arguments.delayed(self._clock.now_ms(), arguments.duration_ms(delay, "delay"), "delay")
        return self._entry(due, path, workflow, args, options)

    def run_debounced(
        self,
        debounce: Duration,
        path: str | None = None,
        args: Any = LEFT_OUT,
        *,
        workflow: str | None = None,
        **options: Unpack[JobOptions],
    ) -> OutboxEntry:
        """Write a call that puts off the job of its `id`, from when the row comes to the scheduler. The rest as
        `Scheduler.run_debounced`."""
        delay_ms = arguments.duration_ms(debounce, "debounce")
        due = arguments.delayed(self._clock.now_ms(), delay_ms, "debounce")
        return self._entry(due, path, workflow, args, options, delay_ms)

    def _entry(
        self,
        due: int,
        path: str | None,
        workflow: str | None,
        args: Any,
        options: JobOptions,
        debounce_ms: int | None = None,
    ) -> OutboxEntry:
        now = self._clock.now_ms()
        number = self._mint(now)
        row = arguments.mint_id(number >> 80, number & ((1 << 80) - 1))
        encoded = arguments.encode_args(args)
        if self.store is not None:
            new = self._writer.traced(self._writer.check(path, workflow, encoded, due, now, row, options, debounce_ms))
            made = mail(self.store, self.instance, new, row, number)
            return OutboxEntry(made.sql, made.values, new.job.id, f"{self.store}.mail")
        job, text = self._writer.write(path, workflow, encoded, due, now, row, {**options}, debounce_ms)
        values = {"id": row, "instance": self.instance, "job": text, "created_at": now}
        return OutboxEntry(statements.insert(self.table), values, job, self.table)

    def _mint(self, now: int) -> int:
        """Mint an ever growing id: rows of one transaction go to the scheduler in the order in which they were made."""
        with self._minting:
            # By chance: a process that was forked would make the same steps.
            next_one = self._last + 1 + self._random.getrandbits(64)
            self._last = max((now << 80) | self._random.getrandbits(80), next_one)
            return self._last
