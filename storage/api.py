"""The storage seam: private ordered key-value maps, one per actor, behind a provider. No engine is imported here.

A provider owns a place where maps live (a file, a server, memory). It hands out one writing handle per
actor (`OrderedStore`), read-only views of committed state (`StoreView`), and says which actors want waking.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from tocsin.errors import StoreError
from tocsin.storage.histogram import Histogram, together

Row = tuple[bytes, bytes]
Range = tuple[bytes, bytes, int]
"""`(start, end, limit)`: keys with `start <= key < end`, at most `limit` of them, ascending."""

MAX_KEY: Final = 1_024
MAX_VALUE: Final = 96 * 1_024
MAX_BATCH_KEYS: Final = 20_000
MAX_BATCH_BYTES: Final = 8 * 1_024 * 1_024
MAX_INSTANT: Final = 2**63 - 1
MAX_SCAN_ROWS: Final = 10_000
MAX_SCAN_BYTES: Final = 16 * 1_024 * 1_024


class Unset(Enum):
    """`UNSET` leaves the stored wake time as it is; `None` would clear it."""

    UNSET = 0


UNSET: Final = Unset.UNSET


@dataclass(slots=True)
class Batch:
    """Changes that become visible and durable together, or not at all. Not to be changed once it is checked.

    A key stands in `puts` or in `deletes`, never in both. `wake_at` is a lower bound (epoch ms) of the next
    instant at which the actor has something to do; it may be earlier than the truth, never later.
    """

    puts: Mapping[bytes, bytes] = field(default_factory=dict)
    deletes: frozenset[bytes] | set[bytes] = frozenset()
    wake_at: int | Unset | None = UNSET
    within: Capabilities | None = field(default=None, init=False, compare=False, repr=False)
    """The limits that `check_batch` found it to keep."""
    size: int = field(default=0, init=False, compare=False, repr=False)
    """Bytes of its keys and values, once it was found to keep the limits."""


@dataclass(frozen=True, slots=True)
class Grant:
    """ "You own this now." `epoch` grows with every change of owner; `owner` is that process's random id."""

    owner: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of an engine. `durable`: a commit that returned survives a crash. `shared`: several hosts at
    once."""

    durable: bool
    shared: bool
    max_key: int = MAX_KEY
    max_value: int = MAX_VALUE
    max_batch_keys: int = MAX_BATCH_KEYS
    max_batch_bytes: int = MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts since the provider started, for benchmarks and `/status`."""

    commits: int
    batches: int
    rows_put: int
    rows_deleted: int
    failed: int
    wal_bytes: int = 0
    """The length of the log in front of the file, for engines that have one."""
    commit_s: Histogram | None = None
    """How long transactions took, for reading."""
    batches_each: Histogram | None = None
    """How many batches each of them held, for reading."""


def summed(each: Sequence[StoreStats]) -> StoreStats:
    """Add up what several have counted; of their logs, the longest."""
    return StoreStats(
        commits=sum(one.commits for one in each),
        batches=sum(one.batches for one in each),
        rows_put=sum(one.rows_put for one in each),
        rows_deleted=sum(one.rows_deleted for one in each),
        failed=sum(one.failed for one in each),
        wal_bytes=max((one.wal_bytes for one in each), default=0),
        commit_s=together(one.commit_s for one in each),
        batches_each=together(one.batches_each for one in each),
    )


@dataclass(frozen=True, slots=True)
class Owned:
    """These actors are ours from now on: `(name, wake_at)` each, in pages. `more`: others follow, which are as well."""

    actors: Sequence[tuple[str, int | None]]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """The actors whose names `covers` accepts are no longer ours; drop their memory without writing back."""

    covers: Callable[[str], bool]
    reason: str


@dataclass(frozen=True, slots=True)
class Leaving:
    """The actors whose names `covers` accepts are to go to another host: begin nothing more for them, let what runs
    end, and then call `left`, once. Until then they are still ours, and their commits are accepted."""

    covers: Callable[[str], bool]
    left: Callable[[], None]


Event = Owned | Lost | Leaving


@runtime_checkable
class StoreView(Protocol):
    """Reads of committed state, from any process, outside any turn."""

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that exist, in one hop from one snapshot. At most MAX_SCAN_ROWS keys."""
        ...

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        """Return one list of rows per range, all from one snapshot, in one hop.

        `reverse` reads each range from its end. Rows are dropped from the tail of the answer once `max_bytes`
        (keys + values, over all ranges together) is passed; at least one row is answered if any matches, so a
        caller that pages always moves on. Ranges after that point come back empty.
        """
        ...

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False, max_bytes: int = MAX_SCAN_BYTES
    ) -> list[Row]:
        """Read one range: see `scan_many`."""
        return (await self.scan_many([(start, end, limit)], max_bytes=max_bytes, reverse=reverse))[0]


@runtime_checkable
class OrderedStore(StoreView, Protocol):
    """One actor's private ordered map, held by its single writer.

    Contract (the conformance suite checks every line on every engine):
    1. Atomic: a commit is applied whole or not at all, also across a crash.
    2. Durable: when a commit is done, it survives a crash of process and system (`Capabilities.durable`).
    3. Ordered: commits of one store apply in call order; a failed one fails every later one of this handle
       with the same error, until the actor is opened anew.
    4. Read your writes: a read started after a commit is done sees it.
    5. Settled: a commit never ends "maybe". After an error nothing of it is in the store, ever.
    6. Keys compare as unsigned bytes.
    """

    name: str
    grant: Grant
    wake_at: int | None
    """The wake time stored when this handle was opened."""

    def commit(self, batch: Batch) -> asyncio.Future[None]:
        """Enqueue the batch; the future is done when it is durable, or raises a StoreError.

        Not a coroutine: call order is commit order, and a second commit may be called before the first is
        done (they then travel to disk together). Cancelling the future does not cancel the commit. Limits are
        checked at the call: a batch over them fails its own future (StoreTooLarge) and, by rule 3, the later ones.
        """
        ...

    async def close(self) -> None:
        """Wait for commits in flight; the actor may then be opened again."""
        ...


@runtime_checkable
class StoreProvider(Protocol):
    """A place where actors' maps live."""

    capabilities: Capabilities
    owner: str
    """This process's random id: the `owner` of every grant."""

    @property
    def full(self) -> bool:
        """Return whether there is no space for new work. What ends work is still written while the reserve lasts."""
        ...

    @property
    def trouble(self) -> StoreError | None:
        """Why new work is neither accepted nor claimed: no space, no access, damage. None if all is well.

        Writes that end work are still tried. The provider itself notices when the trouble has passed."""
        ...

    async def start(self) -> None:
        """Connect, migrate, take ownership. StoreLocked, StoreSchema, StoreCorrupt, StoreUnavailable."""
        ...

    async def stop(self) -> None:
        """Finish commits in flight, then let go of everything. Idempotent."""
        ...

    async def open(self, name: str, *, create: bool = True) -> OrderedStore:
        """Become the writer of an actor.

        Waits until an earlier handle's commits are settled, so a late batch can never land behind a new
        reader; an earlier handle still open is then closed for good (its commits raise StoreClosed).
        `create=False` on an actor that was never written raises KeyError. Opening alone writes nothing and does
        not make an actor exist; its first commit does.
        """
        ...

    def view(self, name: str) -> StoreView:
        """Return a reader of committed state; an actor that does not exist reads as empty."""
        ...

    async def exists(self, name: str) -> bool: ...

    def events(self) -> AsyncIterator[Event]:
        """Yield what is owned at start, in pages; then changes, for engines that have any. Ends at `stop`."""
        ...

    async def names(self, start: str, limit: int) -> list[str]:
        """Return the names of existing actors, in code-point order, strictly after `start`."""
        ...

    def stats(self) -> StoreStats: ...


def after(prefix: bytes) -> bytes:
    """Return the first key behind every key that starts with `prefix`, which must hold a byte below 0xff."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1])


class Scanned(Protocol):
    """A reader of ranges: a view of a store, or an actor's rows as its turn sees them."""

    async def scan(self, start: bytes, end: bytes, *, limit: int) -> list[Row]: ...


async def row_pages(rows: Scanned, start: bytes, end: bytes, limit: int) -> AsyncIterator[list[Row]]:
    """Yield the rows with `start <= key < end`, at most `limit` at a time."""
    while page := await rows.scan(start, end, limit=limit):
        yield page
        start = page[-1][0] + b"\x00"


async def each_row(rows: Scanned, start: bytes, end: bytes, limit: int) -> AsyncIterator[Row]:
    """Yield the rows with `start <= key < end` one by one; they are read in pages of `limit`."""
    async for page in row_pages(rows, start, end, limit):
        for row in page:
            yield row


def check_batch(batch: Batch, capabilities: Capabilities) -> str | None:
    """Say which limit this batch breaks; None if it keeps all of them, which is then noted on the batch."""
    puts, deletes = batch.puts, batch.deletes
    if len(puts) + len(deletes) > capabilities.max_batch_keys:
        return f"a batch of {len(puts) + len(deletes)} keys is over {capabilities.max_batch_keys}"
    keys, values = [*map(len, puts), *map(len, deletes)], [*map(len, puts.values())]
    if keys and (min(keys) < 1 or max(keys) > capabilities.max_key):
        return f"a key of {max(keys) if min(keys) else 0} bytes is outside 1..{capabilities.max_key}"
    if values and (length := max(values)) > capabilities.max_value:
        key = next(key for key, value in puts.items() if len(value) == length)
        return f"the value of {key[:64]!r} has {length} bytes, over {capabilities.max_value}"
    if deletes and (both := puts.keys() & deletes):
        return f"the key {min(both)[:64]!r} is both put and deleted"
    size = sum(keys) + sum(values)
    if size > capabilities.max_batch_bytes:
        return f"a batch of {size} bytes is over {capabilities.max_batch_bytes}"
    if isinstance(batch.wake_at, int) and not -MAX_INSTANT <= batch.wake_at <= MAX_INSTANT:
        return f"the wake time {batch.wake_at} has more than 63 bits"
    batch.within, batch.size = capabilities, size
    return None
