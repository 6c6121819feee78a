"""A sign of life: a POST to a dead-man's-switch once a minute, while all is well. Who stops hears of it from outside,
because a scheduler cannot report its own death."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final
from urllib.parse import urlsplit

from tocsin.actors.host_options import check_transport
from tocsin.actors.runtime.actor import EventActor
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.events import Event
from tocsin.actors.runtime.ids import ActorId
from tocsin.dispatch.target import check_url
from tocsin.dispatch.transport import Transport, TransportError, reopen
from tocsin.dispatch.transports import default_transport
from tocsin.errors import TocsinError
from tocsin.storage.api import StoreProvider
from tocsin.storage.shared import shared_of

log = logging.getLogger("tocsin.actors")

EVERY_S: Final = 60.0
CONNECT_S: Final = 5.0
TIMEOUT_S: Final = 10.0
WRITE_S: Final = 10.0
"""A store that takes longer for one small row is in trouble."""
MOST_TRIED: Final = 1_000
"""Names of which one hashes to a slot of this host, unless it owns next to nothing."""
MAX_ANSWER: Final = 64 * 1024
HEADERS: Final[Mapping[str, str]] = {"content-type": "text/plain", "user-agent": "tocsin"}


class Beat(Event[None], frozen=True):
    """Write a row."""


class Pulse(EventActor[Beat]):
    """Proves that turns run and that what they write becomes durable."""

    kind: ClassVar[str] = "tocsin-pulse"

    async def handle(self, event: Beat) -> None:
        self.ctx.storage.put(b"beat", b"%d" % self.ctx.now_ms())


class PulseName:
    """The name of an actor of this host that proves it. In a shared store any one name may be another host's."""

    def __init__(self, provider: StoreProvider) -> None:
        self._shared, self._name = shared_of(provider), "host"

    def find(self) -> str | None:
        """Return its name; None if this host owns nothing, as one that only calls others."""
        if self._shared is None or self._is_here(self._name):
            return self._name
        tried = ("host", *(f"host-{n}" for n in range(MOST_TRIED)))
        self._name = found = next(filter(self._is_here, tried), None) or "host"
        return found if self._is_here(found) else None

    def _is_here(self, name: str) -> bool:
        return self._shared is not None and self._shared.locate(str(ActorId(Pulse.kind, name))).here


class Heartbeat:
    """`trouble()` says what is not well, or None; `write()` returns when a row is durable."""

    def __init__(
        self,
        url: str,
        transport: Transport,
        clock: Clock,
        trouble: Callable[[], str | None],
        write: Callable[[], Awaitable[object]],
    ) -> None:
        self._url, self._transport, self._clock = check_heartbeat(url), transport, clock
        self._trouble, self._write = trouble, write
        self._task: asyncio.Task[None] | None = None
        self._silent: str | None = None

    def start(self) -> None:
        reopen(self._transport)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Silent from here on."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._transport.aclose()

    async def _run(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self._beat()
            except Exception:
                # Nothing depends on it; the next one is tried in a minute.
                log.exception("a heartbeat failed inside tocsin")
            await self._clock.sleep(max(EVERY_S - (self._clock.monotonic() - began), 1.0))

    async def _beat(self) -> None:
        why = self._trouble() or await self._unwritable()
        if why != self._silent:
            if why is not None:
                log.error("no heartbeat is sent while %s", why)
            elif self._silent is not None:
                log.warning("heartbeats are sent again")
            self._silent = why
        if why is None:
            await self._send()

    async def _unwritable(self) -> str | None:
        try:
            async with asyncio.timeout(WRITE_S):
                await self._write()
        except TimeoutError:
            return f"the store takes longer than {WRITE_S:.0f} s for one row"
        except TocsinError as error:
            return f"the store takes no row: {error.message}"
        return None

    async def _send(self) -> None:
        """Its URL is a secret, usually: only the host is named."""
        to = urlsplit(self._url).hostname
        try:
            answer = await self._transport.post(
                self._url, HEADERS, b"", connect_timeout=CONNECT_S, timeout=TIMEOUT_S, max_body=MAX_ANSWER
            )
        except TransportError as error:
            log.warning("a heartbeat did not reach %s: %s", to, type(error).__name__)
            return
        if not 200 <= answer.status < 300:
            log.warning("a heartbeat was answered with %d by %s", answer.status, to)


def heartbeat_to(
    url: str | None,
    transport: Transport | None,
    clock: Clock,
    trouble: Callable[[], str | None],
    write: Callable[[], Awaitable[object]],
) -> Heartbeat | None:
    """Return the heartbeat of a host; None without a URL. SettingsError for what cannot send it."""
    if url is None:
        return None
    if transport is not None:
        check_transport("heartbeat_transport", transport)
    return Heartbeat(url, transport or default_transport(), clock, trouble, write)


def check_heartbeat(value: object, name: str = "heartbeat_url") -> str:
    """SettingsError if it is no URL to post to. The message does not show it: such URLs are secrets."""
    return check_url(value, name, example="https://hc.example/your-check", query=True, secret=True)
