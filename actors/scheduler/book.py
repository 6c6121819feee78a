"""The scheduler's books: every change of a row together with the memory that mirrors it.

The turns (submit, claim, settle, ...) call these; nothing else writes rows. Memory changes with the row, in
the turn: if the turn fails, the runtime drops the actor and memory is read anew (`load`).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Sequence

import msgspec

from tocsin.actors.overlay import ActorStorage
from tocsin.actors.scheduler.lines import Lines, Stream
from tocsin.actors.scheduler.rows import (
    LAYOUT,
    META_COUNTERS,
    META_LAYOUT,
    AtRow,
    BadRow,
    Counters,
    DeadRow,
    JobRow,
    LeaseRow,
    LinesRow,
    PoolRow,
    R,
    args_key,
    at_key,
    bad_key,
    dead_key,
    decode,
    encode,
    job_key,
    lease_key,
    line_key,
    lines_key,
    parked_key,
    pool_key,
    split_lease_key,
    split_line_tail,
    split_lines_key,
    split_timer_key,
    stream_prefix,
    timer_key,
)
from tocsin.errors import StoreSchema
from tocsin.storage.api import after

log = logging.getLogger("tocsin.scheduler")

PAGE = 5_000
EXPIRE = "expire"
Lease = tuple[str, str, LeaseRow]
"""Id, token and row."""


class Book:
    """Rows and memory of one scheduler. Public attributes are for reading."""

    def __init__(self, storage: ActorStorage) -> None:
        self.storage = storage
        self.lines = Lines()
        self.leases: dict[str, tuple[str, LeaseRow]] = {}  # by token
        self.by_id: dict[str, set[str]] = {}  # tokens
        self.counters = Counters()
        self.next_timer: int | None = None  # no timer is earlier
        self._sealed_counters = self.counters
        self._headless: dict[bytes, Stream] = {}  # streams whose first row was removed, by prefix
        self._ends: list[tuple[int, str]] = []  # lease ends, with stale entries

    # ---- Loading ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Memory from rows: one hop for most, a page at a time for many lines."""
        meta = await self.storage.get_many([META_LAYOUT, META_COUNTERS])
        layout = int(meta.get(META_LAYOUT, b"%d" % LAYOUT))
        if layout > LAYOUT:
            raise StoreSchema(
                f"this scheduler was written by a newer tocsin (layout {layout}); this one reads up to {LAYOUT}: "
                "upgrade tocsin, or open the store with the newer one"
            )
        if META_LAYOUT not in meta:
            self.storage.put(META_LAYOUT, b"%d" % LAYOUT)
        if META_COUNTERS in meta:
            self.counters = self._sealed_counters = decode(Counters, META_COUNTERS, meta[META_COUNTERS])
        for key, value in await self._all(b"pool/"):
            if (pool := self.read(PoolRow, key, value)) is not None:
                self.lines.pools[key[5:].decode()] = pool
        for key, value in await self._all(b"lease/"):
            if (lease := self.read(LeaseRow, key, value)) is not None:
                self._remember(*split_lease_key(key), lease)
                self.lines.hold(lease.pool)
        for key, value in await self._all(b"lines/"):
            if (row := self.read(LinesRow, key, value)) is not None:
                self.lines.load(split_lines_key(key), row)
            else:
                await self._recount(*split_lines_key(key))
        await self.look_at_timers()

    async def _all(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        start, end = prefix, after(prefix)
        while True:
            page = await self.storage.scan(start, end, limit=PAGE)
            found.extend(page)
            if len(page) < PAGE:
                return found
            start = page[-1][0] + b"\x00"

    async def _recount(self, pool: str, queue: str) -> None:
        """Rebuild the summary of a line from its own rows; the unreadable one is kept aside."""
        streams: dict[int, tuple[int, int]] = {}
        for key, _ in await self._all(b"line/%b/%b/" % (pool.encode(), queue.encode())):
            priority = 9 - int(key.split(b"/")[3])
            due, _ = split_line_tail(key)
            waiting, first = streams.get(priority, (0, due))
            streams[priority] = (waiting + 1, min(first, due))
        if streams:
            self.lines.load((pool, queue), LinesRow(streams))
            self.lines.touched.add((pool, queue))

    def read(self, kind: type[R], key: bytes, value: bytes) -> R | None:
        """A row, or None after moving an unreadable one aside: it is reported and kept, and stops nobody."""
        try:
            return decode(kind, key, value)
        except BadRow as error:
            log.error("an unreadable row was moved to bad/: %s", error)
            self.storage.put(bad_key(key), value)
            self.storage.delete(key)
            return None

    async def look_at_timers(self) -> None:
        first = await self.storage.scan(b"timer/", after(b"timer/"), limit=1)
        self.next_timer = split_timer_key(first[0][0])[0] if first else None

    # ---- Jobs and lines --------------------------------------------------------------------------

    def put_job(self, job: JobRow, rest_of_args: Sequence[bytes] = ()) -> None:
        self.storage.put(job_key(job.id), encode(job))
        for n, part in enumerate(rest_of_args):
            self.storage.put(args_key(job.id, n), part)
        if job.expires_at is not None:
            self.put_timer(job.expires_at, EXPIRE, job.id)

    def erase_job(self, job: JobRow) -> None:
        """The job and what hangs on it, but for its line, lease or dead row."""
        self.storage.delete(job_key(job.id))
        for n in range(job.args_rows):
            self.storage.delete(args_key(job.id, n))
        if job.expires_at is not None:
            self.storage.delete(timer_key(job.expires_at, EXPIRE, job.id))

    def enter_line(self, job: JobRow, at: AtRow) -> None:
        """Wait. `at` is written only if it says more than the job itself."""
        due = at.next_at
        self.storage.put(line_key(job.pool, job.queue, job.priority, due, job.id), b"")
        if at != AtRow(job.scheduled_for):
            self.storage.put(at_key(job.id), encode(at))
        self.lines.add(job.pool, job.queue, job.priority, due)
        self._count(waiting=1)

    def leave_line(self, job: JobRow, at: AtRow) -> None:
        """Wait no more."""
        self.drop_line(job.pool, job.queue, job.priority, at.next_at, job.id)
        if at != AtRow(job.scheduled_for):
            self.storage.delete(at_key(job.id))

    def drop_line(self, pool: str, queue: str, priority: int, due: int, job_id: str) -> None:
        self.storage.delete(line_key(pool, queue, priority, due, job_id))
        stream = self.lines.remove(pool, queue, priority, due)
        prefix = stream_prefix(pool, queue, priority)
        if stream is not None:
            self._headless[prefix] = stream
        self._count(waiting=-1)

    def know_head(self, stream: Stream, due: int) -> None:
        """The stream's first row is known without looking it up."""
        self._headless.pop(stream.prefix, None)
        self.lines.set_head(stream, due)

    def lose_head(self, stream: Stream) -> None:
        """The stream's first row must be looked up when the turn closes."""
        self._headless[stream.prefix] = stream

    # ---- Leases ----------------------------------------------------------------------------------

    def put_lease(self, job_id: str, token: str, lease: LeaseRow) -> None:
        self.storage.put(lease_key(job_id, token), encode(lease))
        self._remember(job_id, token, lease)
        self.lines.hold(lease.pool)
        self._count(leased=1)

    def change_lease(self, token: str, **changes: object) -> LeaseRow:
        """Rewrite in place: extended, of another kind, or orphaned."""
        job_id, old = self.leases[token]
        new = msgspec.structs.replace(old, **changes)
        self.storage.put(lease_key(job_id, token), encode(new))
        self.leases[token] = (job_id, new)
        heapq.heappush(self._ends, (new.until, token))
        if new.orphan and not old.orphan:
            self._count(leased=-1, orphaned=1)
        return new

    def drop_lease(self, token: str) -> Lease:
        job_id, lease = self.leases.pop(token)
        tokens = self.by_id[job_id]
        tokens.discard(token)
        if not tokens:
            del self.by_id[job_id]
        self.storage.delete(lease_key(job_id, token))
        self.lines.release(lease.pool)
        self._count(**({"orphaned": -1} if lease.orphan else {"leased": -1}))
        return job_id, token, lease

    def lease_of(self, job_id: str) -> str | None:
        """The token of the attempt that runs this job, not of one whose job was cancelled."""
        for token in self.by_id.get(job_id, ()):
            if not self.leases[token][1].orphan:
                return token
        return None

    def first_end(self) -> tuple[int, str] | None:
        """The lease that ends first."""
        while self._ends:
            until, token = self._ends[0]
            lease = self.leases.get(token)
            if lease is not None and lease[1].until == until:
                return until, token
            heapq.heappop(self._ends)
        return None

    def ended(self, horizon: int) -> list[str]:
        """Take the tokens of leases that end at or before `horizon`; each must then be dropped or changed."""
        tokens: list[str] = []
        while (first := self.first_end()) is not None and first[0] <= horizon:
            heapq.heappop(self._ends)
            if first[1] not in tokens:
                tokens.append(first[1])
        return tokens

    def remember_end(self, token: str) -> None:
        """Put back what `ended` took."""
        heapq.heappush(self._ends, (self.leases[token][1].until, token))

    def _remember(self, job_id: str, token: str, lease: LeaseRow) -> None:
        self.leases[token] = (job_id, lease)
        self.by_id.setdefault(job_id, set()).add(token)
        heapq.heappush(self._ends, (lease.until, token))

    # ---- Dead letters, timers, pools -------------------------------------------------------------

    def park(self, job_id: str, dead: DeadRow) -> None:
        self.storage.put(dead_key(job_id), encode(dead))
        self.storage.put(parked_key(dead.parked_at, job_id), b"")
        self._count(dead=1)

    def unpark(self, job_id: str, dead: DeadRow) -> None:
        self.storage.delete(dead_key(job_id))
        self.storage.delete(parked_key(dead.parked_at, job_id))
        self._count(dead=-1)

    def put_timer(self, ms: int, kind: str, key: str) -> None:
        self.storage.put(timer_key(ms, kind, key), b"")
        if self.next_timer is None or ms < self.next_timer:
            self.next_timer = ms

    def put_pool(self, name: str, row: PoolRow) -> None:
        self.storage.put(pool_key(name), encode(row))
        self.lines.pools[name] = row
        self.lines.pool_changed(name)

    # ---- Counting and closing --------------------------------------------------------------------

    def _count(self, **changes: int) -> None:
        now = self.counters
        self.counters = msgspec.structs.replace(
            now, **{name: getattr(now, name) + change for name, change in changes.items()}
        )

    def count_done(self) -> None:
        self._count(done=1)

    def count_expired(self) -> None:
        self._count(expired=1)

    async def close(self) -> None:
        """Last thing in every turn: find unknown heads (one hop), write the summaries that changed."""
        if self._headless:
            streams = list(self._headless.values())
            self._headless = {}
            ranges = [(s.prefix + b"%015d/" % s.first_due, after(s.prefix), 1) for s in streams]
            for stream, rows in zip(streams, await self.storage.scan_many(ranges), strict=True):
                if stream.count and rows:
                    self.lines.set_head(stream, split_line_tail(rows[0][0])[0])
        for (pool, queue), row in self.lines.sealed():
            if row is None:
                self.storage.delete(lines_key(pool, queue))
            else:
                self.storage.put(lines_key(pool, queue), encode(row))
        if self.counters != self._sealed_counters:
            self.storage.put(META_COUNTERS, encode(self.counters))
            self._sealed_counters = self.counters
