"""The fast transport: aiohttp, one session. Measured 5 to 8 times httpx at 64 lanes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import aiohttp.abc
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from tocsin.dispatch.addresses import Addresses
from tocsin.dispatch.answer_reader import AnswerReader
from tocsin.dispatch.exchange import ASKED, KEEP_ALIVE_S, Bounds
from tocsin.dispatch.lent_sockets import LentSocket
from tocsin.dispatch.names import address_of, names
from tocsin.dispatch.transport import Answer, NeverConnected

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


class AiohttpTransport:
    """A `Transport`. Use it in one event loop. With `addresses` it connects to those only that they permit."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None, addresses: Addresses | None = None) -> None:
        self._ssl_context, self._addresses = ssl_context, addresses
        self._session: aiohttp.ClientSession | None = None
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
        call = _Call(connect_timeout, timeout, max_body, url)
        token = _call.set(call)
        try:
            async with call.scope:
                await self._exchange(url, headers, body)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            call.cut()
            if call.reader.answer is None:
                raise call.failure(error, call.reader.fault) from error
        except asyncio.CancelledError as error:
            call.cut()
            if _asked_to_stop():
                raise
            # A closing session cancels the name lookup its calls wait for; they would end as if cancelled themselves.
            raise call.failure(ConnectionError("the transport was closed")) from error
        except BaseException:
            call.cut()
            raise
        finally:
            _call.reset(token)
        if call.reader.answer is None:
            raise call.failure(ConnectionError("the connection ended without an answer"), call.reader.fault)
        return call.reader.answer

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Wait until the reader of the call has ended, or the connection."""
        session = self._session or self._open()
        response = await session.post(URL(url, encoded=True), data=body, headers=headers, allow_redirects=False)
        response.release()
        call = _call.get()
        if not call.reader.reusable:
            call.cut()

    def _open(self) -> aiohttp.ClientSession:
        """Make the session in the loop that uses it."""
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                resolver=_Resolver(self._addresses),
                socket_factory=partial(_made, self._addresses),
                limit=0,  # lanes and permits bound what is in flight; a second bound could only make them wait
                keepalive_timeout=KEEP_ALIVE_S,
                ssl=self._ssl_context or True,  # True: the system's certificates
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # ours is one deadline over all
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            headers=ASKED,
        )
        return self._session

    def reopen(self) -> None:
        """Connect again after `aclose`, also in another event loop."""
        self._closed = False

    async def aclose(self) -> None:
        """Close every connection; calls in flight break."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Call(Bounds):
    """One call, and the wire it got."""

    def __init__(self, connect_timeout: float, timeout: float, max_body: int, url: str) -> None:
        super().__init__(connect_timeout, timeout, url)
        self.reader = AnswerReader(max_body, url)
        self.sockets: list[LentSocket] = []
        """Those that were made for it, one per address that was tried."""

    wire: asyncio.Transport | None = None
    is_new = False
    """True if it is the first on its wire."""

    def cut(self) -> None:
        """Close at once a wire that is being closed: a silent TLS peer would keep it for another 30 s.

        One that is not was given back whole, and may be another call's by now.
        """
        if self.wire is not None and self.wire.is_closing():
            self.wire.abort()


_call: ContextVar[_Call] = ContextVar("call")
"""The one that runs in this context."""


class _Protocol(ResponseHandler):
    """Gives what comes to the reader of the call, and shows aiohttp only that its answer ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.reader = _call.get().reader

    def data_received(self, data: bytes) -> None:
        over = self.reader.ended
        self.reader.feed(data)
        if over:
            self.force_close()
        elif self.reader.answer is not None:
            super().data_received(self.reader.shown())
        elif self.reader.fault is not None:
            self.set_exception(aiohttp.ClientPayloadError(self.reader.fault))
            if self.transport is not None:
                self.transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is None and not self.reader.ended:
            self.reader.eof()
            if self.reader.answer is not None:
                super().data_received(self.reader.shown())
        super().connection_lost(exc)


class _Resolver(aiohttp.abc.AbstractResolver):
    """Our lookups in aiohttp's form. Addresses that are written as such are not looked up."""

    def __init__(self, addresses: Addresses | None) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        found = await names.look_up(host, port, family)
        if self._addresses is not None:
            self._addresses.check(host, map(address_of, found))
        return [
            aiohttp.abc.ResolveResult(
                hostname=host,
                host=address_of(info),
                port=info[4][1],
                family=info[0],
                proto=info[2],
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for info in found
        ]

    async def close(self) -> None:
        """Do nothing: the threads are the process's."""


class _Connector(aiohttp.TCPConnector):
    """Tells a call when it has its connection. Tracing could as well, at an eighth of the whole cost of a call."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory: partial[_Protocol] = partial(_Protocol, loop=self._loop)  # type: ignore[assignment]

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        connection, call = await super().connect(req, traces, timeout), _call.get()
        while not call.is_new and connection.protocol is not None and connection.protocol.should_close:
            # Something came while it was idle, and would be taken for the answer to this request.
            connection.close()
            connection = await super().connect(req, traces, timeout)
        if not isinstance(connection.protocol, _Protocol):
            connection.close()
            raise NeverConnected("this version of aiohttp is not known to tocsin: open the host with transport='httpx'")
        call.wire, connection.protocol.reader = connection.transport, call.reader
        call.sending()
        return connection

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        call = _call.get()
        try:
            protocol = await super()._create_connection(req, traces, timeout)
        finally:
            for each in call.sockets:
                each.disown_what_is_closed()
            call.sockets.clear()
        call.is_new = True
        return protocol


def _made(addresses: Addresses | None, address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket for an address. aiohttp gives it to the loop, which connects it to this address."""
    if addresses is not None:
        to = str(address[4][0])
        addresses.check(to, [to])
    made = socket.socket(*address[:3])
    _call.get().sockets.append(LentSocket(made))
    return made


def _asked_to_stop() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
