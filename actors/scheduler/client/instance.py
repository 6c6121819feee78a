"""One scheduler as its host reaches it: what the parts of its port share."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.audit import Act, AuditRow
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.queries.candidates import Filter
from tocsin.actors.scheduler.state import labels
from tocsin.actors.scheduler.transitions.events import CancelMany, CountPaths
from tocsin.dispatch.words import word
from tocsin.errors import NotFoundError, TocsinError
from tocsin.storage.api import StoreProvider, StoreView
from tocsin.storage.residency.provider import part_of

if TYPE_CHECKING:
    from tocsin.actors.scheduler.actor.service import SchedulerService

T = TypeVar("T")


class Instance:
    """Holds its name and binds its host once; costs nothing until used."""

    op: str = ""
    """The operation id of the one call that is made through this, if it has any."""

    def __init__(self, service: SchedulerService, name: str) -> None:
        self.name = arguments.instance_name(name)
        self.service = service
        self.host = service.host
        self.id = actor_of(self.name)
        self.now_ms = service.clocks.now_of(self.name)

    def after(self, delay_ms: int, name: str) -> int:
        """Return the instant so long from now; InvalidInputError by `name` if it could not be stored."""
        return arguments.delayed(self.now_ms(), delay_ms, name)

    def call(self, event: Event[T], *, create: bool = True) -> Awaitable[T]:
        """Run this event as a turn of the actor."""
        return self.host.call(self.id, event, create=create)

    async def change(self, event: Event[T], absent: T) -> T:
        """Run an event that changes what is there; `absent` is the answer of an instance that was never written."""
        try:
            return await self.call(event, create=False)
        except NotFoundError:
            return absent

    async def cancel_many(self, jobs: Sequence[tuple[str, str]], act: Act) -> int:
        """Cancel these (id, incarnation), in as many turns as it takes. How many were there to be cancelled."""
        cancelled = 0
        while jobs:
            done, left = await self.call(CancelMany(jobs, act))
            cancelled, jobs = cancelled + done, jobs[len(jobs) - left :]
        return cancelled

    def act(self, action: str, by: AskedBy, about: str = "", said: dict[str, Any] | None = None) -> Act:
        """Begin an action that takes several turns: each adds to its row of the audit log."""
        at = self.now_ms()
        action_id = arguments.mint_id(at, (self.host.clock.now_ms() << 32) | self.host.random.getrandbits(32))
        given = {name: value for name, value in (said or {}).items() if value is not None}
        return Act(action_id, AuditRow(at, action, by, about, given))

    def store(self) -> StoreProvider:
        """Return the store it belongs to. ResidencyError; StoreUnavailable if it has been away since the start."""
        return part_of(self.host.provider, str(self.id))

    def view(self) -> StoreView:
        """Return the committed rows."""
        return self.host.provider.view(str(self.id))

    async def fill_labels(self, wanted: Filter) -> None:
        """Have the index of labels filled in a store that is older than the index.

        The first list by label asks for it, if nobody did before; such lists walk all jobs meanwhile.
        """
        if wanted.label is None or await labels.are_filled(self.view()):
            return
        with suppress(TocsinError):  # the list does not need the index: a later one may find a store that takes writes
            await self.call(CountPaths(), create=False)


def name_or_none(value: str | None, field: str) -> str | None:
    """Check the name of a filter."""
    return None if value is None else arguments.plain_name(value, field)


def path_or_none(value: str | None) -> str | None:
    """Check the path of a filter."""
    return None if value is None else arguments.whole_text(value, word("function_path"))


def page_limit(value: int) -> int:
    """Check how many a page may hold."""
    return arguments.integer(value, "limit", *arguments.PAGE_LIMIT)
