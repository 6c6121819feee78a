"""Reading: jobs, counts, history, why a job does not run; and what operators set: pools, the instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from tocsin.actors.scheduler.client.handle import Handle
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.health import level
from tocsin.actors.scheduler.model.lost import lost
from tocsin.actors.scheduler.model.records import (
    Attempt,
    InstanceState,
    LanesStatus,
    Page,
    Pool,
    Reason,
    Record,
    Removed,
    Status,
)
from tocsin.actors.scheduler.queries import jobs as query
from tocsin.actors.scheduler.queries import listing, why
from tocsin.actors.scheduler.queries import results as outcomes
from tocsin.actors.scheduler.queries.candidates import Filter
from tocsin.actors.scheduler.transitions.events import DeletePool, ErasePage, SetInstance, SetPool
from tocsin.actors.scheduler.transitions.pools import Erased
from tocsin.dispatch.words import word
from tocsin.errors import ConflictError, InvalidInputError

STATES = ("pending", "waiting", "running")
ORDERS = ("due", "id")


class Reading(Handle):
    """The part of a handle that reads committed state, outside the actor's turn."""

    async def get(self, id: str) -> Record | None:
        """The job, dead ones included; None if there is none of that id."""
        return await query.get(self._view(), arguments.schedule_id(id), self._now())

    async def list(
        self,
        *,
        cursor: str | None = None,
        limit: int = 100,
        order: str = "due",
        pool: str | None = None,
        state: str | None = None,
        label: str | None = None,
        queue: str | None = None,
    ) -> Page:
        """A page of live jobs by next attempt (`order="due"`) or by id; `limit` 1 to 1000."""
        if order not in ORDERS:
            raise InvalidInputError(f"order must be one of {', '.join(ORDERS)}, not {order!r}")
        if state is not None and state not in STATES:
            raise InvalidInputError(f"state must be one of {', '.join(STATES)}, not {state!r}")
        wanted = Filter(self._name(pool, "pool"), state, self._name(label, "label"), queue=self._name(queue, "queue"))
        await self._fill_labels(wanted)
        pages = listing.list_by_due if order == "due" else listing.list_by_id
        most = self._limit(limit)
        async with self._service.paging:
            return await pages(self._view(), self.name, self._now(), most, cursor, wanted)

    async def list_all(self, *, order: str = "id", **filters: Any) -> AsyncIterator[Record]:
        """Every live job, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(cursor=cursor, limit=1000, order=order, **filters)
            for record in page.records:
                yield record
            if not page.truncated:
                return
            cursor = page.cursor

    async def status(self) -> Status:
        """Counts of this instance, exact but for `due`."""
        counts = await query.counts(self._view(), self._now())
        gone = await lost(self._view())
        facts = self._service.facts(self.name)
        reasons = self._service.health.of_instance(self._id, dead=counts.dead, suspects=counts.suspects, lost=gone)
        return Status(
            backlog=counts.backlog,
            in_flight=counts.in_flight,
            due=counts.due,
            oldest_due_ms=counts.oldest_due_ms,
            dead=counts.dead,
            lanes=LanesStatus(*self._service.lanes_in_use(self.name)),
            health=level(reasons),
            pools=counts.pools,
            more_pools=counts.more_pools,
            alarm_failures=facts.alarm_failures,
            retired=counts.retired,
            trouble=str(facts.store_trouble) if facts.store_trouble else None,
            wal_bytes=self._service.host.provider.stats().wal_bytes,
            paused=counts.paused,
            reasons=reasons,
        )

    async def why(self, id: str) -> Sequence[Reason]:
        """Every reason the job is not running now; empty only if it may start at this instant."""
        return await why.reasons(self._view(), arguments.schedule_id(id), self._now(), self._service.facts(self.name))

    async def history(self, id: str) -> Sequence[Attempt]:
        """How its attempts ended, the oldest first; kept for some days after the job is gone."""
        return await outcomes.history(self._view(), arguments.schedule_id(id), self._now())


class Operating(Handle):
    """The part of a handle for operators."""

    async def pool(self, name: str) -> Pool:
        """A pool and its holders. One that nobody has set or used has the default cap, 1."""
        return await query.pool(self._view(), arguments.plain_name(name, "name"))

    async def set_pool(self, name: str, *, max_concurrency: int | None = None, paused: bool | None = None) -> Pool:
        """Set its cap (0 holds all; jobs no longer change it), or stop or start it. Holders may always finish.

        `created` says whether the pool was unknown until now: by a slip in its name, perhaps.
        """
        if max_concurrency is None and paused is None:
            raise InvalidInputError(f"give {word('max_concurrency')}, paused or both")
        if max_concurrency is not None:
            arguments.integer(max_concurrency, word("max_concurrency"), *arguments.CAP)
        if paused is not None and not isinstance(paused, bool):
            raise InvalidInputError(f"paused must be true or false, not {paused!r}")
        created = await self._call(SetPool(arguments.plain_name(name, "name"), max_concurrency, paused))
        return msgspec.structs.replace(await self.pool(name), created=created)

    async def delete_pool(self, name: str) -> bool:
        """Forget what was set. ConflictError while a job names it; False if there was nothing to forget."""
        deleted = await self._change(DeletePool(arguments.plain_name(name, "name")), False)
        if isinstance(deleted, ConflictError):
            raise deleted
        return deleted

    async def pause(self, paused: bool = True) -> None:
        """Stop all firing of this instance, or start it again."""
        await self.set_instance(paused=paused)

    async def set_instance(self, *, paused: bool | None = None, timeout_ms: int | None = None) -> InstanceState:
        """Stop or start all firing of this instance, or set the deadline of callbacks whose jobs have none of their own
        (1 s to 1 h; 0: the host's again). It counts for every attempt that starts from now on."""
        if paused is None and timeout_ms is None:
            raise InvalidInputError(f"give paused, {word('timeout_ms')} or both")
        if paused is not None and not isinstance(paused, bool):
            raise InvalidInputError(f"paused must be true or false, not {paused!r}")
        if timeout_ms is not None and (timeout_ms is False or timeout_ms != 0):
            arguments.integer(timeout_ms, word("timeout_ms"), *arguments.TIMEOUT_MS)
        return InstanceState(self.name, *await self._call(SetInstance(paused, timeout_ms)))

    async def remove(self) -> Removed:
        """Remove everything of this instance. Goes on after a crash, once begun; accepts nothing meanwhile."""
        jobs = rows = 0
        while True:
            erased = await self._change(ErasePage(), Erased(0, 0, False))
            jobs, rows = jobs + erased.jobs, rows + erased.rows
            if not erased.more:
                return Removed(jobs, rows)
