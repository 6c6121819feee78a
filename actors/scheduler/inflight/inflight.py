"""State of one scheduler that its host keeps in memory and never stores: callbacks in flight, and everybody who
waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from tocsin.actors.runtime.events import Event
from tocsin.actors.runtime.host import Host
from tocsin.actors.scheduler.inflight.activity import Activities
from tocsin.actors.scheduler.inflight.completions import Answer, Completions
from tocsin.actors.scheduler.inflight.elsewhere import Elsewhere
from tocsin.actors.scheduler.inflight.feed import Feed
from tocsin.actors.scheduler.inflight.instance_clocks import InstanceClocks
from tocsin.actors.scheduler.inflight.lanes import Lanes
from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.inflight.result_waiters import ResultWaiters
from tocsin.actors.scheduler.inflight.sending import Sender
from tocsin.actors.scheduler.inflight.waiting_claims import WaitingClaims
from tocsin.actors.scheduler.model.clock import ClockRow
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.events import Complete
from tocsin.actors.scheduler.transitions.settle import AttemptResult
from tocsin.errors import StoreUnavailable, TocsinError

A = TypeVar("A")
CLOCK_STOPS: Final = "/clock"
"""Waited for as if it were a job, which cannot have this id: the end of an advance."""


class Inflight:
    """The one object of a scheduler on this host. Its parts reach the actor through it, so it lives as long as the
    actor, an attempt or a place in a line needs one of them. Who waits for a result holds the object itself."""

    def __init__(
        self,
        name: str,
        host: Host,
        permits: Permits,
        limit: int,
        sender: Sender,
        clocks: InstanceClocks,
        activities: Activities,
        elsewhere: Callable[[], Elsewhere | None],
    ) -> None:
        self._clocks, self.activities, self._elsewhere = clocks, activities, elsewhere
        self._name, self._host, self._actor, self._sender = name, host, actor_of(name), sender
        self.complete: Callable[[Complete], Awaitable[Sequence[Answer]]] = partial(host.call, self._actor, create=False)
        self.post: Callable[[Event[None]], asyncio.Future[None]] = partial(host.post, self._actor)
        self.lanes = Lanes(self, name, limit, permits, sender.send, host.start_soon, host.clock.monotonic, activities)
        check = self._may_be_given if sender.asks_first else None
        self.waiting_claims = WaitingClaims(
            name, self._start_call, host.start_soon, check, host.clock, activities, self._give_back_there
        )
        self.completions = Completions(self, host.start_soon)
        self.result_waiters = ResultWaiters()
        self.feed: Feed | None = None
        """The live feed; None while nobody watches this scheduler."""

    def note_clock(self, row: ClockRow | None) -> None:
        """Note where the instance's test clock stands, which is durable; None: it has none any more."""
        self.activities.count()  # what was done until now was done with the clock that there was
        self._clocks.note(self._name, row)
        if row is None or not row.target:
            self.result_waiters.tell([CLOCK_STOPS])

    def stop_waiting(self) -> None:
        """Answer whoever waits for jobs, or for the end of one; nobody waits from now on."""
        self.waiting_claims.stop()
        self.result_waiters.stop()
        if self.feed is not None:
            self.feed.wake()

    def refuse(self, error: TocsinError) -> None:
        """Send whoever waits elsewhere: another host has the scheduler, or gets it. Callbacks in flight go on, and it
        may come back."""
        self.lanes.leave_all()
        self.waiting_claims.refuse(error)
        self.result_waiters.refuse(error)
        if self.feed is not None:
            self.feed.refuse(error)

    async def send_on(self, ends: Sequence[AttemptResult]) -> None:
        """Have attempts settled by the host that has the scheduler by now."""
        await self._there().settle(self._name, ends)

    async def _give_back_there(self, leases: Sequence[str]) -> None:
        await self._there().give_back(self._name, leases)

    def _there(self) -> Elsewhere:
        if (there := self._elsewhere()) is None:
            raise StoreUnavailable(f"another host has the scheduler {self._name}, and this one does not reach it")
        return there

    async def _may_be_given(self, claim: Claim) -> bool:
        """Return whether a worker may get this job; if not, its attempt ends here, as one of a callback would."""
        refusal = await self._sender.refusal(claim, self._name)
        if refusal is not None:
            self.lanes.end(AttemptResult(claim.job, claim.token, refusal))
        return refusal is None

    def _start_call(self, event: Event[A]) -> asyncio.Future[A]:
        return self._host.call(self._actor, event, create=False)
