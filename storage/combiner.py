"""Group commit: batches of many actors travel to disk together. All engines share this.

Everything that arrived while the last transaction ran forms the next one. A group that fails is tried again
batch by batch, so one actor's bad batch never breaks another's commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tocsin.errors import StoreClosed, StoreError, StoreTooLarge
from tocsin.storage.api import UNSET, Batch, Capabilities, StoreStats, Unset, check_batch


class Handle:
    """The writing end of one open actor, as the combiner sees it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed: StoreError | None = None
        """Why a batch of this handle was lost; whatever is still waiting is lost with it."""
        self.refusing: StoreError | None = None
        """Why later batches are refused at the call; earlier ones, still on their way, are not touched."""
        self.closed = False
        self.last: asyncio.Future[None] | None = None


@dataclass(slots=True)
class ActorWrites:
    """What a transaction changes of one actor: several batches merged, the last word on each key."""

    name: str
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    """None deletes."""
    wake_at: int | Unset | None = UNSET

    def add(self, batch: Batch) -> None:
        self.rows.update(batch.puts)
        self.rows.update(dict.fromkeys(batch.deletes))
        if batch.wake_at is not UNSET:
            self.wake_at = batch.wake_at


@dataclass(slots=True)
class _Entry:
    handle: Handle
    batch: Batch
    done: asyncio.Future[None]


Write = Callable[[Sequence[ActorWrites]], Awaitable[None]]
"""Apply in one durable transaction; a StoreError means nothing was written."""


class Combiner:
    """One writer for all actors of a provider; transactions run one after another."""

    def __init__(self, write: Write, capabilities: Capabilities) -> None:
        self._write, self._capabilities = write, capabilities
        self._waiting: deque[_Entry] = deque()
        self._task: asyncio.Task[None] | None = None
        self._commits = self._batches = self._puts = self._deletes = self._failed = 0

    def stats(self) -> StoreStats:
        return StoreStats(self._commits, self._batches, self._puts, self._deletes, self._failed)

    def submit(self, handle: Handle, batch: Batch) -> asyncio.Future[None]:
        """Enqueue; the answer is done when the batch is durable. Call order is commit order."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused = handle.failed or handle.refusing
        if refused is None and handle.closed:
            refused = StoreClosed(f"{handle.name} was closed, or opened anew elsewhere")
        if refused is None and (reason := check_batch(batch, self._capabilities)) is not None:
            refused = StoreTooLarge(f"{handle.name}: {reason}")
        entry = _Entry(handle, batch, done)
        last, handle.last = handle.last, done
        if refused is not None:
            handle.refusing = refused
            if last is None or last.done():
                self._fail(entry, refused)
            else:  # in order: earlier batches, still on their way, are answered first
                last.add_done_callback(lambda _: self._fail(entry, handle.failed or refused))
            return done
        self._waiting.append(entry)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return done

    async def settle(self, handle: Handle) -> None:
        """Until every batch submitted through this handle has its answer."""
        while (last := handle.last) is not None and not last.done():
            await asyncio.wait([last])

    async def drain(self) -> None:
        """Until nothing is on its way."""
        while (task := self._task) is not None:
            await asyncio.wait([task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._take())
        finally:
            self._task = None

    def _take(self) -> list[_Entry]:
        """As many batches as fit one transaction."""
        group: list[_Entry] = []
        keys = size = 0
        while self._waiting:
            batch = self._waiting[0].batch
            more = len(batch.puts) + len(batch.deletes)
            bytes_more = sum(map(len, batch.puts)) + sum(map(len, batch.puts.values()))
            full = keys + more > self._capabilities.max_batch_keys
            if group and (full or size + bytes_more > self._capabilities.max_batch_bytes):
                break
            keys, size = keys + more, size + bytes_more
            group.append(self._waiting.popleft())
        return group

    async def _commit(self, group: Sequence[_Entry]) -> None:
        group = [entry for entry in group if not self._refuse_broken(entry)]
        if not group:
            return
        merged: dict[Handle, ActorWrites] = {}
        for entry in group:
            writes = merged.get(entry.handle)
            if writes is None:
                writes = merged[entry.handle] = ActorWrites(entry.handle.name)
            writes.add(entry.batch)
        error = await self._try(list(merged.values()))
        if error is None:
            self._count(merged.values(), len(group))
            for entry in group:
                if not entry.done.done():
                    entry.done.set_result(None)
        elif len(group) == 1:
            self._fail(group[0], error)
        else:
            for entry in group:
                await self._commit([entry])

    async def _try(self, writes: Sequence[ActorWrites]) -> StoreError | None:
        try:
            await self._write(writes)
        except StoreError as error:
            return error
        except Exception as error:
            # Whatever an engine raises, its callers hear of it as an error of the store.
            wrapped = StoreError(f"the store failed: {error!r}")
            wrapped.__cause__ = error
            return wrapped
        return None

    def _refuse_broken(self, entry: _Entry) -> bool:
        if entry.handle.failed is None:
            return False
        self._fail(entry, entry.handle.failed)
        return True

    def _fail(self, entry: _Entry, error: StoreError) -> None:
        """By rule 3 of the seam, every later batch of this handle fails with the same error."""
        entry.handle.failed = entry.handle.failed or error
        self._failed += 1
        if not entry.done.done():
            entry.done.set_exception(error)
            entry.done.exception()  # whoever waits hears of it; nobody has to

    def _count(self, writes: Iterable[ActorWrites], batches: int) -> None:
        self._commits += 1
        self._batches += batches
        for one in writes:
            deleted = sum(value is None for value in one.rows.values())
            self._deletes += deleted
            self._puts += len(one.rows) - deleted
