"""The writing ends of open actors: at most one per actor, and a new one waits until the earlier one is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from tocsin.errors import StoreClosed, StoreError


class Handle:
    """The writing end of one open actor. `pending` counts the batches that have no answer yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed: StoreError | None = None
        self.closed = False
        self.pending = 0
        self._settled = asyncio.Event()

    def begin(self) -> None:
        self.pending += 1
        self._settled.clear()

    def end(self) -> None:
        self.pending -= 1
        if not self.pending:
            self._settled.set()

    async def settled(self) -> None:
        """Until every batch has its answer, whether or not somebody still waits for it."""
        while self.pending:
            await self._settled.wait()


class Handles:
    """The open handle of each actor of a provider."""

    def __init__(self) -> None:
        self._open: dict[str, Handle] = {}
        self._renewing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = False

    @asynccontextmanager
    async def renew(self, name: str) -> AsyncIterator[Handle]:
        """A new handle, open at the end of the block; inside, what is stored is what it starts from."""
        lock = self._renewing.setdefault(name, asyncio.Lock())
        async with lock:
            if (earlier := self._open.get(name)) is not None:
                await self.close(earlier)
            handle = Handle(name)
            yield handle
            if self._closed:
                raise StoreClosed("the store is not open")
            self._open[name] = handle

    async def close(self, handle: Handle) -> None:
        handle.closed = True
        await handle.settled()
        if self._open.get(handle.name) is handle:
            del self._open[handle.name]

    def open_all(self) -> None:
        """Handles may be made (again)."""
        self._closed = False

    def close_all(self) -> None:
        """None takes a batch from now on, and none is made."""
        self._closed = True
        for handle in self._open.values():
            handle.closed = True
        self._open.clear()
