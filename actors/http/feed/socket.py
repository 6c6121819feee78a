"""`GET /ws`: the live feed over a WebSocket; one text message a frame."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from tocsin.actors.http.access import Gate, Visit, is_own_page
from tocsin.actors.http.endpoint import DEFAULT_INSTANCE, Endpoint
from tocsin.actors.http.errors import refusal
from tocsin.actors.http.feed.fanout import Fanouts, Frame
from tocsin.actors.http.feed.passes import PassDesk
from tocsin.actors.http.feed.rights import Rights
from tocsin.actors.http.feed.watch import READ_S, WatcherLeftError, until_left, watch
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.parameters import SOCKET, names
from tocsin.actors.http.query import Query
from tocsin.actors.http.responses import Reply
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import ForbiddenError, HostClosedError, InvalidInputError, RequestError, TocsinError

log = logging.getLogger("tocsin.http")

PING: Final = "tocsin-ping"
PONG: Final = "tocsin-pong"
LINGER_S: Final = 30.0
"""So long a watcher that did not read may still read why it is hung up on."""
ENDED, GOING_AWAY, REFUSED, FAILED, AGAIN_LATER = 1000, 1001, 1008, 1011, 1013
Close = tuple[int, str]


class SocketEndpoint:
    """Opens sockets, and sends frames until the watcher leaves, may not watch any more, or does not read."""

    def __init__(self, gate: Gate, ports: Callable[[str], SchedulerPort], desk: PassDesk, fanouts: Fanouts) -> None:
        self._gate, self._ports, self._desk, self._fanouts = gate, ports, desk, fanouts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        request = Incoming({**scope, "method": "GET"}, receive)
        SPEAKS_JSON.set(True)  # in this task, which serves this socket alone
        try:
            await self._serve(request, until_left(send))
        except WatcherLeftError:  # at any instant, and that is no failure
            log.info("%s: the watcher left", request.path)

    async def _serve(self, request: Incoming, send: Send) -> None:
        socket = Socket(send)
        opened = False
        try:
            instance = self._ports(request.path_params.get("instance", DEFAULT_INSTANCE)).name
            rights, since = await self._let_in(request, instance)
            async with self._fanouts.watching(instance) as fanout:
                first, seq = await fanout.ask(since)
                await send({"type": "websocket.accept"})
                opened = True
                await socket.serve(watch(fanout, first, seq, rights.check), request.receive)
        except WatcherLeftError:
            raise
        except Exception as error:  # every failure becomes an answer; unforeseen ones are logged there
            if not opened:
                return await _refuse(refusal(error, request), request.scope, send)
            log.error("%s failed", request.path, exc_info=error)
            await socket.close((FAILED, "the server failed; its log says why"))

    async def _let_in(self, request: Incoming, instance: str) -> tuple[Rights, str | None]:
        if not is_own_page(request):
            raise ForbiddenError("web pages of other origins may not open a socket here (Origin)")
        query = Query(request, names(SOCKET))
        secret = query.text("token")
        digest = "" if secret is None else await self._desk.take(secret, instance)
        rights = Rights(self._gate, request, instance, digest)
        await rights.check()
        return rights, query.text("since") or None


class Socket:
    """One open socket. Messages go out one after another."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sending = asyncio.Lock()

    async def serve(self, frames: AsyncGenerator[Sequence[Frame], None], receive: Receive) -> None:
        """Send frames and answer pings until either end is done; then say why, if the watcher is still there."""
        sending = asyncio.ensure_future(self._send_all(frames))
        hearing = asyncio.ensure_future(self._hear(receive))
        try:
            await asyncio.wait([sending, hearing], return_when=asyncio.FIRST_COMPLETED)
            close = hearing.result() if hearing.done() else sending.result()
            hearing.cancel()
            if close is not None:
                await self.close(close)
        finally:
            sending.cancel()
            hearing.cancel()
            await asyncio.wait([sending, hearing])

    async def _send_all(self, frames: AsyncGenerator[Sequence[Frame], None]) -> Close:
        async with aclosing(frames):
            try:
                async for some in frames:
                    for frame in some:
                        if not await self._say(frame.text):
                            return AGAIN_LATER, "frames were not read in time: come back with the last seq"
            except HostClosedError:
                return GOING_AWAY, "the host stops"
            except RequestError as error:  # it may not watch any more
                return REFUSED, error.message
            except TocsinError as error:
                return AGAIN_LATER, error.message
        return ENDED, "the instance was removed"

    async def _hear(self, receive: Receive) -> Close | None:
        """Answer pings until the watcher leaves (None), or does not read the answers."""
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return None
            if message.get("text") == PING and not await self._say(PONG):
                return AGAIN_LATER, "answers to pings were not read in time"

    async def _say(self, text: str) -> bool:
        """Send a message; return whether there was room for it in time."""
        try:
            async with asyncio.timeout(READ_S), self._sending:
                await self._send({"type": "websocket.send", "text": text})
        except TimeoutError:
            return False
        return True

    async def close(self, close: Close) -> None:
        """Close the socket, if the other end reads that."""
        code, reason = close
        with suppress(TimeoutError, WatcherLeftError):
            async with asyncio.timeout(LINGER_S):
                short = reason.encode()[:120].decode("utf-8", "ignore")
                await self._send({"type": "websocket.close", "code": code, "reason": short})


async def _refuse(reply: Reply, scope: Scope, send: Send) -> None:
    """Answer instead of opening the socket: whole, where the server can."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        return await send({"type": "websocket.close", "code": REFUSED})
    headers: list[Any] = reply.headers
    await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": reply.body})


class NoSocket(Endpoint):
    """Answers a plain request for the socket."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(["GET"], gate)

    async def answer(self, request: Incoming, visit: Visit) -> Reply:
        raise InvalidInputError(f"{request.path} is a WebSocket: open it with ws:// or wss://")
