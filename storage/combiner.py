"""Group commit: batches of many actors travel to disk together. All engines share this.

Everything that arrived while the last transaction ran forms the next one. A group that fails is tried again
batch by batch, so one actor's bad batch never breaks another's commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tocsin.errors import Fenced, RolledBack, StoreClosed, StoreError, StoreTooLarge, StoreUnavailable
from tocsin.storage.api import UNSET, Batch, Capabilities, StoreStats, Unset, check_batch
from tocsin.storage.handles import Handle

STORE_WIDE = (StoreUnavailable, StoreClosed, RolledBack, Fenced)
"""What is the fault of the store, not of one batch."""


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
    refused: StoreError | None
    answered: bool = False

    def answer(self, error: StoreError | None) -> None:
        """Once. A caller that was cancelled does not hear it, but the handle is settled all the same."""
        self.answered = True
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
                self.done.exception()  # whoever waits hears of it; nobody has to
        self.handle.end()

    def weight(self) -> tuple[int, int]:
        """Keys and bytes it adds to a transaction."""
        if self.refused is not None:
            return 0, 0
        puts, deletes = self.batch.puts, self.batch.deletes
        size = sum(map(len, puts)) + sum(map(len, puts.values()))
        return len(puts) + len(deletes), size + sum(map(len, deletes)) if deletes else size


Write = Callable[[Sequence[ActorWrites]], Awaitable[None]]
"""Apply in one durable transaction; a StoreError means nothing was written."""


class Combiner:
    """One writer for all actors of a provider; transactions run one after another."""

    def __init__(self, write: Write, capabilities: Capabilities) -> None:
        self._write, self._capabilities = write, capabilities
        self._waiting: deque[_Entry] = deque()
        self._under_way: list[_Entry] = []
        self._task: asyncio.Task[None] | None = None
        self._commits = self._batches = self._puts = self._deletes = self._failed = 0

    def stats(self) -> StoreStats:
        return StoreStats(self._commits, self._batches, self._puts, self._deletes, self._failed)

    def submit(self, handle: Handle, batch: Batch) -> asyncio.Future[None]:
        """Enqueue; the answer is done when the batch is durable. Call order is commit order."""
        loop = asyncio.get_running_loop()
        entry = _Entry(handle, batch, loop.create_future(), self._refusal(handle, batch))
        first = not handle.pending
        handle.begin()
        if entry.refused is not None and first:
            self._fail(entry, entry.refused)
            return entry.done
        # One that is refused waits too: earlier batches, still on their way, are answered first.
        self._waiting.append(entry)
        if self._task is None:
            self._task = loop.create_task(self._run())
        return entry.done

    def _refusal(self, handle: Handle, batch: Batch) -> StoreError | None:
        if handle.failed is not None:
            return handle.failed
        if handle.closed:
            return StoreClosed(f"{handle.name} was closed, or opened anew elsewhere")
        if (reason := check_batch(batch, self._capabilities)) is not None:
            return StoreTooLarge(f"{handle.name}: {reason}")
        return None

    async def give_up(self) -> None:
        """End at once; whoever waits hears an error. Whether what was on its way is in the store, nobody knows."""
        while (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def drain(self) -> None:
        """Until nothing is on its way."""
        while (task := self._task) is not None:
            await asyncio.wait([task])

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._under_way = self._take()
                await self._commit(self._under_way)
        finally:
            self._task = None
            self._abandon()

    def _abandon(self) -> None:
        """The event loop ends before we do: nobody may wait for ever for an answer that cannot come."""
        for entry in (*self._under_way, *self._waiting):
            if not entry.answered:
                entry.done.cancel()
                self._fail(entry, StoreClosed("the event loop ended during a commit"))
        self._under_way = []
        self._waiting.clear()

    def _take(self) -> list[_Entry]:
        """As many batches as fit one transaction."""
        group: list[_Entry] = []
        keys = size = 0
        while self._waiting:
            more_keys, more_bytes = self._waiting[0].weight()
            keys, size = keys + more_keys, size + more_bytes
            if group and (keys > self._capabilities.max_batch_keys or size > self._capabilities.max_batch_bytes):
                break
            group.append(self._waiting.popleft())
        return group

    async def _commit(self, group: Sequence[_Entry]) -> None:
        sound: list[_Entry] = []
        refused: list[_Entry] = []
        broken: set[Handle] = set()
        for entry in group:
            if entry.refused is not None or entry.handle.failed is not None or entry.handle in broken:
                broken.add(entry.handle)
                refused.append(entry)
            else:
                sound.append(entry)
        if sound and (error := await self._attempt(sound)) is not None:
            await self._one_by_one(sound, error)
        for entry in refused:  # answered last: what came before them is answered by now
            self._fail(entry, entry.refused)

    async def _one_by_one(self, group: Sequence[_Entry], error: StoreError) -> None:
        """So that one actor's bad batch breaks nobody else's commit."""
        if len(group) == 1:
            self._fail(group[0], error)
            return
        hopeless: StoreError | None = None
        for entry in group:
            alone = entry.handle.failed or hopeless or await self._attempt([entry])
            if alone is None:
                continue
            if entry.handle.failed is None and isinstance(alone, STORE_WIDE) and type(alone) is type(error):
                hopeless = alone  # each further attempt may cost a timeout of its own
            self._fail(entry, alone)

    async def _attempt(self, group: Sequence[_Entry]) -> StoreError | None:
        """One transaction; if it succeeds, all of the group have their answers."""
        merged: dict[Handle, ActorWrites] = {}
        for entry in group:
            writes = merged.get(entry.handle)
            if writes is None:
                writes = merged[entry.handle] = ActorWrites(entry.handle.name)
            writes.add(entry.batch)
        try:
            await self._write(list(merged.values()))
        except StoreError as error:
            return error
        except Exception as error:
            # Whatever an engine raises, its callers hear of it as an error of the store.
            wrapped = StoreError(f"the store failed: {error!r}")
            wrapped.__cause__ = error
            return wrapped
        self._count(merged.values(), len(group))
        for entry in group:
            entry.answer(None)
        return None

    def _fail(self, entry: _Entry, error: StoreError | None) -> None:
        """By rule 3 of the seam, every later batch of this handle fails with the same error."""
        entry.handle.failed = entry.handle.failed or error
        self._failed += 1
        entry.answer(entry.handle.failed)

    def _count(self, writes: Iterable[ActorWrites], batches: int) -> None:
        self._commits += 1
        self._batches += batches
        for one in writes:
            deleted = sum(value is None for value in one.rows.values())
            self._deletes += deleted
            self._puts += len(one.rows) - deleted
