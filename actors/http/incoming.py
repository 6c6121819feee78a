"""One request as a server brings it, and what answers it, without a framework's objects in between."""

from __future__ import annotations

from collections.abc import Generator
from inspect import iscoroutine
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send


class Incoming:
    """A request. Header names are in lower case; each may come more than once."""

    __slots__ = ("_named", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self.receive = scope, receive
        named: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            if name in named:
                named[name].append(value)
            else:
                named[name] = [value]
        self._named = named

    @property
    def method(self) -> str:
        method: str = self.scope["method"]
        return method

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    @property
    def path_params(self) -> dict[str, Any]:
        """Return what a route found in the path."""
        parameters: dict[str, Any] = self.scope.get("path_params", {})
        return parameters

    @property
    def headers(self) -> Headers:
        """Return all headers, for those outside who ask for them."""
        return Headers(scope=self.scope)

    def has(self, name: bytes) -> bool:
        return name in self._named

    def raw(self, name: bytes) -> list[bytes]:
        """Return the values of a header as they came."""
        return self._named.get(name, [])

    def all(self, name: bytes) -> list[str]:
        """Return the values of a header."""
        return [value.decode("latin-1") for value in self._named.get(name, ())]

    def first(self, name: bytes, otherwise: str) -> str:
        """Return the first value of a header."""
        values = self._named.get(name)
        return values[0].decode("latin-1") if values else otherwise


class Reply:
    """An answer, whole. It is an ASGI app, so that a framework can send it, too."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


class Begun:
    """The next message of a request: asked for at once, and awaited only if it is not there yet.

    Most bodies have come by the time they are asked for, and need no deadline.
    """

    __slots__ = ("_pending", "_receiving", "message")

    def __init__(self, receive: Receive) -> None:
        self.message: Message | None = None
        self._receiving: Any = receive()
        if not iscoroutine(self._receiving):
            self._receiving = _awaited(self._receiving)
        try:
            self._pending = self._receiving.send(None)
        except StopIteration as end:
            self.message = end.value

    def __await__(self) -> Generator[Any, Any, Message]:
        """Go on where it was left."""
        if self.message is not None:
            return self.message
        pending = self._pending
        try:
            while True:
                try:
                    given = yield pending
                except BaseException as error:  # it belongs to whoever waits in there
                    pending = self._receiving.throw(error)
                else:
                    pending = self._receiving.send(given)
        except StopIteration as end:
            message: Message = end.value
            return message


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
