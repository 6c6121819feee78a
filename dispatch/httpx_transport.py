"""The transport that always works: httpx, one of its transports with one connection per lane.

httpx's pool is quadratic in what waits and leaks what is cancelled (measured: one shared client, 64 lanes,
76 requests/s; one each, 1,000 to 1,500), so a pool is used by one call at a time and closed if that breaks.
Its client layer is left out: no redirects, cookies, proxies or netrc there are to be switched off.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import httpx

from tocsin.dispatch.exchange import ASKED, KEEP_ALIVE_S, Body, Bounds, joined
from tocsin.dispatch.transport import Answer, NeverConnected

log = logging.getLogger("tocsin.dispatch")

LIMITS: Final = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE_S)
PIECES_AT_ONCE: Final = 128
"""Chunks of one byte each are parsed without a pause otherwise: a quarter of a second in which nobody else runs."""


class HttpxTransport:
    """A `Transport`. Use it in one event loop."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context
        self._idle: deque[tuple[httpx.AsyncHTTPTransport, float]] = deque()
        """With the instant each became idle, oldest first."""
        self._sweep: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        max_body: int,
    ) -> Answer:
        if self._closed:
            raise NeverConnected("the transport is closed")
        call = _Call(self._idle.pop()[0] if self._idle else self._open(), Bounds(connect_timeout, timeout))
        try:
            async with call.bounds.scope:
                answer = await call.exchange(url, headers, body, max_body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:  # TimeoutError is an OSError
            self._discard(call.wire, call.socket)
            raise call.bounds.failure(error) from error
        except BaseException:
            self._discard(call.wire, call.socket)
            raise
        self._keep(call.wire)
        return answer

    def _open(self) -> httpx.AsyncHTTPTransport:
        # The system's certificates, as in the other transport; httpx would take its own bundle, and read it per lane.
        self._ssl_context = self._ssl_context or ssl.create_default_context()
        return httpx.AsyncHTTPTransport(verify=self._ssl_context, trust_env=False, limits=LIMITS)

    # ---- Idle ones -------------------------------------------------------------------------------

    def _keep(self, wire: httpx.AsyncHTTPTransport) -> None:
        if self._closed or not _nothing_left_over(wire):
            self._discard(wire)
            return
        loop = asyncio.get_running_loop()
        self._idle.append((wire, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_ALIVE_S, self._discard_stale)

    def _discard_stale(self) -> None:
        """Nobody else would notice that the other side closed an idle connection, and it would stay open here."""
        loop = asyncio.get_running_loop()
        self._sweep = None
        while self._idle and self._idle[0][1] <= loop.time() - KEEP_ALIVE_S:
            self._discard(self._idle.popleft()[0])
        if self._idle:
            self._sweep = loop.call_at(self._idle[0][1] + KEEP_ALIVE_S, self._discard_stale)

    def _discard(self, *closables: Any) -> None:
        """Close in a task of its own: a cancelled call must not wait, nor be cancelled out of closing."""
        task = asyncio.get_running_loop().create_task(_close(*closables))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Calls in flight go on to their own ends."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        while self._idle:
            self._discard(self._idle.popleft()[0])
        if self._closing:
            await asyncio.wait(self._closing)


class _Call:
    """One call, on a connection that is its own meanwhile."""

    def __init__(self, wire: httpx.AsyncHTTPTransport, bounds: Bounds) -> None:
        self.wire, self.bounds = wire, bounds
        self.socket: Any = None
        """A new connection, as soon as there is one: a cancelled TLS handshake leaves it open in nobody's care."""

    async def exchange(self, url: str, headers: Mapping[str, str], body: bytes, max_body: int) -> Answer:
        extensions = {"trace": self._trace}  # and no timeouts of httpx: ours cover everything
        request = httpx.Request("POST", url, headers={**ASKED, **headers}, content=body, extensions=extensions)
        response = await self.wire.handle_async_request(request)
        received, pieces = Body(max_body), 0
        async for piece in response.aiter_raw():
            received.add(piece)
            pieces += 1
            if pieces % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return Answer(response.status_code, joined(response.headers.multi_items()), received.whole())

    async def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(".connect_tcp.complete"):
            self.socket = info["return_value"]
        elif event.endswith(".send_request_headers.started"):
            self.bounds.sending()


def _nothing_left_over(wire: httpx.AsyncHTTPTransport) -> bool:
    """Whether the connection is open still and nothing was read behind the answer.

    Such bytes (the body of a 204, say) would be taken for the answer to the next request. There is no public way
    to ask; where the private one is gone, connections are used once.
    """
    pool: Any = wire._pool
    try:
        (connection,) = pool.connections
        return bool(connection._connection._h11_state.trailing_data == (b"", False))
    except (AttributeError, ValueError):
        return False


async def _close(*closables: Any) -> None:
    for each in closables:
        if each is not None:
            try:
                await each.aclose()
            except Exception:
                # It was being thrown away: nobody waits for it, and nothing else of it is left to close.
                log.debug("a broken connection did not close cleanly", exc_info=True)
