"""The calls of one host of a shared store: each goes to the owner of its actor, over a link or by mail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final

from tocsin.actors.cluster.network import Network
from tocsin.actors.cluster.peers import AGAIN_S, Peers
from tocsin.actors.cluster.post import Post
from tocsin.actors.cluster.routes import BY_MAIL, RATHER_FROM_STORE, is_elsewhere, subject
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.done import operation_id
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.sharing.caller import GAP_S, Caller, Home, Trip, Way
from tocsin.actors.sharing.operations import Again, Operation
from tocsin.actors.sharing.remote_port import run_once
from tocsin.errors import HostClosedError, NotAnsweredYetError, StoreError, StoreUnavailable
from tocsin.storage.shared import Located, SharedProvider

LOOK_S: Final = 0.5
"""Calls that can go by mail wait so long for an owner first: a hand-over takes a tenth of a second."""
MOVED_S: Final = 0.1
"""After a call that came to a host which is not the owner any more, the store is asked again no sooner."""
MOST_MOVED: Final = 3
"""Calls that came so often to the wrong host go by mail."""
NOTED: Final = frozenset({Again.MAY_BE, Again.MAY_NOT_BE})


class ClusterCaller(Caller):
    """Makes calls at the owner of their actor."""

    def __init__(
        self,
        home: Home,
        provider: SharedProvider,
        network: Network,
        clock: Clock,
        random: Random,
        start_soon: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        super().__init__(home, clock, random, start_soon)
        self._provider = provider
        self.peers = Peers(network, provider, clock, random, start_soon, self.undo)

    def close(self, why: str) -> None:
        super().close(why)
        self.peers.close()

    def operation_id(self, operation: Operation, again: bool) -> str:
        return self._new_id() if again or operation.again in NOTED else ""

    async def run_here(self, trip: Trip, who: AskedBy | None, values: Sequence[Any]) -> Any:
        return await run_once(trip.operation, self._port(trip, who), trip.instance, values, trip.op)

    def _new_id(self) -> str:
        return operation_id(self._clock.now_ms(), self._random)

    def is_elsewhere(self, error: StoreError) -> bool:
        return is_elsewhere(error)

    async def until_answered(self) -> None:
        await self.peers.until_answered()

    async def ask(
        self, name: str, instance: str, values: Sequence[Any], who: AskedBy | None = None, *, again: bool = False
    ) -> Any:
        """Have an operation done by whoever owns what it is for. NotAnsweredYetError names what was accepted."""
        try:
            return await super().ask(name, instance, values, who, again=again)
        except NotAnsweredYetError as pending:
            pending.details |= _named(name, values)
            raise

    async def reach(self, trip: Trip) -> Way | None:
        """Return the link to the owner; None if this host is it. What changes something goes by mail where the owner
        is not reached, or where there is none for a while."""
        actor = subject(trip.operation, trip.instance, trip.values)
        if actor is None:
            return None
        by_mail = trip.operation.name in BY_MAIL
        until = trip.until
        if by_mail or trip.operation.name in RATHER_FROM_STORE:  # there is something else to be done
            until = min(until, self._clock.monotonic() + LOOK_S)
        while True:
            if self._closed is not None:
                raise HostClosedError(self._closed)
            place = self._provider.locate(actor)
            if trip.moved < MOST_MOVED or not by_mail:
                if place.here:
                    return None
                if (link := await self._link(place)) is not None:
                    return link
            left = until - self._clock.monotonic()
            is_apart = not (place.here or place.host is None or self.peers.may_reach(place.url))
            if left <= 0 or is_apart:
                if by_mail:
                    return Post(self._provider.mailbox, actor, trip.op or self._new_id())
                raise self._not_reached(actor, place)
            await self._provider.relocated(actor, place, left if place.host is None else min(left, AGAIN_S))

    async def _link(self, place: Located) -> Way | None:
        if place.host is None or place.url is None:
            return None
        return await self.peers.link(place.host, place.url)

    async def has_moved(self, trip: Trip, way: Way | None) -> None:
        """Look for it anew, but not at once: who was asked knows of the move sooner than this host."""
        actor = subject(trip.operation, trip.instance, trip.values)
        trip.moved += 1
        if actor is not None:
            await self._provider.relocated(actor, self._provider.locate(actor), MOVED_S)
        if trip.moved > GAP_S / MOVED_S and trip.operation.name not in BY_MAIL:
            raise StoreUnavailable(f"{actor} is between two hosts: try again", retryAfterMs=1000)

    def _not_reached(self, actor: str, place: Located) -> StoreUnavailable:
        if place.host is None:
            why = f"no host owns {actor} at present"
        elif place.url is None:
            why = f"host {place.host} owns {actor}, and has no address at which others reach it"
        else:
            reason = self.peers.reasons.get(place.host, "it does not answer")
            why = f"host {place.host} owns {actor}, and is not reached: {reason}"
        return StoreUnavailable(f"{why}. This needs what is in its memory: try again", retryAfterMs=1000)


def _named(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return what jobs a call that is accepted will make: the caller may look for them."""
    if name == "jobs.submit":
        return {"id": values[0].job.id}
    if name in ("jobs.submit_many", "jobs.submit_once"):
        ids = [new.job.id for new in values[0]]
        return {"id": ids[0]} if len(ids) == 1 else {"ids": ids}
    return {}
