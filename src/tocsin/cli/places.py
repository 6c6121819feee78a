"""Places of instances: a server, or a store that no server has open. Both give, take, seal and remove one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Protocol

from tocsin.cli.failure import NotNow, Refused, StoreUnusable, Unreachable, WrongSettings
from tocsin.cli.words import printable

if TYPE_CHECKING:
    from tocsin.actors.actor_host import ActorHost
    from tocsin.actors.client.client import Client
    from tocsin.actors.scheduler.model.moving import Imported, TransferState
    from tocsin.actors.scheduler.model.records import Removed


class Place(Protocol):
    """One server or store."""

    shown: str
    """For people, without secrets."""
    runs: bool
    """True if attempts end there while it is watched."""

    def pieces(self, name: str) -> AsyncIterator[bytes]: ...
    async def load(
        self, name: str, pieces: AsyncIterator[bytes], *, same_jobs: bool | None, paused: bool | None
    ) -> Imported: ...
    async def state(self, name: str) -> TransferState: ...
    async def seal(self, name: str, move: str, to: str, *, closed: bool) -> TransferState: ...
    async def unseal(self, name: str, move: str) -> bool: ...
    async def remove(self, name: str) -> Removed: ...


class ServerPlace:
    """A server."""

    runs = True

    def __init__(self, client: Client, url: str) -> None:
        self._client, self.shown = client, url

    def pieces(self, name: str) -> AsyncIterator[bytes]:
        return self._client._pieces_of(name)

    async def load(
        self, name: str, pieces: AsyncIterator[bytes], *, same_jobs: bool | None, paused: bool | None
    ) -> Imported:
        return await self._client._load(name, pieces, same_jobs=same_jobs, paused=paused)

    async def state(self, name: str) -> TransferState:
        return await self._client.transfer_state(name)

    async def seal(self, name: str, move: str, to: str, *, closed: bool) -> TransferState:
        return await self._client.seal(name, move=move, to=to, closed=closed)

    async def unseal(self, name: str, move: str) -> bool:
        return await self._client.unseal(name, move=move)

    async def remove(self, name: str) -> Removed:
        return await self._client.scheduler(name).remove()


class StorePlace:
    """A store that nobody else has open."""

    runs = False

    def __init__(self, host: ActorHost, url: str) -> None:
        self._host, self.shown = host, url

    async def pieces(self, name: str) -> AsyncGenerator[bytes, None]:
        _, pieces = await self._host.exported(name)
        async for piece in pieces:
            yield piece

    async def load(
        self, name: str, pieces: AsyncIterator[bytes], *, same_jobs: bool | None, paused: bool | None
    ) -> Imported:
        return await self._host.load(name, pieces, same_jobs=same_jobs, paused=paused)

    async def state(self, name: str) -> TransferState:
        return await self._host.transfer_state(name)

    async def seal(self, name: str, move: str, to: str, *, closed: bool) -> TransferState:
        return await self._host.seal(name, move=move, to=to, closed=closed)

    async def unseal(self, name: str, move: str) -> bool:
        return await self._host.unseal(name, move=move)

    async def remove(self, name: str) -> Removed:
        return await self._host.scheduler(name).remove()


@asynccontextmanager
async def open_place(url: str, token: str | None = None, ca_file: str | None = None) -> AsyncIterator[Place]:
    """Open a server (`https://…`) or a store (`sqlite:///…`). What goes wrong in the block ends the command."""
    if is_server(url):
        from tocsin.actors.client.client import Client

        with failing():
            client = Client(url, token=token, ca_file=ca_file)
        async with client:
            with failing():
                yield ServerPlace(client, printable(url))
        return
    from tocsin.actors.actor_host import ActorHost

    with failing():
        async with ActorHost.open(url, dispatch=False, share=False) as host:
            yield StorePlace(host, printable(url))


def is_server(url: str) -> bool:
    return url.startswith(("http://", "https://"))


@contextmanager
def failing() -> Iterator[None]:
    """Let the errors of the block be failures of the command."""
    from tocsin.errors import NotAnsweredYetError, SettingsError, StoreError, TocsinError, UnreachableError

    try:
        yield
    except UnreachableError as error:
        raise Unreachable(f"{error.message}. Is `tocsin serve` running there?") from None
    except SettingsError as error:
        raise WrongSettings(error.message) from None
    except StoreError as error:
        raise StoreUnusable(error.message) from None
    except NotAnsweredYetError as error:
        raise NotNow(f"{error.message}. Run the same command again in a moment: it goes on") from None
    except TocsinError as error:
        raise Refused(f"{error.message} [{error.code}]") from None
