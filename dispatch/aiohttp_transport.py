"""The fast transport: aiohttp, one session. Measured 5 to 8 times httpx at 64 lanes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import aiohttp

from tocsin.dispatch.exchange import ASKED, KEEP_ALIVE_S, Body, Bounds, joined
from tocsin.dispatch.transport import Answer, NeverConnected

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

HEADER_LIMIT: Final = 16 * 1024


class AiohttpTransport:
    """A `Transport`. Use it in one event loop."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context
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
        call = _Call(connect_timeout, timeout)
        token = _call.set(call)
        try:
            async with call.scope:
                return await self._exchange(url, headers, body, max_body)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            call.cut()
            raise call.failure(error) from error
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

    async def _exchange(self, url: str, headers: Mapping[str, str], body: bytes, max_body: int) -> Answer:
        session = self._session or self._open()
        response = await session.post(url, data=body, headers=headers, allow_redirects=False)
        try:
            received = Body(max_body)
            async for piece in response.content.iter_any():
                received.add(piece)
        except BaseException:
            response.close()  # at once, and the connection with it
            raise
        response.release()
        return Answer(response.status, joined(response.headers.items()), received.whole())

    def _open(self) -> aiohttp.ClientSession:
        """Made in the loop that uses it."""
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                limit=0,  # lanes and permits bound what is in flight; a second bound could only make them wait
                keepalive_timeout=KEEP_ALIVE_S,
                ssl=self._ssl_context or True,  # True: the system's certificates
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # ours is one deadline over all
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            headers=ASKED,
            max_line_size=HEADER_LIMIT,
            max_field_size=HEADER_LIMIT,
        )
        return self._session

    async def aclose(self) -> None:
        """Calls in flight break."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class _Call(Bounds):
    """One call, and the wire it got."""

    wire: asyncio.Transport | None = None
    is_new = False
    """Whether it is the first on its wire."""

    def cut(self) -> None:
        """A wire that is being closed is closed at once: a TLS peer that fell silent would keep it for another 30 s.

        One that is not was given back whole, and may be another call's by now.
        """
        if self.wire is not None and self.wire.is_closing():
            self.wire.abort()


_call: ContextVar[_Call] = ContextVar("call")
"""The one that runs in this context."""


class _Connector(aiohttp.TCPConnector):
    """Tells a call when it has its connection. Tracing could as well, at an eighth of the whole cost of a call."""

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        connection, call = await super().connect(req, traces, timeout), _call.get()
        while not call.is_new and connection.protocol is not None and connection.protocol.should_close:
            # Something came while it was idle, and would be taken for the answer to this request.
            connection.close()
            connection = await super().connect(req, traces, timeout)
        call.wire = connection.transport
        call.sending()
        return connection

    async def _create_connection(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> ResponseHandler:
        protocol = await super()._create_connection(req, traces, timeout)
        _call.get().is_new = True
        return protocol


def _asked_to_stop() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
