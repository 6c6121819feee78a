"""The transport of callbacks: HTTP/1.1 on asyncio or uvloop, a protocol per connection and no library in between.

It connects, writes, keeps and closes; what an answer is decides `answer_reader`, as for the other transports.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tocsin.dispatch.addresses import Addresses
from tocsin.dispatch.answer_reader import AnswerReader
from tocsin.dispatch.certificates import trusting
from tocsin.dispatch.connection import Connection, Place, addresses_of, connected
from tocsin.dispatch.connection_faults import in_words
from tocsin.dispatch.exchange import ASKED, KEEP_ALIVE_S
from tocsin.dispatch.lent_sockets import lent
from tocsin.dispatch.names import address_of, first_connected
from tocsin.dispatch.transport import Answer, BrokenExchange, NeverConnected

READ_AT_ONCE: Final = 16 * 1024
"""Bytes read between two rounds of the loop: an answer in chunks of one byte holds others up for a millisecond."""
SHUTDOWN_S: Final = 1.0
"""How long the orderly end of an idle TLS connection may take."""
TARGETS: Final = 64
"""URLs whose parts are remembered. A host has one, unless its origin changes."""
PORTS: Final = {"http": 80, "https": 443}
UNFIT: Final = frozenset(map(chr, (*range(0x21), 0x7F)))


@dataclass(frozen=True, slots=True)
class _Target:
    """The parts of a URL."""

    url: str
    place: Place
    head: str
    """The request line, and the headers that are the same for every call."""


class BuiltinTransport:
    """A `Transport`. Use it in one event loop. With `addresses` it connects to those only that they permit."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None, addresses: Addresses | None = None) -> None:
        self._ssl_context, self._addresses = ssl_context, addresses
        self.on_connected: Callable[[], None] | None = None
        """Called when a connection was made, before anything is sent on it."""
        self._targets: dict[str, _Target] = {}
        self._connections: set[Connection] = set()
        """Every connection, idle or in use."""
        self._idle: dict[Place, list[Connection]] = {}
        """Oldest first: the youngest is used again."""
        self._connecting: set[asyncio.Timeout] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._closed = False
        self.buffer = memoryview(bytearray(READ_AT_ONCE))
        """Shared by all connections: what is read into it is consumed in the same call."""

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
        start = asyncio.get_running_loop().time()
        try:
            target = self._targets.get(url) or self._parsed(url)
            request = _request(target.head, headers, body)
        except ValueError as error:
            raise NeverConnected(in_words(error, url)) from error
        connection = self._take(target.place, start)
        # What has served on this connection speaks what the URL says: no fault is to be blamed on that.
        reader = AnswerReader(max_body, url if connection is None else "")
        if connection is None:
            connection = Connection(self, target.place)
            connection.begin(url, reader)
            await self._connect(connection, start, min(connect_timeout, timeout))
        else:
            connection.begin(url, reader)
        return await connection.exchange(request, start, timeout)

    def _parsed(self, url: str) -> _Target:
        target = _target(url)
        if len(self._targets) >= TARGETS:
            self._targets.clear()
        self._targets[url] = target
        return target

    # ---- Connecting ------------------------------------------------------------------------------

    async def _connect(self, connection: Connection, start: float, limit: float) -> None:
        """Connect `connection` to its place. NeverConnected if that is not done `limit` seconds after `start`."""
        scope = asyncio.timeout_at(start + limit)
        try:
            async with scope:
                self._connecting.add(scope)
                await self._open(connection)
            if self._closed:
                raise ConnectionError("closed while it connected")
        except BaseException as error:
            connection.forget()
            self.lost(connection)
            if not isinstance(error, (OSError, ValueError)):  # TimeoutError and SSLError are OSErrors
                raise
            if self._closed:
                raise NeverConnected("the transport is closed") from error
            if scope.expired():
                raise NeverConnected(f"no connection after {limit:g} s") from error
            raise NeverConnected(in_words(error, connection.url)) from error
        else:
            if self.on_connected is not None:
                self.on_connected()
        finally:
            self._connecting.discard(scope)

    async def _open(self, connection: Connection) -> None:
        host, port, tls = connection.place
        trusted = self._trusted() if tls else None
        found = await addresses_of(host, port)
        if self._addresses is not None:
            self._addresses.check(host, map(address_of, found))
        with lent(await first_connected(found, connected, socket.socket.close)) as made:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                sock=made,
                ssl=trusted,
                server_hostname=host.removesuffix(".") if tls else None,
                ssl_shutdown_timeout=SHUTDOWN_S if tls else None,
            )

    def _trusted(self) -> ssl.SSLContext:
        """Return the given context, or the system's certificates, which are read once and not per connection."""
        self._ssl_context = self._ssl_context or trusting()
        return self._ssl_context

    # ---- Connections -----------------------------------------------------------------------------

    def _take(self, place: Place, now: float) -> Connection | None:
        """Return an idle connection that nothing has come on, or None."""
        idle = self._idle.get(place)
        while idle:
            connection = idle.pop()
            if now - connection.idle_since < KEEP_ALIVE_S and not connection.is_closing() and connection.is_silent():
                return connection
            connection.abort()
        return None

    def made(self, connection: Connection) -> None:
        """Note a connection, until it is lost."""
        self._connections.add(connection)

    def lost(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._connections.discard(connection)
        idle = self._idle.get(connection.place)
        if idle is not None and connection in idle:
            idle.remove(connection)
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)

    def keep(self, connection: Connection) -> None:
        """Hold a connection for the next call to its place."""
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.place, []).append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_ALIVE_S, self._close_stale)

    def _close_stale(self) -> None:
        """Close what has been idle for too long; the server would, while a request is on its way."""
        loop = asyncio.get_running_loop()
        self._sweep = None
        old = loop.time() - KEEP_ALIVE_S
        for place, idle in list(self._idle.items()):
            while idle and idle[0].idle_since <= old:
                idle.pop(0).close()
            if not idle:
                del self._idle[place]
        if self._idle:
            oldest = min(idle[0].idle_since for idle in self._idle.values())
            self._sweep = loop.call_at(oldest + KEEP_ALIVE_S, self._close_stale)

    def reopen(self) -> None:
        """Connect again after `aclose`, also in another event loop."""
        self._closed = False

    async def aclose(self) -> None:
        """Close every connection; calls in flight break."""
        self._closed = True
        loop = asyncio.get_running_loop()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for scope in self._connecting:
            if not scope.expired():
                scope.reschedule(loop.time())
        for connection in list(self._connections):
            connection.fail(BrokenExchange("the transport was closed"))
        if self._connections:
            self._emptied = self._emptied or loop.create_future()
            await asyncio.shield(self._emptied)
        self._emptied = None


# ---- Requests ------------------------------------------------------------------------------------


def _target(url: str) -> _Target:
    """Take a URL apart. ValueError if it has no host, another scheme, or characters that end a line or a word."""
    parts = urlsplit(url)
    host, default = parts.hostname, PORTS.get(parts.scheme)
    if default is None or not host:
        raise ValueError("the URL must begin with http:// or https:// and have a host")
    if not url.isascii() or not UNFIT.isdisjoint(url):
        raise ValueError("the URL must be printable ASCII without spaces")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    authority = parts.netloc.rpartition("@")[2]
    head = f"POST {path} HTTP/1.1\r\nhost: {authority}\r\n"
    return _Target(url, (host, parts.port or default, parts.scheme == "https"), head)


def _request(head: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Write a request. ValueError if a header holds what would end its line, or is not Latin-1."""
    for name, value in ASKED.items():
        if name not in headers:
            head += f"{name}: {value}\r\n"
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise ValueError("a header must not hold a line end or NUL")
    return f"{head}{text}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body
