"""`Server`: requests to one server for all its schedulers, repeated where that may help and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from random import Random, SystemRandom
from typing import Any, Final, TypeVar
from urllib.parse import quote

from tocsin.dispatch.certificates import CaFile
from tocsin.dispatch.receiver.lease_client import PATIENCE_S, TIMEOUT_S
from tocsin.dispatch.server_client import DEFAULT_URL, UNLIMITED, HttpxTransport, ServerClient, base_url_of
from tocsin.dispatch.worker.trouble import Pauses, may_pass
from tocsin.errors import NotFoundError, OverloadedError, TocsinError, UnreachableError

T = TypeVar("T")

LONGEST_PAUSE_S: Final = 1.0
"""Somebody waits for the answer, and a server that starts again is back in about that time."""
ALWAYS: Final = True
"""The same request again comes to the same: a read, or what is done once under its key or lease."""
UNSENT: Final = False
"""A second answer would be another: the request is repeated only where the first one certainly did nothing."""


class Server(ServerClient):
    """Connections to one server. Waiting claims and results block no others, so their number has no limit."""

    _limits = UNLIMITED

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        transport: HttpxTransport | None = None,
        ca_file: CaFile | None = None,
        random: Random | None = None,
    ) -> None:
        super().__init__(
            base_url_of(url, "url"), token=token, timeout_s=timeout_s, transport=transport, ca_file=ca_file
        )
        self.patience_s, self.random = patience_s, random or SystemRandom()

    @property
    def base(self) -> str:
        """Return the server's URL, without a slash at its end."""
        return self._base

    def new_key(self) -> str:
        """Return a key under which a request has its effect once, however often it is sent."""
        return f"{self.random.getrandbits(128):032x}"

    pieces = ServerClient._pieces
    send_pieces = ServerClient._send_pieces

    post = ServerClient._call_directly
    """Asks once, over the transport of callbacks; what becomes of a failure is for its `rescue`."""

    async def ask(
        self,
        method: str,
        instance: str | None,
        route: str,
        kind: type[T],
        said: Any = None,
        *,
        again: bool,
        query: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        until: float | None = None,
    ) -> T:
        """Ask, and again where that may help: for `patience_s`, and not beyond `until` (of the loop's clock).

        `again`: ALWAYS or UNSENT. Without an `instance` the route is one of the whole server.
        """
        given = None if query is None else {name: _text(one) for name, one in query.items() if one is not None}
        timeout_s = self._timeout_s + wait_s

        def once() -> Coroutine[Any, Any, T]:
            return self._call(method, instance, route, kind, said, query=given, timeout_s=timeout_s)

        try:
            return await once()
        except TocsinError as error:
            return await self.again(error, once=once, again=again, until=until)

    async def again(
        self, error: TocsinError, *, once: Callable[[], Coroutine[Any, Any, T]], again: bool, until: float | None = None
    ) -> T:
        """Ask again after this failure, as long as that may help."""
        loop = asyncio.get_running_loop()
        end, pauses = loop.time() + self.patience_s, Pauses(self.random)
        end = end if until is None else min(end, until)
        while True:
            pause = min(pauses.next(), LONGEST_PAUSE_S * (1 + self.random.random() / 2))
            wait = max(pause, error.details.get("retry_after_s", 0))
            if not (may_pass(error) if again else _did_nothing(error)) or loop.time() + wait > end:
                raise error
            await asyncio.sleep(wait)
            try:
                return await once()
            except TocsinError as another:
                error = another


def is_absent(error: NotFoundError) -> bool:
    """Return whether the server says that it has no such thing, and not that it has no such route."""
    return "route" not in error.details


def _did_nothing(error: TocsinError) -> bool:
    """Return whether the request certainly had no effect, and may have one in a moment."""
    return isinstance(error, OverloadedError) or (isinstance(error, UnreachableError) and not error.sent)


def part(text: object, also: str = ":") -> str:
    """Return a name as a part of a path: whatever it holds, it stays one part, and the server refuses what is no
    name."""
    return quote(str(text), safe=also) or "%20"


def _text(value: Any) -> Any:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value
