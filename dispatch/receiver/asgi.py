"""The ASGI face of a receiver: method, body with its cap and its time, lifespan."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Final

from tocsin.dispatch.asgi_transport import Message, Receive, Send
from tocsin.dispatch.receiver import answers
from tocsin.dispatch.receiver.reading import Headers
from tocsin.dispatch.transport import Answer
from tocsin.errors import PayloadTooLargeError, TocsinError

log = logging.getLogger("tocsin.receiver")

BODY_S: Final = 30.0
"""For the whole body: whoever sends it more slowly is not a scheduler."""

LEFT: Final = 499
"""The status of an answer whose caller has left, as proxies log it."""


class _Gone(Exception):
    """The caller left before its request was whole."""


class AsgiApp(ABC):
    """The ASGI app of a receiver: any path, POST only."""

    max_body: int

    @abstractmethod
    def take(self, headers: Headers, body: bytes) -> Answer | Awaitable[Answer]:
        """Begin to serve a request. Return its answer, or what to await for it: a cancelled wait stops no work."""

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    async def aclose(self) -> None: ...

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "http":
            try:
                answer = await self._answered(scope, receive)
            except _Gone:
                answer = Answer(LEFT, {}, b"")  # middleware between here and the server needs one to pass on
            await _send(answer, send, body=scope["method"] != "HEAD")
        elif scope["type"] == "lifespan":
            await _lifespan(self, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            raise ValueError(f"a receiver does not serve {scope['type']!r}")

    async def _answered(self, scope: Message, receive: Receive) -> Answer:
        if scope["method"] != "POST":
            return answers.method_not_allowed(scope["method"])
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        length = next((value for name, value in headers if name == "content-length"), "")
        try:
            async with asyncio.timeout(BODY_S):
                body = await _body(length, receive, self.max_body)
        except TimeoutError:
            return _closing(answers.too_slow(BODY_S), scope)
        except PayloadTooLargeError as error:
            return _closing(answers.refused(error), scope)
        taken = self.take(headers, body)
        return taken if isinstance(taken, Answer) else await taken


async def _body(length: str, receive: Receive, limit: int) -> bytes:
    """Return the body. Raise a PayloadTooLargeError as soon as it is known to be longer than `limit` bytes."""
    check_length(length, limit)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise PayloadTooLargeError(f"the body has more than {limit} bytes, which is the limit")
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def check_length(said: str, limit: int) -> None:
    """Raise a PayloadTooLargeError if the body is said to be longer than `limit` bytes."""
    if said.isascii() and said.isdigit() and (len(said) > 15 or int(said) > limit):
        raise PayloadTooLargeError(f"the body has {said[:20]} bytes, the limit is {limit}")


def _closing(answer: Answer, scope: Message) -> Answer:
    """Close the connection after the answer: the rest of the body is not read."""
    if not scope.get("http_version", "1.1").startswith("1"):
        return answer  # HTTP/2 ends one request by itself, and has no such header
    return Answer(answer.status, {**answer.headers, "connection": "close"}, answer.body)


async def _send(answer: Answer, send: Send, *, body: bool) -> None:
    headers: Sequence[tuple[bytes, bytes]] = [
        *((name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()),
        (b"content-length", b"%d" % len(answer.body)),
    ]
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body if body else b""})
    except OSError:
        log.info("a caller left before its answer")


async def _lifespan(receiver: AsgiApp, receive: Receive, send: Send) -> None:
    await receive()
    try:
        receiver.open()
    except TocsinError as error:
        await send({"type": "lifespan.startup.failed", "message": error.message})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await receiver.aclose()
    await send({"type": "lifespan.shutdown.complete"})
