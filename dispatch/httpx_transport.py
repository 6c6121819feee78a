"""The transport that always works: httpcore, the engine below httpx, with one connection per lane.

A pool of connections is quadratic in what waits and leaks what is cancelled (measured: one shared client, 64 lanes,
76 requests/s; one each, 1,000 to 1,500), so a pool is used by one call at a time and closed if that breaks.
The client layer is left out: no redirects, cookies, proxies or netrc there are to be switched off.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpcore
import httpx

from tocsin.dispatch.addresses import Addresses
from tocsin.dispatch.answer_reader import AnswerReader
from tocsin.dispatch.certificates import trusting
from tocsin.dispatch.exchange import ASKED, KEEP_ALIVE_S, Bounds
from tocsin.dispatch.names import Connecting
from tocsin.dispatch.transport import Answer, NeverConnected

log = logging.getLogger("tocsin.dispatch")

READ_AT_ONCE: Final = 4 * 1024
"""Bytes between two pauses: chunks of one byte each take a millisecond or two."""
FAILURES: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.UnsupportedProtocol,
    httpcore.ConnectionNotAvailable,
    httpx.InvalidURL,
    OSError,  # TimeoutError is one
    ValueError,
)


class HttpxTransport:
    """A `Transport`. Use it in one event loop. With `addresses` it connects to those only that they permit."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None, addresses: Addresses | None = None) -> None:
        self._ssl_context, self._addresses = ssl_context, addresses
        self._idle: deque[tuple[_Wire, float]] = deque()
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
        wire, bounds = self._idle.pop()[0] if self._idle else self._open(), Bounds(connect_timeout, timeout, url)
        reader = AnswerReader(max_body, url)
        try:
            async with bounds.scope:
                await wire.exchange(_request(url, headers, body), bounds, reader)
        except FAILURES as error:
            self._discard(wire)
            if reader.answer is None:
                raise bounds.failure(error, reader.fault) from error
        except BaseException:
            self._discard(wire)
            raise
        else:
            self._keep(wire) if reader.reusable else self._discard(wire)
        if reader.answer is None:
            raise bounds.failure(ConnectionError("the connection ended without an answer"), reader.fault)
        return reader.answer

    def _open(self) -> _Wire:
        # The system's certificates, as in the other transport; read once, not per lane.
        self._ssl_context = self._ssl_context or trusting()
        return _Wire(self._ssl_context, self._addresses)

    # ---- Idle ones -------------------------------------------------------------------------------

    def _keep(self, wire: _Wire) -> None:
        if self._closed:
            self._discard(wire)
            return
        loop = asyncio.get_running_loop()
        self._idle.append((wire, loop.time()))
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_ALIVE_S, self._discard_stale)

    def _discard_stale(self) -> None:
        """Close idle connections that the other side has closed: nothing else would notice."""
        loop = asyncio.get_running_loop()
        self._sweep = None
        while self._idle and self._idle[0][1] <= loop.time() - KEEP_ALIVE_S:
            self._discard(self._idle.popleft()[0])
        if self._idle:
            self._sweep = loop.call_at(self._idle[0][1] + KEEP_ALIVE_S, self._discard_stale)

    def _discard(self, wire: _Wire) -> None:
        """Close in a task of its own: a cancelled call must not wait, nor be cancelled out of closing."""
        task = asyncio.get_running_loop().create_task(wire.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def reopen(self) -> None:
        """Connect again after `aclose`, also in another event loop."""
        self._closed, self._closing = False, set()

    async def aclose(self) -> None:
        """Close idle connections; calls in flight end by themselves."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._idle:
            self._discard(self._idle.popleft()[0])
        if self._closing:
            await asyncio.wait(self._closing)


class _Wire(Connecting):
    """One connection, and what connects it: a pool with room for one."""

    def __init__(self, ssl_context: ssl.SSLContext, addresses: Addresses | None) -> None:
        self.addresses = addresses
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=KEEP_ALIVE_S,
            network_backend=self,
        )
        self._socket: httpcore.AsyncNetworkStream | None = None
        """The last one connected: a cancelled TLS handshake leaves it open in nobody's care."""
        self.reader: AnswerReader | None = None
        """Of the call that has this wire."""

    async def exchange(self, request: httpcore.Request, bounds: Bounds, reader: AnswerReader) -> None:
        """Wait until the reader has ended, or the connection."""

        async def trace(event: str, info: Mapping[str, Any]) -> None:
            if event.endswith(".send_request_headers.started"):
                bounds.sending()

        self.reader = reader
        request.extensions = {"trace": trace}  # and no timeouts of httpcore: ours cover everything
        response = await self._pool.handle_async_request(request)
        await response.aread()
        await response.aclose()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self._socket = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(self._socket, self)

    async def close(self) -> None:
        for each in (self._pool, self._socket):
            if each is not None:
                try:
                    await each.aclose()
                except Exception:
                    # It was being thrown away: nobody waits for it, and nothing else of it is left to close.
                    log.debug("a broken connection did not close cleanly", exc_info=True)


class _Stream(httpcore.AsyncNetworkStream):
    """Gives what comes to the reader of the call, and shows httpcore only that its answer ended."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, wire: _Wire) -> None:
        self._inner, self._wire = inner, wire

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        reader = self._wire.reader
        assert reader is not None, "httpcore reads during a call only"
        while not reader.ended:
            data = await self._inner.read(max_bytes, timeout)
            if not data:
                reader.eof()
            for start in range(0, len(data), READ_AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                reader.feed(data[start : start + READ_AT_ONCE])
        if reader.answer is None:
            raise httpcore.RemoteProtocolError(reader.fault)
        return reader.shown()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._wire)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _request(url: str, headers: Mapping[str, str], body: bytes) -> httpcore.Request:
    to = httpx.URL(url)
    fields = {"host": to.netloc.decode("ascii"), **ASKED, **headers, "content-length": str(len(body))}
    return httpcore.Request(
        "POST",
        httpcore.URL(scheme=to.raw_scheme, host=to.raw_host, port=to.port, target=to.raw_path),
        headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in fields.items()],
        content=body,
    )
