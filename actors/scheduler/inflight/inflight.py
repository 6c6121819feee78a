"""What one host has in memory of one scheduler and never stores: callbacks in flight, and everybody who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from tocsin.actors.runtime.events import Event
from tocsin.actors.runtime.host import Host
from tocsin.actors.scheduler.inflight.completions import Answer, Completions
from tocsin.actors.scheduler.inflight.lanes import Lanes, Send
from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.inflight.result_waiters import ResultWaiters
from tocsin.actors.scheduler.inflight.waiting_claims import Check, WaitingClaims
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.transitions.events import Complete

A = TypeVar("A")


class Inflight:
    """Its parts reach the actor through methods of this object, so it lives as long as its actor, an attempt or a place
    in a line needs one of them. Who waits for a result holds the object itself."""

    def __init__(self, name: str, host: Host, permits: Permits, limit: int, send: Send, check: Check | None) -> None:
        self._host, self._actor = host, actor_of(name)
        self.lanes = Lanes(name, limit, permits, send, self._post, host.start_soon, host.clock.monotonic)
        self.waiting_claims = WaitingClaims(name, self._call, host.start_soon, check, host.clock)
        self.completions = Completions(self._complete, host.start_soon)
        self.result_waiters = ResultWaiters()

    def stop_waiting(self) -> None:
        """Whoever waits for jobs, or for the end of one, is answered; nobody waits from now on."""
        self.waiting_claims.stop()
        self.result_waiters.stop()

    def _post(self, event: Event[None]) -> asyncio.Future[None]:
        return self._host.post(self._actor, event)

    def _call(self, event: Event[A]) -> asyncio.Future[A]:
        return self._host.start_soon(self._host.call(self._actor, event, create=False))

    def _complete(self, batch: int) -> Awaitable[Sequence[Answer]]:
        return self._host.call(self._actor, Complete(batch), create=False)
