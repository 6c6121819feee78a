"""Memory of the lines: which streams have waiting jobs, when their heads are due, and which may start.

A line is named by pool and queue; inside it each priority is a *stream* ordered by due time. Future heads
wait in one heap by due, due heads in another by start order (due - priority x 30 s). A line whose pool is
full or paused stands in neither: it costs nothing until its pool changes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from itertools import count

from tocsin.actors.scheduler.rows import LinesRow, PoolRow, stream_prefix

PRIORITY_MS = 30_000
ALONE = "~"
"""The queue of jobs that have lost two hosts: they start only while nothing else runs. No user's queue is named so."""
LineName = tuple[str, str]


class Stream:
    """The waiting jobs of one priority in one line."""

    __slots__ = ("count", "first_due", "line", "priority", "serial")

    def __init__(self, line: Line, priority: int) -> None:
        self.line = line
        self.priority = priority
        self.count = 0
        self.first_due = 0  # while count: no row of the stream is due earlier
        self.serial = 0  # of its one valid heap entry

    @property
    def order(self) -> int:
        return self.first_due - self.priority * PRIORITY_MS

    @property
    def prefix(self) -> bytes:
        return stream_prefix(self.line.pool, self.line.queue, self.priority)


class Line:
    __slots__ = ("pool", "queue", "streams")

    def __init__(self, pool: str, queue: str) -> None:
        self.pool = pool
        self.queue = queue
        self.streams: dict[int, Stream] = {}

    @property
    def count(self) -> int:
        return sum(stream.count for stream in self.streams.values())

    def row(self) -> LinesRow:
        return LinesRow({s.priority: (s.count, s.first_due) for s in self.streams.values() if s.count})


class Lines:
    """All lines of one scheduler, and the fill of its pools."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolRow] = {}
        self.holders: Counter[str] = Counter()
        self.touched: set[LineName] = set()
        self.paused = False  # the whole instance
        self._lines: dict[LineName, Line] = {}
        self._of_pool: dict[str, set[LineName]] = {}
        self._alone_lines: set[LineName] = set()
        self._future: list[tuple[int, int, Stream]] = []
        self._ready: list[tuple[int, int, Stream]] = []
        self._serial = count(1)
        self._compact_at = 1_000

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines.values())

    # ---- What waits ------------------------------------------------------------------------------

    def load(self, name: LineName, row: LinesRow) -> None:
        line = self._line(name)
        for priority, (waiting, first_due) in row.streams.items():
            stream = line.streams[priority] = Stream(line, priority)
            stream.count, stream.first_due = waiting, first_due
            self._enter(stream)

    def add(self, pool: str, queue: str, priority: int, due: int) -> None:
        line = self._line((pool, queue))
        stream = line.streams.get(priority)
        if stream is None:
            stream = line.streams[priority] = Stream(line, priority)
        stream.count += 1
        if stream.count == 1 or due < stream.first_due:
            stream.first_due = due
            self._enter(stream)
        self.touched.add((pool, queue))

    def remove(self, pool: str, queue: str, priority: int, due: int) -> Stream | None:
        """One job fewer. The stream, if its head is no longer known: then call `set_head`."""
        stream = self._lines[pool, queue].streams[priority]
        stream.count -= 1
        self.touched.add((pool, queue))
        return stream if stream.count and due == stream.first_due else None

    def set_head(self, stream: Stream, due: int) -> None:
        stream.first_due = due
        self._enter(stream)

    def sealed(self) -> Iterator[tuple[LineName, LinesRow | None]]:
        """The lines that changed since the last call, each with its row, or None if it is empty now."""
        touched, self.touched = self.touched, set()
        for name in sorted(touched):
            line = self._lines[name]
            if line.count:
                yield name, line.row()
            else:
                del self._lines[name]
                self._alone_lines.discard(name)
                names = self._of_pool[line.pool]
                names.discard(name)
                if not names:
                    del self._of_pool[line.pool]
                yield name, None

    def _line(self, name: LineName) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(*name)
            if line.queue == ALONE:
                self._alone_lines.add(name)
            self._of_pool.setdefault(line.pool, set()).add(name)
        return line

    # ---- What may start --------------------------------------------------------------------------

    def room(self, pool: str) -> int | None:
        """How many more of this pool may start; None: no bound."""
        if not pool:
            return None
        row = self.pools.get(pool)
        if row is None:
            return max(1 - self.holders[pool], 0)
        return 0 if row.paused else max(row.cap - self.holders[pool], 0)

    def may_start(self, line: Line) -> bool:
        """Queued jobs are pulled, not started here."""
        return not self.paused and not line.queue and self.room(line.pool) != 0

    def hold(self, pool: str) -> None:
        if pool:
            self.holders[pool] += 1

    def release(self, pool: str) -> None:
        if pool:
            self.holders[pool] -= 1
            if not self.holders[pool]:
                del self.holders[pool]
            self.pool_changed(pool)

    def pause(self, paused: bool) -> None:
        """Stop or start all firing."""
        self.paused = paused
        for pool in list(self._of_pool):
            self.pool_changed(pool)

    def queued(self, pool: str) -> int:
        """How many jobs of a pool wait."""
        return sum(self._lines[name].count for name in self._of_pool.get(pool, ()))

    def pool_changed(self, pool: str) -> None:
        """A slot, the cap or the pause changed: its waiting heads may stand in a heap again."""
        for name in self._of_pool.get(pool, ()):
            for stream in self._lines[name].streams.values():
                if stream.count and not stream.serial:
                    self._enter(stream)

    def pick(self, now: int, most: int) -> list[Stream]:
        """Take up to `most` due streams that may start, in start order. Give each back with `set_head`.

        Of one pool no more streams than it has slots: its first jobs stand in those, and others need the rest.
        """
        self._ripen(now)
        picked: list[Stream] = []
        of_pool: Counter[str] = Counter()
        passed: list[tuple[int, int, Stream]] = []
        while self._ready and len(picked) < most:
            entry = heapq.heappop(self._ready)
            _, serial, stream = entry
            if serial != stream.serial or not stream.count:
                continue
            room = self.room(stream.line.pool)
            if room is not None and room and of_pool[stream.line.pool] >= room:
                passed.append(entry)
                continue
            stream.serial = 0
            if self.may_start(stream.line):
                picked.append(stream)
                of_pool[stream.line.pool] += 1
        for entry in passed:
            heapq.heappush(self._ready, entry)
        return picked

    def alone_ready(self, now: int) -> Stream | None:
        """The due job first in order that must start alone, if its pool has room."""
        due = [stream for stream in self._alone() if stream.first_due <= now]
        return min(due, key=lambda stream: stream.order, default=None)

    def alone_due(self, now: int) -> int | None:
        """When the first future head that must start alone is due."""
        return min((stream.first_due for stream in self._alone() if stream.first_due > now), default=None)

    def _alone(self) -> Iterator[Stream]:
        for name in self._alone_lines:
            line = self._lines[name]
            if not self.paused and self.room(line.pool) != 0:
                yield from (stream for stream in line.streams.values() if stream.count)

    def any_ready(self, now: int) -> bool:
        """Whether a due job may start."""
        self._ripen(now)
        return self._peek(self._ready) is not None

    def next_due(self, now: int) -> int | None:
        """When the first future head that may start is due."""
        self._ripen(now)
        stream = self._peek(self._future)
        return None if stream is None else stream.first_due

    def _enter(self, stream: Stream) -> None:
        """Give the stream its one valid place, if it may start at all."""
        stream.serial = 0
        if self.may_start(stream.line):
            stream.serial = next(self._serial)
            heapq.heappush(self._future, (stream.first_due, stream.serial, stream))
            if len(self._future) > self._compact_at:
                self._compact()

    def _compact(self) -> None:
        """Heads that moved leave stale entries behind; drop them before they outgrow the lines."""
        self._future = [entry for entry in self._future if entry[1] == entry[2].serial]
        heapq.heapify(self._future)
        self._compact_at = 2 * len(self._future) + 1_000

    def _ripen(self, now: int) -> None:
        while self._future and self._future[0][0] <= now:
            _, serial, stream = heapq.heappop(self._future)
            if serial == stream.serial and stream.count:
                heapq.heappush(self._ready, (stream.order, serial, stream))

    def _peek(self, heap: list[tuple[int, int, Stream]]) -> Stream | None:
        while heap:
            _, serial, stream = heap[0]
            if serial == stream.serial and stream.count:
                if self.may_start(stream.line):
                    return stream
                stream.serial = 0
            heapq.heappop(heap)
        return None
