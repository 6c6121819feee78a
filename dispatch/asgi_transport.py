"""Callbacks to an ASGI app in the same process: no socket, the same bounds and deadline.

The app's lifespan is not run here: whoever owns the app does that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import Context
from typing import Any
from urllib.parse import unquote, urlsplit

from tocsin.dispatch.headers import BODILESS, Fault, headers_of, length_of
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed, NeverConnected, TransportError

log = logging.getLogger("tocsin.dispatch")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class AsgiTransport:
    """A `Transport` to one app, whatever the host in the URL. The call ends with the answer; what the app does
    after it (background tasks) goes on. An app that has not answered when the call ends is cancelled.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._running: set[asyncio.Task[None]] = set()
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
        call = _Call(body, max_body)
        # As a server's request: without the context of whoever scheduled the job, which may be a request of this app.
        run = self._run(_scope(url, headers, body), call)
        task = asyncio.get_running_loop().create_task(run, context=Context())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            async with asyncio.timeout(timeout):
                return await call.answer
        except TimeoutError:
            raise DeadlinePassed(f"none after {timeout:g} s") from None
        finally:
            if not call.answered:
                task.cancel()

    async def _run(self, scope: Message, call: _Call) -> None:
        """Run the app in a task of its own: the end of the call is not the end of the app."""
        try:
            await self._app(scope, call.receive, call.send)
        except asyncio.CancelledError:
            call.end(BrokenExchange("the app was cancelled"))
            raise
        except Exception as error:
            if not call.failed:
                log.exception("the app raised while it served a callback")
            call.end(BrokenExchange(f"the app raised {type(error).__name__}"))
        else:
            call.end(BrokenExchange("the app ended without a whole answer"))

    def reopen(self) -> None:
        """Serve again after `aclose`, also in another event loop."""
        self._closed = False

    async def aclose(self) -> None:
        self._closed = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


def _scope(url: str, headers: Mapping[str, str], body: bytes) -> Message:
    parts = urlsplit(url)
    path = parts.path or "/"
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": parts.scheme,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": parts.query.encode(),
        "headers": [
            (b"host", parts.netloc.encode()),
            (b"content-length", b"%d" % len(body)),
            *((name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()),
        ],
        "client": ("127.0.0.1", 0),
        "server": (parts.hostname or "localhost", parts.port or (443 if parts.scheme == "https" else 80)),
    }


class _Call:
    """One request to the app, and the answer as it comes."""

    def __init__(self, body: bytes, max_body: int) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.answered = False
        self.failed = False
        self._cut = False
        self._body: bytes | None = body
        self._max_body = max_body
        self._received = bytearray()
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._length: int | None = None

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # An app that listens for a disconnect would take one before its answer for a lost caller.
        await asyncio.wait([self.answer])
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        try:
            self._take(message)
        except TransportError as error:
            self.end(error)
        if self.failed:
            raise OSError("the caller is gone")  # what ASGI 2.4 says to raise

    def _take(self, message: Message) -> None:
        if self.answer.done():
            raise BrokenExchange("the call is over")
        kind = message["type"]
        if kind == "http.response.start" and self._status is None:
            self._begin(message)
        elif kind == "http.response.body" and self._status is not None:
            self._add(self._status, message.get("body", b""), more=message.get("more_body", False))
        else:
            raise BrokenExchange(f"the app sent {kind!r} out of turn")

    def _begin(self, message: Message) -> None:
        """Begin the answer. What is no answer over a wire is none here."""
        status = message["status"]
        if not 200 <= status <= 999:
            raise BrokenExchange(f"the app sent the status {status!r}, with which no answer ends")
        try:
            self._headers = headers_of(message.get("headers", ()))
            self._length = 0 if status in BODILESS else length_of(self._headers)
        except Fault as fault:
            raise BrokenExchange(str(fault)) from None
        self._status = status

    def _add(self, status: int, piece: bytes, *, more: bool) -> None:
        """Take a piece of the body. What is longer than the app has said is dropped, as a server would do."""
        room = (self._max_body + 1 if self._length is None else self._length) - len(self._received)
        self._received += piece[: max(room, 0)]
        if len(self._received) > self._max_body:
            self._answered(Answer(status, self._headers, bytes(self._received[: self._max_body]), cut=True))
        elif not more:
            if self._length is not None and len(self._received) < self._length:
                raise BrokenExchange(f"the app ended in the middle of the body, after {len(self._received)} bytes")
            self._answered(Answer(status, self._headers, bytes(self._received)))

    def _answered(self, answer: Answer) -> None:
        self.answered, self._cut = True, answer.cut
        self.answer.set_result(answer)

    def end(self, error: TransportError) -> None:
        """Take nothing more. An app that streams on after its answer was cut off hears of it."""
        self.failed = not self.answered or self._cut
        if not self.answer.done():
            self.answer.set_exception(error)
