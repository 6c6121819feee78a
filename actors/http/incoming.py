"""One request as a server brings it, without a framework's objects in between."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope


class Incoming:
    """A request. `named`: the values of each header as they came, by its name in lower case."""

    __slots__ = ("method", "named", "path", "path_params", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope, self.receive = scope, receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.path_params: dict[str, Any] = scope.get("path_params", {})
        self.named: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            self.named.setdefault(name, []).append(value)

    @property
    def headers(self) -> Headers:
        """Return all headers, for those outside who ask for them."""
        return Headers(scope=self.scope)

    def all(self, name: bytes) -> list[str]:
        """Return the values of a header."""
        return [value.decode("latin-1") for value in self.named.get(name, ())]
