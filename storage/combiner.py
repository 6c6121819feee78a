"""Group commit: batches of many actors travel to disk together. All engines share this.

Everything that arrived while the last transaction ran forms the next one. A group that fails is tried again
batch by batch, so one actor's bad batch never breaks another's commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from tocsin.errors import Fenced, RolledBack, StoreClosed, StoreError, StoreTooLarge, StoreUnavailable
from tocsin.storage.api import UNSET, Batch, Capabilities, StoreStats, Unset, check_batch
from tocsin.storage.histogram import Histogram, observe
from tocsin.storage.tasks import task_maker

COMMIT_EDGES_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_EDGES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MOST_UNCOUNTED = 256
"""So many transactions are counted together, or fewer when somebody asks."""


class SomeRefused(Exception):
    """Raised by an engine that wrote nothing of a group because of these actors alone: the others may go again."""

    def __init__(self, errors: Mapping[str, StoreError]) -> None:
        super().__init__(f"refused: {sorted(errors)}")
        self.errors = errors


STORE_WIDE = (StoreUnavailable, StoreClosed, RolledBack, Fenced)
"""Errors that are the fault of the store, not of one batch."""


@dataclass(slots=True)
class ActorWrites:
    """The changes of one transaction to one actor: several batches merged, the last word on each key."""

    name: str
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    """None deletes."""
    wake_at: int | Unset | None = UNSET

    def add(self, batch: Batch) -> None:
        self.rows.update(batch.puts)
        if batch.deletes:
            self.rows.update(dict.fromkeys(batch.deletes))
        if batch.wake_at is not UNSET:
            self.wake_at = batch.wake_at


class Handle:
    """The writing end of one open actor. `pending` counts the batches that have no answer yet."""

    __slots__ = ("_settled", "closed", "failed", "name", "pending")

    def __init__(self, name: str) -> None:
        self.name = name
        self.failed: StoreError | None = None
        self.closed = False
        self.pending = 0
        self._settled: asyncio.Event | None = None

    def answered(self) -> None:
        """Count one answer, and release whoever waits for the last one."""
        self.pending -= 1
        if not self.pending and self._settled is not None:
            self._settled.set()
            self._settled = None

    async def settled(self) -> None:
        """Wait until every batch has its answer, whether or not somebody still waits for it."""
        while self.pending:
            self._settled = self._settled or asyncio.Event()
            await self._settled.wait()


class Handles:
    """The open handle of each actor of a provider: at most one, and a new one waits until the earlier is settled."""

    def __init__(self) -> None:
        self._open: dict[str, Handle] = {}
        self._renewing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = False

    @asynccontextmanager
    async def renew(self, name: str) -> AsyncIterator[Handle]:
        """Make a new handle, open at the end of the block. What is stored in the block is its starting point."""
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
        """Allow handles to be made (again)."""
        self._closed = False

    def close_all(self) -> None:
        """Refuse every batch and every new handle from now on."""
        self._closed = True
        for handle in self._open.values():
            handle.closed = True
        self._open.clear()


@dataclass(slots=True)
class _Entry:
    handle: Handle
    batch: Batch
    done: asyncio.Future[None]
    refused: StoreError | None
    answered: bool = False

    def answer(self, error: StoreError | None) -> None:
        """Answer once. A caller that was cancelled gets no answer, but the handle is settled all the same."""
        self.answered = True
        if not self.done.done():
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)
                self.done.exception()  # nobody need wait for it
        self.handle.answered()


Write = Callable[[Sequence[ActorWrites]], Awaitable[None]]
"""Applies in one durable transaction; a StoreError, or SomeRefused, means nothing was written."""


class Combiner:
    """The one writer for all actors of a provider; transactions run one after another."""

    def __init__(self, write: Write, capabilities: Capabilities) -> None:
        self._write, self._capabilities = write, capabilities
        self._waiting: deque[_Entry] = deque()
        self._under_way: list[_Entry] = []
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
        self._now: Callable[[], float]  # the loop's own time, which is what a simulation says it is
        self._commits = self._batches = self._puts = self._deletes = self._failed = 0
        self._commit_s, self._batches_each = Histogram(COMMIT_EDGES_S), Histogram(BATCH_EDGES)
        self._uncounted: list[tuple[float, int]] = []  # seconds and batches of transactions

    def stats(self) -> StoreStats:
        self._count_uncounted()
        return StoreStats(
            self._commits, self._batches, self._puts, self._deletes, self._failed,
            commit_s=self._commit_s, batches_each=self._batches_each,
        )  # fmt: skip

    def submit(self, handle: Handle, batch: Batch) -> asyncio.Future[None]:
        """Enqueue a batch; the answer is done when it is durable. Call order is commit order."""
        loop = asyncio.get_running_loop()
        entry = _Entry(handle, batch, loop.create_future(), self._refusal(handle, batch))
        handle.pending += 1
        if entry.refused is not None and handle.pending == 1:
            self._fail(entry, entry.refused)
            return entry.done
        # A refused batch waits too: earlier batches that are under way are answered first.
        self._waiting.append(entry)
        if self._task is None:
            if loop is not self._loop:
                self._loop, self._begin, self._now = loop, task_maker(loop), loop.time
            self._task = self._begin(self._run())
        return entry.done

    def _refusal(self, handle: Handle, batch: Batch) -> StoreError | None:
        if handle.failed is not None:
            return handle.failed
        if handle.closed:
            return StoreClosed(f"{handle.name} was closed, or opened anew elsewhere")
        if batch.within is not self._capabilities and (reason := check_batch(batch, self._capabilities)) is not None:
            return StoreTooLarge(f"{handle.name}: {reason}")
        return None

    async def give_up(self) -> None:
        """Stop at once and fail every commit that waits: whether the one under way is in the store stays unknown."""
        while (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    async def drain(self) -> None:
        """Wait until no commit is under way."""
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
        """Answer all who wait when the event loop ends before the writer does: no answer can come any more."""
        for entry in (*self._under_way, *self._waiting):
            if not entry.answered:
                entry.done.cancel()
                self._fail(entry, StoreClosed("the event loop ended during a commit"))
        self._under_way = []
        self._waiting.clear()

    def _take(self) -> list[_Entry]:
        """Take as many batches as fit one transaction."""
        group: list[_Entry] = []
        keys = size = 0
        while self._waiting:
            entry = self._waiting[0]
            if entry.refused is None:
                keys += len(entry.batch.puts) + len(entry.batch.deletes)
                size += entry.batch.size
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
        while sound and (error := await self._attempt(sound)) is not None:
            if not isinstance(error, SomeRefused):
                await self._one_by_one(sound, error)
                break
            sound = self._without(sound, error)
        for entry in refused:  # answered last: what came before them is answered by now
            self._fail(entry, entry.refused)

    def _without(self, group: Sequence[_Entry], refused: SomeRefused) -> list[_Entry]:
        """Fail those of the group that were refused, and return the others: nothing is wrong with them."""
        for entry in group:
            if (error := refused.errors.get(entry.handle.name)) is not None:
                self._fail(entry, error)
        return [entry for entry in group if not entry.answered]

    async def _one_by_one(self, group: Sequence[_Entry], error: StoreError) -> None:
        """Try each batch alone, so that one actor's bad batch breaks nobody else's commit."""
        if len(group) == 1:
            self._fail(group[0], error)
            return
        hopeless: StoreError | None = None
        for entry in group:
            alone = entry.handle.failed or hopeless or await self._attempt([entry])
            if alone is None:
                continue
            if isinstance(alone, SomeRefused):
                self._without([entry], alone)
                continue
            if entry.handle.failed is None and isinstance(alone, STORE_WIDE) and type(alone) is type(error):
                hopeless = alone  # each further attempt may cost a timeout of its own
            self._fail(entry, alone)

    async def _attempt(self, group: Sequence[_Entry]) -> StoreError | SomeRefused | None:
        """Write one transaction; if it succeeds, all of the group have their answers."""
        merged: dict[Handle, ActorWrites] = {}
        for entry in group:
            writes = merged.get(entry.handle)
            if writes is None:
                writes = merged[entry.handle] = ActorWrites(entry.handle.name)
            writes.add(entry.batch)
        began = self._now()
        try:
            await self._write(list(merged.values()))
        except StoreError as error:
            return error
        except SomeRefused as error:
            if not error.errors.keys() & {handle.name for handle in merged}:
                return StoreError(f"the store refused actors that are not of this commit: {sorted(error.errors)}")
            return error
        except Exception as error:
            # Whatever an engine raises, callers receive an error of the store.
            wrapped = StoreError(f"the store failed: {error!r}")
            wrapped.__cause__ = error
            return wrapped
        self._uncounted.append((self._now() - began, len(group)))
        self._count(merged.values(), len(group))
        for entry in group:
            entry.answer(None)
        return None

    def _fail(self, entry: _Entry, error: StoreError | None) -> None:
        """Fail it and, by rule 3 of the seam, every later batch of this handle with the same error."""
        entry.handle.failed = entry.handle.failed or error
        self._failed += 1
        entry.answer(entry.handle.failed)

    def _count(self, writes: Iterable[ActorWrites], batches: int) -> None:
        self._commits += 1
        self._batches += batches
        for one in writes:
            deleted = list(one.rows.values()).count(None)
            self._deletes += deleted
            self._puts += len(one.rows) - deleted
        if len(self._uncounted) >= MOST_UNCOUNTED:
            self._count_uncounted()

    def _count_uncounted(self) -> None:
        observe([seconds for seconds, _ in self._uncounted], self._commit_s)
        observe([batches for _, batches in self._uncounted], self._batches_each)
        self._uncounted.clear()


class Committing:
    """The writing half of an `OrderedStore`, for every engine that commits through a combiner."""

    def __init__(self, combiner: Combiner, handles: Handles, handle: Handle) -> None:
        self._combiner, self._handles, self._handle = combiner, handles, handle

    def commit(self, batch: Batch) -> asyncio.Future[None]:
        return self._combiner.submit(self._handle, batch)

    async def close(self) -> None:
        await self._handles.close(self._handle)
