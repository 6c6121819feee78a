"""`Client`: the schedulers of a server, with the handle that a host in this process gives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from random import Random
from typing import Any, Final, Self, TypeVar

from tocsin.actors.client import port
from tocsin.actors.client.answers import CatalogListed, Health
from tocsin.actors.client.server import ALWAYS, UNSENT, Server
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.records import InstancePage
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.dispatch.certificates import CaFile
from tocsin.dispatch.clock import DispatchClock, SystemDispatchClock
from tocsin.dispatch.receiver.lease_client import PATIENCE_S, TIMEOUT_S
from tocsin.dispatch.server_client import DEFAULT_URL, HttpxTransport
from tocsin.dispatch.tracing import Tracers, Tracing
from tocsin.errors import ActorError, InvalidInputError, SettingsError, StoreError

T = TypeVar("T")

PORTS_KEPT: Final = 1_000


class Client:
    """A server's schedulers: `client.scheduler(name)` is a `Scheduler` like that of a host in this process.

    `url` is the server's, or where a host's app is mounted; `token` one with the scopes that are needed. `transport`,
    an httpx one, reaches an app in this process (`httpx.ASGITransport(host.asgi(...))`). `ca_file` names a PEM file of
    authorities that are trusted beside the system's. Use it in one event loop, with `async with` or `aclose`.

    Errors are those of the handle, by their code, and UnreachableError when nobody answers within `timeout_s` (of a
    claim or a result: beyond what it waits for). Where the network or the server fails for a moment, as in a restart,
    what may be repeated is, for `patience_s`: reads; jobs, which are sent with a key under which they are stored once;
    settlements; schedules, unless a revision is named; triggers. All else is sent again only if it certainly did
    nothing. Claims, extended leases and what workers say of themselves are sent once: a `Worker` has its own patience.
    Proxies of the environment are not used. The token is in no log and no repr. `tracing` as for `ActorHost.open`.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        transport: HttpxTransport | None = None,
        ca_file: CaFile | None = None,
        clock: DispatchClock | None = None,
        random: Random | None = None,
        tracing: bool | Tracers = True,
    ) -> None:
        """Connect to nobody yet. SettingsError for a URL, token or file that cannot be."""
        self._server = Server(
            url, token=token, timeout_s=timeout_s, patience_s=patience_s, transport=transport, ca_file=ca_file,
            random=random,
        )  # fmt: skip
        self._ports = lru_cache(PORTS_KEPT)(
            partial(port.port, self._server, clock or SystemDispatchClock(), Tracing(tracing))
        )

    def __repr__(self) -> str:
        return f"Client({self._server.base!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. A later call connects again."""
        await self._server.aclose()

    def scheduler(self, name: str = "default") -> Scheduler:
        """Return a handle on one scheduler; it costs nothing until used."""
        return Scheduler(self._ports(name))

    # ---- The whole server ------------------------------------------------------------------------

    async def instances(self, *, cursor: str | None = None, limit: int = 100) -> InstancePage:
        """List the schedulers that were used and not removed, by name, with their counts; at most 1,000 on a page. Left
        out are those that the token does not reach."""
        query = {"cursor": cursor, "limit": limit}
        return await self._get("instances", InstancePage, query)

    async def health(self) -> Health:
        """Return whether work is accepted now, and what is wrong with the host all the same. It needs no token."""
        try:
            found = await self._server.ask("GET", None, "readyz", Health, again=UNSENT)
        except (ActorError, StoreError) as error:
            return Health(ready=False, refusal=error.message)
        return found

    async def catalog(self) -> CatalogListed:
        """List the paths there are, and what args each takes."""
        return await self._get("catalog", CatalogListed)

    async def openapi(self) -> dict[str, Any]:
        """Return the server's own description of its routes."""
        return await self._get("openapi.json", dict[str, Any])

    async def _get(self, route: str, kind: type[T], query: Mapping[str, Any] | None = None) -> T:
        return await self._server.ask("GET", None, route, kind, query=query, again=ALWAYS)


class RemoteScheduler(Scheduler):
    """The older name of one scheduler of a `Client`, which it has to itself: use `Client(url).scheduler(instance)`."""

    def __init__(self, url: str = DEFAULT_URL, *, instance: str = "default", **options: Any) -> None:
        try:
            instance_name(instance)
        except InvalidInputError as error:
            raise SettingsError(error.message) from None
        self._client = Client(url, **options)
        super().__init__(self._client._ports(instance))

    def __repr__(self) -> str:
        return f"RemoteScheduler({self._client._server.base!r}, instance={self.name!r})"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
