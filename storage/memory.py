"""The store in memory: the reference for the other engines, and the disk of the simulation.

A `MemoryDisk` outlives its providers, as a file outlives processes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import BinaryIO

from tocsin.errors import StoreClosed, StoreError, StoreFull
from tocsin.storage import api
from tocsin.storage.combiner import ActorWrites, Combiner, Committing, Handle, Handles

FEW = 64
"""Up to here new keys are inserted one by one; more are sorted in together."""


class SortedMap:
    """Bytes to bytes, in key order."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}

    def copy(self) -> SortedMap:
        """Return a map that later changes do not reach."""
        copied = SortedMap()
        copied._keys, copied._values = self._keys.copy(), self._values.copy()
        return copied

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def apply(self, rows: dict[bytes, bytes | None]) -> None:
        new: list[bytes] = []
        for key, value in rows.items():
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
                continue
            if key not in self._values:
                if len(rows) <= FEW:
                    insort(self._keys, key)
                else:
                    new.append(key)
            self._values[key] = value
        if new:
            # Deletions above met only keys that were there before, so the order was sound all along.
            self._keys.extend(new)
            self._keys.sort()

    def range(self, start: bytes, end: bytes, limit: int, reverse: bool) -> list[api.Row]:
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, end)
        keys = self._keys[max(low, high - limit) : high][::-1] if reverse else self._keys[low : min(high, low + limit)]
        return [(key, self._values[key]) for key in keys]


class MemoryDisk:
    """The data that survives a provider: the rows and wake times of every actor."""

    def __init__(self) -> None:
        self.maps: dict[str, SortedMap] = {}
        self.wakes: dict[str, int | None] = {}
        self.starts = 0

    def apply(self, writes: Sequence[ActorWrites]) -> None:
        for one in writes:
            if one.name not in self.maps:
                self.maps[one.name] = SortedMap()
                self.wakes[one.name] = None
            self.maps[one.name].apply(one.rows)
            if one.wake_at is not api.UNSET:
                self.wakes[one.name] = one.wake_at

    def scan_many(self, name: str, ranges: Sequence[api.Range], max_bytes: int, reverse: bool) -> list[list[api.Row]]:
        rows = self.maps.get(name)
        answer: list[list[api.Row]] = []
        size = 0
        for start, end, limit in ranges:
            kept: list[api.Row] = []
            answer.append(kept)
            if rows is None or (size and size >= max_bytes):
                continue
            for row in rows.range(start, end, limit, reverse):
                kept.append(row)
                size += len(row[0]) + len(row[1])
                if size >= max_bytes:
                    break
        return answer


class MemoryView(api.StoreView):
    """Committed state of one actor."""

    def __init__(self, provider: MemoryProvider, name: str) -> None:
        self.name = name
        self._provider = provider

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        await self._provider.hop()
        rows = self._provider.disk.maps.get(self.name)
        if rows is None:
            return {}
        return {key: value for key in keys if (value := rows.get(key)) is not None}

    async def scan_many(
        self, ranges: Sequence[api.Range], *, max_bytes: int = api.MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[api.Row]]:
        await self._provider.hop()
        return self._provider.disk.scan_many(self.name, ranges, max_bytes, reverse)


class MemorySnapshot:
    """A `StoreSnapshot` of a disk."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk

    def names(self, start: str, limit: int) -> list[str]:
        return sorted(name for name in self._disk.maps if name > start)[:limit]

    def wake_at(self, name: str) -> int | None:
        return self._disk.wakes.get(name)

    def lineage(self) -> str:
        return ""

    def view(self, name: str) -> api.StoreView:
        return CopiedView(self._disk, name)


class CopiedView(api.StoreView):
    """The state of one actor when this was made."""

    def __init__(self, disk: MemoryDisk, name: str) -> None:
        self._disk, self._name = MemoryDisk(), name
        if name in disk.maps:
            self._disk.maps[name] = disk.maps[name].copy()

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        rows = self._disk.maps.get(self._name)
        return {} if rows is None else {key: value for key in keys if (value := rows.get(key)) is not None}

    async def scan_many(
        self, ranges: Sequence[api.Range], *, max_bytes: int = api.MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[api.Row]]:
        return self._disk.scan_many(self._name, ranges, max_bytes, reverse)


class MemoryStore(MemoryView, Committing):
    """The writing handle of one actor."""

    def __init__(self, provider: MemoryProvider, handle: Handle) -> None:
        MemoryView.__init__(self, provider, handle.name)
        Committing.__init__(self, provider.combiner, provider.handles, handle)
        self.grant = api.Grant(provider.owner, provider.epoch)
        self.wake_at = provider.disk.wakes.get(handle.name)


class MemoryProvider:
    """A `StoreProvider` on a `MemoryDisk`. Nothing survives the process."""

    def __init__(self, disk: MemoryDisk | None = None, *, owner: str = "") -> None:
        self.disk = disk or MemoryDisk()
        self.capabilities = api.Capabilities(durable=False, shared=False)
        self.owner = owner or f"memory-{self.disk.starts + 1}"
        self.full = False
        self.combiner = Combiner(self.write, self.capabilities)
        self.handles = Handles()
        self.epoch = 0
        self._stopped: asyncio.Event | None = None

    @property
    def trouble(self) -> StoreError | None:
        return StoreFull("no space is left for the store, as was said of it") if self.full else None

    async def start(self) -> None:
        self.disk.starts += 1
        self.epoch = self.disk.starts
        self.handles.open_all()
        self._stopped = asyncio.Event()

    async def stop(self) -> None:
        await self.combiner.drain()
        self.handles.close_all()
        if self._stopped is not None:
            self._stopped.set()

    async def hop(self) -> None:
        """Give other tasks a chance to run at every read, as a real store does."""
        if self._stopped is None or self._stopped.is_set():
            raise StoreClosed("the store is not open")
        await asyncio.sleep(0)

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        await self.hop()
        self.disk.apply(writes)

    async def open(self, name: str, *, create: bool = True) -> api.OrderedStore:
        async with self.handles.renew(name) as handle:
            await self.hop()
            if not create and name not in self.disk.maps:
                raise KeyError(name)
            store = MemoryStore(self, handle)
        return store

    def view(self, name: str) -> api.StoreView:
        return MemoryView(self, name)

    async def exists(self, name: str) -> bool:
        await self.hop()
        return name in self.disk.maps

    async def events(self) -> AsyncIterator[api.Event]:
        if self._stopped is None or self._stopped.is_set():
            raise StoreClosed("the store is not open")
        yield api.Owned([(name, wake) for name, wake in self.disk.wakes.items() if wake is not None])
        await self._stopped.wait()

    async def names(self, start: str, limit: int) -> list[str]:
        await self.hop()
        return sorted(name for name in self.disk.maps if name > start)[:limit]

    @contextmanager
    def live(self) -> Iterator[MemorySnapshot]:
        """Hold one snapshot: a copy of what there is."""
        if self._stopped is None or self._stopped.is_set():
            raise StoreClosed("the store is not open")
        yield MemorySnapshot(self.disk)

    def scratch(self) -> BinaryIO:
        return BytesIO()

    def stats(self) -> api.StoreStats:
        return self.combiner.stats()
