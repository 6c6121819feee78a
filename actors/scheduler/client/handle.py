"""What the parts of a `Scheduler` handle share: its name, its host, and how to reach its actor."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.queries.candidates import Filter
from tocsin.actors.scheduler.state import labels
from tocsin.actors.scheduler.transitions.events import CancelMany, CountPaths
from tocsin.actors.scheduler.transitions.idempotency import Once, answered
from tocsin.dispatch.catalog.catalog import Catalog
from tocsin.errors import InvalidInputError, NotFoundError, StaleLeaseError, TocsinError
from tocsin.storage.api import StoreView

if TYPE_CHECKING:
    from tocsin.actors.scheduler.actor.service import SchedulerService

T = TypeVar("T")


class Handle:
    """Costs nothing until used."""

    def __init__(self, service: SchedulerService, name: str, initiator: tuple[str, str] = ("", "")) -> None:
        """Jobs made through it are `initiator`'s: the name of a token and a user, "" for none."""
        self.name = arguments.instance_name(name)
        self._initiator = initiator
        self._service = service
        self._id = actor_of(self.name)

    @property
    def catalog(self) -> Catalog | None:
        """The host's: which paths there are and what args each takes; None: anything goes."""
        return self._service.catalog_check.catalog

    async def answered(self, once: Once) -> bool:
        """For the HTTP face: whether a request with this Idempotency-Key may have had its answer already."""
        return await answered(self._view(), once, self._now())

    def _now(self) -> int:
        return self._service.clock.now_ms()

    def _after(self, delay_ms: int, name: str) -> int:
        return arguments.delayed(self._now(), delay_ms, name)

    def _call(self, event: Event[T], *, create: bool = True) -> Awaitable[T]:
        return self._service.host.call(self._id, event, create=create)

    async def _cancel_many(self, jobs: Sequence[tuple[str, str]]) -> int:
        """How many of these (id, incarnation) were there to be cancelled; in as many turns as it takes."""
        cancelled = 0
        while jobs:
            done, left = await self._call(CancelMany(jobs))
            cancelled, jobs = cancelled + done, jobs[len(jobs) - left :]
        return cancelled

    async def _change(self, event: Event[T], absent: T) -> T:
        try:
            return await self._call(event, create=False)
        except NotFoundError:
            return absent  # an instance that was never written holds nothing

    def _view(self) -> StoreView:
        return self._service.host.provider.view(str(self._id))

    async def _fill_labels(self, wanted: Filter) -> None:
        """A store that is older than the index of labels is filled from the first list by label on, if not before; such
        lists walk all jobs meanwhile."""
        if wanted.label is None or await labels.are_filled(self._view()):
            return
        with suppress(TocsinError):  # the list needs it not: a later one may find a store that takes writes
            await self._call(CountPaths(), create=False)

    def _name(self, value: str | None, field: str) -> str | None:
        return None if value is None else arguments.plain_name(value, field)

    def _limit(self, value: int) -> int:
        return arguments.integer(value, "limit", *arguments.PAGE_LIMIT)


def lease_token(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= arguments.MAX_LEASE:
        raise InvalidInputError(
            "lease must be the text that came with the claimed job, or with the callback as tocsin-lease"
        )
    return value


def stale(job_id: str) -> StaleLeaseError:
    return StaleLeaseError(f"no lease of job {job_id!r} is alive", id=job_id)
