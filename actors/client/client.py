"""`Client`: the schedulers of a server, with the handle that a host in this process gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from functools import lru_cache, partial
from random import Random
from typing import Any, Final, Self, TypeVar

from tocsin.actors.client import answers, port
from tocsin.actors.client.answers import CatalogListed, Health
from tocsin.actors.client.server import ALWAYS, UNSENT, Server
from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.moving import Exported, Imported, TransferState
from tocsin.actors.scheduler.model.records import InstancePage
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.actors.scheduler.transfer.files import AnyFile, read_file, write_file
from tocsin.actors.scheduler.transfer.manifest import MEDIA
from tocsin.dispatch.certificates import CaFile
from tocsin.dispatch.clock import DispatchClock, SystemDispatchClock
from tocsin.dispatch.receiver.lease_client import PATIENCE_S, TIMEOUT_S
from tocsin.dispatch.server_client import DEFAULT_URL, HttpxTransport
from tocsin.dispatch.tracing import Tracers, Tracing
from tocsin.errors import ActorError, InvalidInputError, SettingsError, StoreError

T = TypeVar("T")

PORTS_KEPT: Final = 1_000
LONG_S: Final = 900.0
"""An export begins, and an import ends, with a look at all rows of an instance."""


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

    # ---- Whole instances -------------------------------------------------------------------------

    async def export_instance(self, name: str, file: AnyFile) -> Exported:
        """Write everything of an instance to a file, as of one instant, while it goes on; docs/export.md.

        `file` is a path, which must be new, or a binary file. NotFoundError if there is no such instance.
        """
        return await write_file(self._pieces_of(name), file)

    def _pieces_of(self, name: str) -> AsyncIterator[bytes]:
        """Return the pieces of an export, as they come."""
        return self._server.pieces(instance_name(name), "export", LONG_S)

    async def import_instance(
        self, name: str, file: AnyFile, *, same_jobs: bool | None = None, paused: bool | None = None
    ) -> Imported:
        """Make an instance of a file; nothing of it runs before all of it was read and found sound.

        `same_jobs=True` if the instance that was exported will never run again: its jobs keep their `webhook-id`. Those
        of a copy get new ones. None: a copy, unless `tocsin move` wrote the file. `paused`: whether it is to be; None:
        as it was. ConflictError if the instance exists, InvalidInputError for a file that is not whole or not sound.
        It is sent once.
        """
        async with aclosing(read_file(file)) as pieces:
            return await self._load(name, pieces, same_jobs=same_jobs, paused=paused)

    async def _load(
        self, name: str, pieces: AsyncIterator[bytes], *, same_jobs: bool | None = None, paused: bool | None = None
    ) -> Imported:
        """Make an instance of the pieces of a file; see `import_instance`."""
        said = {"sameJobs": same_jobs, "paused": paused}
        query = {name: {True: "true", False: "false"}[value] for name, value in said.items() if value is not None}
        return await self._server.send_pieces(instance_name(name), "import", pieces, Imported, MEDIA, LONG_S, query)

    async def transfer_state(self, name: str) -> TransferState:
        """Return the part that an instance has in an import or a move."""
        return await self._server.ask("GET", instance_name(name), "import", TransferState, again=ALWAYS)

    async def seal(self, name: str, *, move: str, to: str, closed: bool = False) -> TransferState:
        """Have an instance take no new work and start nothing, because it moves to another place (`to`, for people).

        `closed`: nothing of it changes any more; what its attempts come to is told to the other place. `move` names
        the move; the same again changes nothing. `tocsin move` does all of it.
        """
        said = {"move": move, "to": to, "closed": closed}
        return await self._server.ask("PUT", instance_name(name), "seal", TransferState, said, again=ALWAYS)

    async def unseal(self, name: str, *, move: str) -> bool:
        """Let an instance go on that was to move. False if it was not, or by another move."""
        query = {"move": move}
        found = await self._server.ask("DELETE", instance_name(name), "seal", answers.Stays, query=query, again=ALWAYS)
        return found.stays

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
