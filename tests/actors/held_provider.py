"""A memory provider whose commits become durable only when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from tocsin.storage.api import (
    MAX_SCAN_BYTES,
    Batch,
    Capabilities,
    Event,
    Grant,
    OrderedStore,
    Range,
    Row,
    StoreProvider,
    StoreStats,
    StoreView,
)


class HeldStore(StoreView):
    """Passes commits on when released; fails them, in order, when told to."""

    def __init__(self, inner: OrderedStore, provider: HeldProvider) -> None:
        self._inner, self._provider = inner, provider
        self.name: str = inner.name
        self.grant: Grant = inner.grant
        self.wake_at: int | None = inner.wake_at

    def commit(self, batch: Batch) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._provider.hold(self._inner, batch, done)
        return done

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._inner.get(keys)

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        return await self._inner.scan_many(ranges, max_bytes=max_bytes, reverse=reverse)

    async def close(self) -> None:
        await self._inner.close()


class HeldProvider:
    """`held` batches wait while `holding`; `release` lets them through, `fail` refuses them."""

    def __init__(self, inner: StoreProvider) -> None:
        self._inner = inner
        self.capabilities: Capabilities = inner.capabilities
        self.owner: str = inner.owner
        self.full = False
        self.trouble = None
        self.holding = False
        self.held: list[tuple[OrderedStore, Batch, asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self, store: OrderedStore, batch: Batch, done: asyncio.Future[None]) -> None:
        self.held.append((store, batch, done))
        self._arrived.set()
        if not self.holding:
            self.release()

    async def until_held(self, count: int) -> None:
        while len(self.held) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def release(self) -> None:
        held, self.held = self.held, []
        for store, batch, done in held:
            task = asyncio.get_running_loop().create_task(_pass_on(store.commit(batch), done))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def fail(self, error: Exception) -> None:
        held, self.held = self.held, []
        for _, _, done in held:
            done.set_exception(error)

    async def start(self) -> None:
        await self._inner.start()

    async def stop(self) -> None:
        await self._inner.stop()

    async def open(self, name: str, *, create: bool = True) -> OrderedStore:
        return HeldStore(await self._inner.open(name, create=create), self)

    def view(self, name: str) -> StoreView:
        return self._inner.view(name)

    async def exists(self, name: str) -> bool:
        return await self._inner.exists(name)

    def events(self) -> AsyncIterator[Event]:
        return self._inner.events()

    async def names(self, start: str, limit: int) -> list[str]:
        return await self._inner.names(start, limit)

    def stats(self) -> StoreStats:
        return self._inner.stats()


async def _pass_on(commit: asyncio.Future[None], done: asyncio.Future[None]) -> None:
    try:
        await commit
    except Exception as error:
        done.set_exception(error)
    else:
        done.set_result(None)
