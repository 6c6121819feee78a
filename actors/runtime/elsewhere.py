"""Actors that other hosts have, where several hosts share a store: refused at once, and let go of when they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from tocsin.actors.runtime.activation import Activation
from tocsin.actors.runtime.alarms import AlarmHeap
from tocsin.actors.runtime.ids import ActorId
from tocsin.errors import StoreError, StoreLocked
from tocsin.storage.api import Leaving, Lost
from tocsin.storage.shared import SharedProvider

Covers = Callable[[str], bool]


class Elsewhere:
    """The boundary between this host's actors and those of others."""

    def __init__(
        self,
        shared: SharedProvider | None,
        activations: Mapping[ActorId, Activation],
        start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        gone: Callable[[Covers, StoreError], None],
    ) -> None:
        """`shared` is None where this host has the store alone. `gone` is told of actors that go to another host, or
        have gone: by their names, and with the error for who waits."""
        self.shared = shared
        self._activations, self._start_soon, self._gone = activations, start_soon, gone

    def unsure(self) -> bool:
        """Return whether others may have what this host had, as far as it knows: nothing is begun then."""
        assert self.shared is not None
        return not self.shared.lease_good

    def check(self, actor: ActorId) -> None:
        """Refuse events for actors of other hosts; also while this host cannot be sure which are its own."""
        assert self.shared is not None
        found = self.shared.locate(str(actor))
        if not found.here:
            where = "it is moving, or the store is not reached" if found.host is None else f"host {found.host} has it"
            raise StoreLocked(f"{actor} is not here: {where}")

    def lost(self, event: Lost, alarms: AlarmHeap) -> None:
        """Give up what another host has."""
        error = StoreLocked(f"another host has this now: {event.reason}")
        for activation in self._going(event.covers, error, alarms):
            activation.lose(error)

    def leave(self, event: Leaving, alarms: AlarmHeap) -> None:
        """Let go of what another host is to have: nothing new is begun, what runs ends, and nothing else is waited
        for."""
        error = StoreLocked("another host has this from now on")
        going = self._going(event.covers, error, alarms)
        for activation in going:
            activation.leave(error)
        self._start_soon(self._let_go(going, event.left))

    def _going(self, covers: Covers, error: StoreLocked, alarms: AlarmHeap) -> list[Activation]:
        """Ring these actors no more; return those in memory."""
        for actor in [actor for actor in alarms.due if covers(str(actor))]:
            alarms.set(actor, None)
            alarms.worked(actor)  # its new owner reports its failures
        self._gone(covers, error)
        return [activation for actor, activation in self._activations.items() if covers(str(actor))]

    async def _let_go(self, going: Sequence[Activation], left: Callable[[], None]) -> None:
        await asyncio.gather(*(activation.left() for activation in going))
        left()
