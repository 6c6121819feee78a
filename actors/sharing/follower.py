"""The calls of a process that does not hold the store: they are sent to the holder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any
from weakref import WeakSet

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.sharing.caller import GAP_S, Caller, Home, Trip, Way
from tocsin.actors.sharing.link import Link
from tocsin.errors import HostClosedError, StoreUnavailable


class Follower(Caller):
    """Sends the calls of this process wherever the store is: over the link of the moment, or to this process itself."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        random: Random,
        start_soon: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        super().__init__(home, clock, random, start_soon)
        self._link: Link | None = None
        self._is_home = False
        self._waiting: set[asyncio.Future[None]] = set()
        _all.add(self)

    @property
    def link(self) -> Link | None:
        """The link to the holder, if it takes calls."""
        return self._link if self._link is not None and not self._link.ended.is_set() else None

    def holder_has_origin(self) -> bool | None:
        """Return whether the holder's callbacks have somewhere to go; None where no holder is reached."""
        link = self.link
        return None if link is None else link.vitals.has_origin

    def start(self) -> None:
        """Begin anew: it is not known where the store is."""
        super().start()
        self._link, self._is_home = None, False

    def follow(self, link: Link) -> None:
        """Send calls over this link from now on."""
        self._link = link
        self._wake()

    def be_home(self) -> None:
        """Make calls in this process from now on: it holds the store."""
        self._link, self._is_home = None, True
        self._wake()

    def forked(self) -> None:
        """Refuse all calls in a forked process: the link is the parent's."""
        if self._link is not None or self._is_home:
            self._link, self._is_home = None, False
            self._closed = "this process was forked from one whose host was open: open a host after the fork"

    def close(self, why: str) -> None:
        super().close(why)
        self._wake()
        if self._link is not None:
            self._link.close()

    def _wake(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    async def until_answered(self) -> None:
        if self._link is not None:
            await self._link.until_answered()

    async def reach(self, trip: Trip) -> Link | None:
        """Return the link to the holder, or None if this process is it."""
        while self._closed is None:
            if self._is_home:
                return None
            if (link := self.link) is not None:
                return link
            if (left := trip.until - self._clock.monotonic()) <= 0:
                raise StoreUnavailable(
                    f"no process holds the store, and none has taken it over within {GAP_S:g} s: try again; the log of "
                    "each process of this store says why it does not",
                    retryAfterMs=1000,
                )
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                async with asyncio.timeout(left):
                    await waiter
            except TimeoutError:
                continue
            finally:
                self._waiting.discard(waiter)
        raise HostClosedError(self._closed)

    async def has_moved(self, trip: Trip, way: Way | None) -> None:
        """Send nothing more over a link whose holder is about to go."""
        assert way is not None
        way.ended.set()


_all: WeakSet[Follower] = WeakSet()


def _forked() -> None:
    for each in list(_all):
        each.forked()


os.register_at_fork(after_in_child=_forked)
