"""The network between the hosts of a simulated cluster: links that are slow, cut for some time, or lost for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, TypeVar

from tests.simulation.hosts_loop import HostsLoop
from tocsin.actors.sharing.door import MayEnter

W = TypeVar("W", bound=asyncio.Protocol)
SCHEME = "sim:"
DELAYS_S = (0.0001, 0.001, 0.02)


class Links:
    """All links of a cluster, by the hosts at their ends."""

    def __init__(self, loop: HostsLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.doors: dict[str, Callable[[MayEnter], asyncio.Protocol]] = {}
        self.ends: list[End] = []
        self.cuts: set[frozenset[str]] = set()
        self.contexts: dict[str, Context] = {}

    def of(self, host: str) -> HostLinks:
        self.contexts[host] = self.loop.context_of(host)
        return HostLinks(self, host)

    def delay(self) -> float:
        return self.random.choice(DELAYS_S)

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cuts

    def mend(self, one: str, other: str) -> None:
        """What was sent meanwhile is sent again, and arrives."""
        self.cuts.discard(frozenset((one, other)))
        for end in self.ends:
            if {end.of, end.to} == {one, other}:
                end.soon(end.arrive)

    def lose(self, host: str) -> None:
        """End all links of a host, with what is on them."""
        self.doors.pop(host, None)
        for end in self.ends:
            if not end.closed and end.to == host:
                end.coming.clear()
                end.soon(end.lose)


class HostLinks:
    """The `Network` of one host."""

    def __init__(self, links: Links, host: str) -> None:
        self._links, self._host = links, host

    async def listen(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> str | None:
        self._links.doors[self._host] = accept
        return SCHEME + self._host

    async def close(self) -> None:
        self._links.doors.pop(self._host, None)

    def may_reach(self, url: str) -> bool:
        return url.startswith(SCHEME)

    async def connect(self, url: str, make: Callable[[], W]) -> W:
        links, to = self._links, url.removeprefix(SCHEME)
        await asyncio.sleep(links.delay())
        if links.is_cut(self._host, to):
            await asyncio.sleep(1)
            raise TimeoutError(f"{url} does not answer")
        if to not in links.doors:
            raise ConnectionRefusedError(f"nobody is at {url}")
        near, far = End(links, self._host, to), End(links, to, self._host)
        near.other, far.other = far, near
        links.ends += [near, far]
        accept = links.doors[to]
        links.loop.call_soon(far.open, lambda: accept(lambda _: True), context=links.contexts[to])
        caller = make()
        near.open(lambda: caller)
        return caller


class End(asyncio.Transport):
    """One end of a link. What comes to it is done by its host, when that one does anything."""

    other: End

    def __init__(self, links: Links, of: str, to: str) -> None:
        super().__init__()
        self.links, self.of, self.to = links, of, to
        self.protocol: asyncio.Protocol | None = None
        self.closed = False
        self.coming: list[bytes] = []

    def open(self, make: Callable[[], asyncio.Protocol]) -> None:
        self.protocol = make()
        self.protocol.connection_made(self)
        self.arrive()

    def soon(self, what: Callable[[], None]) -> None:
        self.links.loop.call_later(self.links.delay(), what, context=self.links.contexts[self.of])

    def write(self, data: Any) -> None:
        if not self.closed:
            self.other.coming.append(bytes(data))
            self.other.soon(self.other.arrive)

    def arrive(self) -> None:
        if self.protocol is None or self.closed or not self.coming or self.links.is_cut(self.of, self.to):
            return
        data = b"".join(self.coming)
        self.coming.clear()
        self.protocol.data_received(data)

    def close(self) -> None:
        for end in (self, self.other):
            if not end.closed:
                end.soon(end.lose)

    def abort(self) -> None:
        self.close()

    def lose(self) -> None:
        if not self.closed and self.protocol is not None:
            self.arrive()
            self.closed = True
            self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default
