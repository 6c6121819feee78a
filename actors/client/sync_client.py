"""`SyncClient`: the schedulers of a server for code that blocks: Django, Flask, scripts."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from tocsin.actors.client.answers import CatalogListed, Health
from tocsin.actors.client.blocking import Blocking
from tocsin.actors.client.client import Client
from tocsin.actors.client.sync_scheduler import SyncScheduler
from tocsin.actors.scheduler.model.moving import Exported, Imported, TransferState
from tocsin.actors.scheduler.model.records import InstancePage
from tocsin.actors.scheduler.model.validation import instance_name
from tocsin.actors.scheduler.transfer.files import AnyFile
from tocsin.dispatch.certificates import CaFile
from tocsin.dispatch.receiver.lease_client import PATIENCE_S, TIMEOUT_S
from tocsin.dispatch.server_client import DEFAULT_URL, HttpxTransport
from tocsin.dispatch.tracing import Tracers


class SyncClient:
    """A `Client` whose methods, and those of its handles, return when they are answered.

    One background thread serves it, from the first call on; other threads may share it. A child process, as of a
    server that forks its workers, has a thread and connections of its own. Interrupted, as by Ctrl-C, a call is
    cancelled: a claim gives back what it got. Use it `with SyncClient(...) as client`, or `close` it; the interpreter's
    exit closes it, too. Options and errors as for `Client`.
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
        tracing: bool | Tracers = True,
    ) -> None:
        """Connect to nobody yet. SettingsError for a URL, token or file that cannot be."""
        make = partial(
            Client, url, token=token, timeout_s=timeout_s, patience_s=patience_s, transport=transport, ca_file=ca_file,
            tracing=tracing,
        )  # fmt: skip
        self._shown = repr(make()).replace("Client", "SyncClient")  # what is wrong is refused now
        self._blocking = Blocking(make)

    def __repr__(self) -> str:
        return self._shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread. A later call is refused."""
        self._blocking.close()

    def scheduler(self, name: str = "default") -> SyncScheduler:
        """Return a handle on one scheduler; it costs nothing until used."""
        return SyncScheduler(self._blocking, instance_name(name))

    # ---- The whole server ------------------------------------------------------------------------

    def instances(self, *, cursor: str | None = None, limit: int = 100) -> InstancePage:
        """List the schedulers that were used and not removed, by name, with their counts; at most 1,000 on a page. Left
        out are those that the token does not reach."""
        return self._blocking.call(lambda client: client.instances(cursor=cursor, limit=limit))

    def health(self) -> Health:
        """Return whether work is accepted now, and what is wrong with the host all the same. It needs no token."""
        return self._blocking.call(lambda client: client.health())

    def catalog(self) -> CatalogListed:
        """List the paths there are, and what args each takes."""
        return self._blocking.call(lambda client: client.catalog())

    # ---- Whole instances -------------------------------------------------------------------------

    def export_instance(self, name: str, file: AnyFile) -> Exported:
        """Write everything of an instance to a file, as of one instant, while it goes on; see `Client`."""
        return self._blocking.call(lambda client: client.export_instance(name, file))

    def import_instance(
        self, name: str, file: AnyFile, *, same_jobs: bool | None = None, paused: bool | None = None
    ) -> Imported:
        """Make an instance of a file; nothing of it runs before all of it was read and found sound; see `Client`."""
        return self._blocking.call(
            lambda client: client.import_instance(name, file, same_jobs=same_jobs, paused=paused)
        )

    def transfer_state(self, name: str) -> TransferState:
        """Return the part that an instance has in an import or a move."""
        return self._blocking.call(lambda client: client.transfer_state(name))

    def seal(self, name: str, *, move: str, to: str, closed: bool = False) -> TransferState:
        """Have an instance take no new work and start nothing, because it moves to another place; see `Client`."""
        return self._blocking.call(lambda client: client.seal(name, move=move, to=to, closed=closed))

    def unseal(self, name: str, *, move: str) -> bool:
        """Let an instance go on that was to move. False if it was not, or by another move."""
        return self._blocking.call(lambda client: client.unseal(name, move=move))

    def openapi(self) -> dict[str, Any]:
        """Return the server's own description of its routes."""
        return self._blocking.call(lambda client: client.openapi())
