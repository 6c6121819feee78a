"""A provider that has several named stores, and goes to the one that an actor belongs to. Never to another one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from tocsin.errors import ResidencyError, SettingsError, StoreClosed, StoreError, StoreMoved, StoreUnavailable
from tocsin.storage.api import Capabilities, Event, OrderedStore, StoreProvider, StoreStats, StoreView, summed
from tocsin.storage.notes import NOTES
from tocsin.storage.residency.agreement import agree
from tocsin.storage.residency.merged import merged
from tocsin.storage.residency.rules import REFUSE, Rules, instance_of
from tocsin.storage.tasks import begin_soon

log = logging.getLogger("tocsin.storage")

RETRY_S: Final = 5.0
"""Seconds between two tries to open a store that was away when the host started."""
NAMES_KEPT: Final = 4096


class NamedStores:
    """A `StoreProvider` of several. A store that is away is away for its own instances only."""

    def __init__(self, parts: Mapping[str, StoreProvider], rules: Rules) -> None:
        if not parts:
            raise SettingsError("at least one store must be given, by name")
        self.parts, self.rules = dict(parts), rules
        self.capabilities = _weakest([part.capabilities for part in parts.values()])
        self.owner = self._first.owner
        """This process's random id in the first store; it has another one in each of the others."""
        self._name_of = lru_cache(NAMES_KEPT)(self._assigned)
        self._away: dict[str, StoreError] = {}
        self._up = {name: asyncio.Event() for name in parts}
        self._opening: list[asyncio.Task[None]] = []
        self._is_open = False
        self.when_there: Callable[[], Awaitable[None]] | None = None
        """The work to be done once a store is there that was away at the start, before its actors begin."""

    # ---- Life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open all stores. One that is not reached is tried again and again; the others are used meanwhile."""
        self._up, self._away = {name: asyncio.Event() for name in self.parts}, {}
        names, parts = list(self.parts), list(self.parts.values())
        results = await asyncio.gather(*(part.start() for part in parts), return_exceptions=True)
        failed = {name: result for name, result in zip(names, results, strict=True) if result is not None}
        self._away = {name: error for name, error in failed.items() if isinstance(error, StoreUnavailable)}
        try:
            if len(self._away) < len(failed) or len(failed) == len(names):
                worst = next((error for error in failed.values() if not isinstance(error, StoreUnavailable)), None)
                raise worst or next(iter(failed.values()))
            await agree({name: part for name, part in self.parts.items() if name not in failed}, self.rules)
        except BaseException:
            await self._stop([part for name, part in self.parts.items() if name not in failed])
            raise
        self._is_open, self.owner = True, self._first.owner
        for name in names:
            if name in self._away:
                log.error("the store %s is away, and its instances with it: %s", name, self._away[name])
                self._opening.append(begin_soon(self._open_late(name)))
            else:
                self._up[name].set()

    def started(self) -> None:
        """Note that the stores are open already, and that their rules are these."""
        self._is_open = True
        for up in self._up.values():
            up.set()

    async def until_up(self, store: str) -> None:
        """Wait until this store is open."""
        await self._up[store].wait()

    async def _open_late(self, name: str) -> None:
        part = self.parts[name]
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                await part.start()
            except StoreError as error:
                self._away[name] = error
                continue
            try:
                reached = {each: self.parts[each] for each in self.parts if each not in self._away}
                await agree(reached | {name: part}, self.rules)
            except (SettingsError, StoreError) as error:
                log.error("the store %s is not used: %s", name, error)
                self._away[name] = error if isinstance(error, StoreError) else StoreUnavailable(error.message)
                with suppress(StoreError):
                    await part.stop()
                if isinstance(error, (SettingsError, StoreMoved)):
                    return
                continue
            del self._away[name]
            if self.when_there is not None:
                await self.when_there()
            self._up[name].set()
            log.warning("the store %s is there, and its instances with it", name)
            return

    async def stop(self) -> None:
        self._is_open = False
        opening, self._opening = self._opening, []
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for up in self._up.values():
            up.set()  # whoever waits for one that never came learns that it is closed
        await self._stop(list(self.parts.values()))

    async def _stop(self, parts: Sequence[StoreProvider]) -> None:
        results = await asyncio.gather(*(part.stop() for part in parts), return_exceptions=True)
        if (failed := next((one for one in results if one is not None), None)) is not None:
            raise failed

    @property
    def _first(self) -> StoreProvider:
        """Return the store of the host's own actors."""
        return next(self.parts[name] for name in self.rules.stores if name in self.parts)

    # ---- Which store -----------------------------------------------------------------------------

    def _assigned(self, actor: str) -> str:
        instance = instance_of(actor)
        if instance is None:
            return next(name for name in self.rules.stores if name in self.parts)
        store = self.rules.store_of(instance)
        if store == REFUSE:
            raise ResidencyError(
                f"no store is for instance {instance!r} by residency ({self.rules.in_words()}), so it is not accepted"
            )
        if store not in self.parts:
            raise ResidencyError(
                f"instance {instance!r} is fixed to the store {store}, which this host does not have: it has "
                f"{', '.join(self.parts)}",
                store=store,
            )
        return store

    def store_name(self, actor: str) -> str:
        """Return the name of the store that an actor belongs to. ResidencyError if this host has none for it."""
        return self._name_of(actor)

    def part(self, actor: str) -> StoreProvider:
        """Return the store of an actor. ResidencyError; StoreUnavailable if it has been away since the start."""
        name = self._name_of(actor)
        if name in self._away:
            raise self._gone(name)
        return self.parts[name]

    def _gone(self, name: str) -> StoreUnavailable:
        return StoreUnavailable(f"the store {name}, to which this instance belongs, is away: {self._away[name]}")

    def is_away(self, actor: str) -> bool:
        """Tell whether the store of an actor has not been reached since the start."""
        return self._name_of(actor) in self._away

    def trouble_of(self, actor: str) -> StoreError | None:
        """Return the trouble of the store of an actor."""
        name = self._name_of(actor)
        return self._gone(name) if name in self._away else self.parts[name].trouble

    @property
    def troubles(self) -> dict[str, StoreError]:
        """Return which stores are in trouble, and in which."""
        found = {name: self._away.get(name) or part.trouble for name, part in self.parts.items()}
        return {name: error for name, error in found.items() if error is not None}

    @property
    def full(self) -> bool:
        return all(part.full for part in self.parts.values())

    @property
    def trouble(self) -> StoreError | None:
        """Return the trouble of the first store if all are in trouble: while one works, the host serves its
        instances."""
        troubles = self.troubles
        return next(iter(troubles.values())) if len(troubles) == len(self.parts) else None

    # ---- Actors ----------------------------------------------------------------------------------

    async def open(self, name: str, *, create: bool = True) -> OrderedStore:
        return await self.part(name).open(name, create=create)

    def view(self, name: str) -> StoreView:
        return self.part(name).view(name)

    async def exists(self, name: str) -> bool:
        return await self.part(name).exists(name)

    def is_in(self, store: str, actor: str) -> bool:
        """Tell whether an actor belongs to this store."""
        try:
            return self._name_of(actor) == store
        except ResidencyError:
            return False

    async def events(self) -> AsyncIterator[Event]:
        if not self._is_open:
            raise StoreClosed("the stores are not open")
        async for event in merged(self.parts, self.is_in, self._up.__getitem__):
            yield event

    async def names(self, start: str, limit: int) -> list[str]:
        """Return the names in all stores. StoreUnavailable while one is away: a list without its names would be
        wrong."""
        names, away = await self.names_there(start, limit)
        for name, error in away.items():
            raise StoreUnavailable(f"the store {name} is away, so its names cannot be listed: {error}")
        return names

    async def names_there(self, start: str, limit: int) -> tuple[list[str], dict[str, StoreUnavailable]]:
        """Return the names in the stores that answer, and which of them are away. StoreUnavailable if all are."""
        away = {name: StoreUnavailable(error.message) for name, error in self._away.items()}
        asked = {name: part for name, part in self.parts.items() if name not in away}
        pages = await asyncio.gather(*(part.names(start, limit + 1) for part in asked.values()), return_exceptions=True)
        found: set[str] = set()
        for name, page in zip(asked, pages, strict=True):
            if isinstance(page, StoreUnavailable):
                away[name] = page
            elif isinstance(page, BaseException):
                raise page
            else:
                found.update(page)
        if len(away) == len(self.parts):
            raise next(iter(away.values()))
        return sorted(found - {NOTES})[:limit], away

    def stats(self) -> StoreStats:
        """Sum up what all stores have counted."""
        return summed([part.stats() for part in self.parts.values()])


def part_of(provider: StoreProvider, actor: str) -> StoreProvider:
    """Return the store of an actor: of several its own, else the only one. ResidencyError, StoreUnavailable."""
    return provider.part(actor) if isinstance(provider, NamedStores) else provider


def _weakest(each: Sequence[Capabilities]) -> Capabilities:
    """Return what all of them are capable of."""
    if all(one == each[0] for one in each):
        return each[0]
    return Capabilities(
        durable=all(one.durable for one in each),
        shared=any(one.shared for one in each),
        max_key=min(one.max_key for one in each),
        max_value=min(one.max_value for one in each),
        max_batch_keys=min(one.max_batch_keys for one in each),
        max_batch_bytes=min(one.max_batch_bytes for one in each),
    )
