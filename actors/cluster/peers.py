"""The links of this host to others of its store: one to each start of each host, opened when it is first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, Final

from tocsin.actors.cluster.network import Network
from tocsin.actors.cluster.peer_link import PeerLink
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.sharing.link import Gone
from tocsin.actors.sharing.operations import Operation
from tocsin.errors import StoreLocked
from tocsin.storage.shared import SharedProvider

log = logging.getLogger("tocsin.cluster")

WELCOME_S: Final = 1.0
AGAIN_S: Final = 1.0
"""A host that was not reached is not tried again for so long: its calls go by mail meanwhile."""
REASONS_KEPT: Final = 256
PING_S: Final = 0.5
SILENT: Final = 4
"""After so many pings without a word from it, a link is cut: its host stands still, or the network between is broken.
Calls on it are made again elsewhere."""


class Peers:
    """Finds the link to a host, or notes for a while that there is none."""

    def __init__(
        self,
        network: Network,
        provider: SharedProvider,
        clock: Clock,
        random: Random,
        start_soon: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        undo: Callable[[Operation, bytes], None],
    ) -> None:
        self._network, self._provider, self._clock, self._random = network, provider, clock, random
        self._start_soon, self._undo = start_soon, undo
        self._links: dict[str, PeerLink] = {}
        self._coming: dict[str, asyncio.Task[PeerLink | None]] = {}
        self._not_before: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        """By host, why it was not reached last."""

    @property
    def links(self) -> list[PeerLink]:
        """The links that are open."""
        return list(self._links.values())

    def may_reach(self, url: str | None) -> bool:
        """Return whether a host at this address can be reached from here at all."""
        return url is not None and self._network.may_reach(url)

    async def link(self, host: str, url: str) -> PeerLink | None:
        """Return the link to a host; None if it is not reached at present."""
        if (link := self._links.get(host)) is not None and not link.ended.is_set():
            return link
        if not self._network.may_reach(url):
            self.reasons[host] = f"{url} is of another machine, or of another network"
            return None
        if self._clock.monotonic() < self._not_before.get(host, 0.0):
            return None
        coming = self._coming.get(host)
        if coming is None:
            coming = self._coming[host] = self._start_soon(self._open(host, url))
            coming.add_done_callback(lambda _: self._coming.pop(host, None))
        return await asyncio.shield(coming)

    async def _open(self, host: str, url: str) -> PeerLink | None:
        me, secret = self._provider.owner, self._provider.secret
        link: PeerLink | None = None
        try:
            link = await self._network.connect(url, lambda: PeerLink(me, host, secret, self._random, self._undo))
            async with asyncio.timeout(WELCOME_S):
                await asyncio.shield(link.welcome)
        except (OSError, TimeoutError, Gone, StoreLocked) as error:
            if link is not None:
                link.abort()
                link.welcome.cancel()
            self._failed(host, url, error)
            return None
        if link.is_lost:
            return None
        self._links[host] = link
        self.reasons.pop(host, None)
        self._start_soon(self._watch(host, link))
        return link

    def _failed(self, host: str, url: str, error: Exception) -> None:
        now = self._clock.monotonic()
        self._not_before = {each: until for each, until in self._not_before.items() if until > now}
        self._not_before[host] = now + AGAIN_S
        said = str(error) or type(error).__name__
        if self.reasons.get(host) != said:
            log.info("host %s is not reached at %s, so calls to it go by mail: %s", host, url, said)
        self.reasons[host] = said
        while len(self.reasons) > REASONS_KEPT:  # each start of a host has an id of its own
            del self.reasons[next(iter(self.reasons))]

    async def _watch(self, host: str, link: PeerLink) -> None:
        """Look after a link until it is lost."""
        silent = 0
        try:
            while not link.is_lost:
                heard = link.heard
                link.ping()
                await self._clock.sleep(PING_S)
                silent = 0 if link.heard != heard else silent + 1
                if silent >= SILENT:
                    log.warning("host %s has not said a word for %.1f s: its link is cut", host, SILENT * PING_S)
                    link.abort()
                    return
        finally:
            if self._links.get(host) is link:
                del self._links[host]

    async def until_answered(self) -> None:
        """Wait for answers that are to come, also of calls whose callers have gone away."""
        if waiting := [asyncio.ensure_future(link.until_answered()) for link in self._links.values()]:
            try:
                await asyncio.wait(waiting)
            finally:
                for each in waiting:
                    each.cancel()

    def close(self) -> None:
        """End all links."""
        links, self._links = self._links, {}
        self._not_before.clear()
        for link in links.values():
            with suppress(Exception):
                link.close()
