"""Callbacks to an ASGI app in the same process: no socket, the same bounds and deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from tocsin.dispatch.transport import Answer, AnswerTooLarge, BrokenExchange, DeadlinePassed

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class AsgiTransport:
    """A `Transport` to one app, whatever the host in the URL."""

    def __init__(self, app: App) -> None:
        self._app = app

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
        call = _Call(url, headers, body, max_body)
        try:
            async with asyncio.timeout(timeout):
                await self._app(call.scope, call.receive, call.send)
        except TimeoutError:
            raise DeadlinePassed(f"after {timeout:g} s") from None
        except AnswerTooLarge:
            raise
        except Exception as error:
            raise BrokenExchange(f"the app raised {type(error).__name__}") from error
        return call.answer()

    async def aclose(self) -> None:
        """Nothing is held."""


class _Call:
    """One request to the app and what it answered."""

    def __init__(self, url: str, headers: Mapping[str, str], body: bytes, max_body: int) -> None:
        parts = urlsplit(url)
        self._body, self._max_body, self._size = body, max_body, 0
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._complete = False
        self.scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": parts.scheme,
            "path": parts.path or "/",
            "raw_path": (parts.path or "/").encode(),
            "root_path": "",
            "query_string": parts.query.encode(),
            "headers": [
                (b"host", parts.netloc.encode()),
                (b"content-length", str(len(body)).encode()),
                *((name.lower().encode(), value.encode()) for name, value in headers.items()),
            ],
            "client": ("127.0.0.1", 0),
            "server": (parts.hostname or "localhost", parts.port or 80),
        }
        self._asked = False

    async def receive(self) -> Message:
        if self._asked:
            return {"type": "http.disconnect"}
        self._asked = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            for name, value in message.get("headers", ()):
                self._headers[name.decode().lower()] = value.decode("latin-1")
        elif message["type"] == "http.response.body":
            piece = message.get("body", b"")
            self._size += len(piece)
            if self._size > self._max_body:
                raise AnswerTooLarge(f"the answer is longer than {self._max_body} bytes")
            self._pieces.append(piece)
            self._complete = not message.get("more_body", False)

    def answer(self) -> Answer:
        if self._status is None or not self._complete:
            raise BrokenExchange("the app ended without a whole answer")
        return Answer(self._status, self._headers, b"".join(self._pieces))
