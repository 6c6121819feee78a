"""Alarms that may be wrong: those of actors that come with alarms of later, and all later ones when the clock was
stepped back. Whoever set them is asked, one after the other, so that many actors are no burden."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.ids import ActorId
from tocsin.errors import ActorBrokenError, StoreError

log = logging.getLogger("tocsin.actors")

RETRY_S = 5.0

Check = Callable[[ActorId], Awaitable[None]]


class Doubts:
    """The actors whose alarms are to be doubted."""

    def __init__(
        self,
        check_of: Callable[[ActorId], Check | None],
        clock: Clock,
        start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """`check_of(actor)` returns what looks at its alarm; None where nothing does."""
        self._check_of, self._clock, self._start_soon = check_of, clock, start_soon
        self._doubted: deque[ActorId] = deque()
        self.task: asyncio.Task[None] | None = None
        """The one that goes through them; None while there are none."""
        self.waits = False
        """True while it waits for a store that could not be read."""

    def add(self, actors: Iterable[ActorId]) -> None:
        """Look at these as well."""
        self._doubted.extend(actors)
        if self._doubted and self.task is None:
            self.task = self._start_soon(self._each())
            self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self.task is task:  # it was cancelled before it began
            self.task = None

    async def _each(self) -> None:
        try:
            while self._doubted:
                await self._doubt(self._doubted[0])
                self._doubted.popleft()
        finally:
            self.task = None

    async def _doubt(self, actor: ActorId) -> None:
        while (check := self._check_of(actor)) is not None:
            try:
                return await check(actor)
            except (StoreError, ActorBrokenError) as error:
                log.warning("could not check the alarm of %s, trying again soon: %r", actor, error)
                self.waits = True
                await self._clock.sleep(RETRY_S)
                self.waits = False
            except Exception:
                # A fault of this actor alone, which its own alarm will report as well: go on with the others.
                log.exception("could not check the alarm of %s", actor)
                return
