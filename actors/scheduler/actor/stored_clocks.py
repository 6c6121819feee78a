"""The test clocks of a store, as far as this host needs them: those of its own schedulers, and of others it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tocsin.actors.runtime.host import Host
from tocsin.actors.scheduler.actor import clock_names
from tocsin.actors.scheduler.actor.clock_names import PREFIX
from tocsin.actors.scheduler.inflight.instance_clocks import InstanceClocks
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.queries import clocks
from tocsin.errors import StoreCorrupt, StoreError, StoreMoved
from tocsin.storage.api import Owned, StoreProvider, after
from tocsin.storage.residency.opening import fit_to_serve
from tocsin.storage.residency.provider import NamedStores

AGAIN_S: Final = (0.01, 0.1, 0.5, 1.0, 1.0)
NAMES_S: Final = 1.0
"""So old the list of instances with test clocks may be that other hosts have made."""


class StoredClocks:
    """Reads them from rows: turns of this host note its own ones as they move."""

    def __init__(self, clocks: InstanceClocks, host: Callable[[], Host], is_here: Callable[[str], bool]) -> None:
        self._clocks, self._host, self._is_here = clocks, host, is_here
        self._names: frozenset[str] = frozenset()
        self._read_at = float("-inf")
        self._coming = False

    async def read_all(self) -> None:
        """Read where the test clocks of this store stand. To be called when the store is open, before it serves. A
        store that cannot be read, also not soon afterwards, is closed again."""
        host = self._host()
        try:
            for pause_s in (*AGAIN_S, None):
                try:
                    host.provider = provider = await fit_to_serve(host.provider)
                    if isinstance(provider, NamedStores):
                        provider.when_there = self.read
                    self._clocks.forget()
                    return await self.read()
                except StoreMoved:
                    raise
                except StoreError as error:
                    if isinstance(error, StoreCorrupt) and isinstance(host.provider.trouble, StoreCorrupt):
                        return  # nothing begins on a damaged store, by any clock; it still says how it is
                    if pause_s is None:
                        raise
                    await host.clock.sleep(pause_s)
        except BaseException:
            await host.stop(0.0)  # else it would have the store, serve nobody, and let nobody else take it
            raise

    async def read(self) -> None:
        """Read those of schedulers of this host that are not known yet."""
        for name in await self._read_names():
            if self._is_here(name) and not self._clocks.has(name) and not is_away(self._host().provider, name):
                await self._read_one(name)

    def came(self, event: Owned) -> None:
        """Read those of actors that have come to this host. Their own turns go by their rows; this is for handles."""
        if not self._coming and event.actors:
            self._coming = True
            self._host().start_soon(self._come())

    async def _come(self) -> None:
        self._coming = False  # whoever comes from here on is read again
        await self.read()

    async def learn(self, name: str) -> None:
        """Read the test clock of an instance of another host, if it has one, before its rows are read by it."""
        if self._host().clock.monotonic() - self._read_at >= NAMES_S:
            await self._read_names()
        if name in self._names and not self._is_here(name):
            await self._read_one(name)

    async def _read_names(self) -> frozenset[str]:
        host = self._host()
        began = host.clock.monotonic()
        rows = await host.provider.view(str(clock_names.ID)).scan(PREFIX, after(PREFIX), limit=100_000)
        self._names = frozenset(key.removeprefix(PREFIX).decode() for key, _ in rows)
        self._read_at = began
        return self._names

    async def _read_one(self, name: str) -> None:
        row = await clocks.row_of(self._host().provider.view(str(actor_of(name))))
        if not (self._is_here(name) and self._clocks.has(name)):  # else a turn has noted a newer one meanwhile
            # One that cannot be read stops its own instance only.
            self._clocks.note(name, row)


def is_away(provider: StoreProvider, name: str) -> bool:
    """Tell whether a scheduler is in a store that has not been reached since the start: it is read once it is there."""
    return isinstance(provider, NamedStores) and provider.is_away(str(actor_of(name)))
