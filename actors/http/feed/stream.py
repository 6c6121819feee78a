"""`GET /changes`: the live feed, as a page of frames, or as a stream of Server-Sent Events where that is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from tocsin.actors.http.access import Gate
from tocsin.actors.http.crowd import Crowd
from tocsin.actors.http.endpoint import DEFAULT_INSTANCE, OperationEndpoint
from tocsin.actors.http.errors import refusal
from tocsin.actors.http.feed.fanout import Fanouts, Frame
from tocsin.actors.http.feed.rights import Rights
from tocsin.actors.http.feed.watch import READ_S, WatcherLeftError, until_left, watch
from tocsin.actors.http.incoming import Incoming
from tocsin.actors.http.operations import Operation
from tocsin.actors.http.parameters import CHANGES, names
from tocsin.actors.http.query import FRESH, Query
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.dispatch.words import SPEAKS_JSON
from tocsin.errors import TocsinError

log = logging.getLogger("tocsin.http")

STREAM: Final = b"text/event-stream"
BEGIN: Final = b"retry: 1000\n\n"
"""How many ms a browser waits before it comes back."""
QUIET: Final = b": all is quiet\n\n"
LONGEST_S: Final = 60.0
"""A stream ends after so long, and the browser comes back behind its last event. Servers of apps let requests end
before they stop, and tell nobody that they are about to; `tocsin serve` does, and has no need of this."""
HEADERS: Final = [
    (b"content-type", STREAM + b"; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
]


class ChangesEndpoint(OperationEndpoint):
    """The operation, and beside it the stream."""

    def __init__(
        self,
        operations: Sequence[Operation],
        gate: Gate,
        ports: Callable[[str], SchedulerPort],
        crowd: Crowd,
        fanouts: Fanouts,
    ) -> None:
        super().__init__(operations, gate, ports, crowd)
        self._fanouts = fanouts
        self.longest_s = LONGEST_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET" and any(STREAM in value for name, value in scope["headers"] if name == b"accept"):
            request = Incoming(scope, receive)
            try:
                return await self._stream(request, until_left(send))
            except WatcherLeftError:
                return log.info("%s: the watcher left", request.path)
        return await super().__call__(scope, receive, send)

    async def _stream(self, request: Incoming, send: Send) -> None:
        token = SPEAKS_JSON.set(True)
        try:
            instance = self._ports(request.path_params.get("instance", DEFAULT_INSTANCE)).name
            rights = Rights(self._gate, request, instance)
            await rights.check()
            since = Query(request, (*names(CHANGES), FRESH)).text("since") or None
            if again := request.all(b"last-event-id"):
                since = again[-1].strip() or since
            async with self._fanouts.watching(instance) as fanout:
                first, seq = await fanout.ask(since)
                self.answered["GET", 200] = self.answered.get(("GET", 200), 0) + 1
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                await _until_left(request, _send_all(watch(fanout, first, seq, rights.check), send, self.longest_s))
        except WatcherLeftError:
            raise
        except Exception as error:  # every failure becomes an answer; unforeseen ones are logged there
            answer = refusal(error, request)
            await answer(request.scope, request.receive, send)
        finally:
            SPEAKS_JSON.reset(token)


async def _send_all(frames: AsyncGenerator[Sequence[Frame], None], send: Send, longest_s: float) -> None:
    """Send frames until there are no more, the stream is long enough, or the watcher does not read."""
    now = asyncio.get_running_loop().time
    end = now() + longest_s
    await send({"type": "http.response.body", "body": BEGIN, "more_body": True})
    async with aclosing(frames):
        try:
            async for some in frames:
                body = b"".join([one.event for one in some]) or QUIET
                try:
                    async with asyncio.timeout(READ_S):
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                except TimeoutError:
                    log.info("a watcher that does not read its events is left alone")
                    return  # the server hangs up
                if now() >= end:
                    break
        except TocsinError as error:  # the host stops, or this caller may not watch any more
            log.info("a stream of events ends: %s", error)
        except WatcherLeftError:
            return
    await send({"type": "http.response.body", "body": b""})


async def _until_left(request: Incoming, sending: Coroutine[Any, Any, None]) -> None:
    """Send until that ends, or the watcher hangs up."""
    sent = asyncio.ensure_future(sending)
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait([sent, left], return_when=asyncio.FIRST_COMPLETED)
        if sent.done() and (error := sent.exception()) is not None and not isinstance(error, WatcherLeftError):
            log.error("a stream of events failed", exc_info=error)
    finally:
        sent.cancel()
        left.cancel()
        await asyncio.wait([sent, left])


async def _left(request: Incoming) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
