"""Memory of what waits: which lines have jobs, when the first of each is due, and which may start.

A line is named by pool and queue. Inside it each priority is a bucket, ordered by due time. The first job of a bucket
stands in a `ReadyHeap`: there is one for callbacks, where all are in one order, and one for pulled work, where each
queue has an order of its own and queues take turns. A line whose pool is full or paused stands in neither: it costs
nothing until its pool changes.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import count
from typing import Final, NamedTuple

from tocsin.actors.scheduler.model.rows import LinesRow, PoolRow, stream_prefix
from tocsin.actors.scheduler.model.suspects import level_in, plain

PRIORITY_MS: Final = 30_000
LineName = tuple[str, str]
NO_LEVELS: Final[Set[int]] = frozenset()


class PriorityBucket:
    """The waiting jobs of one priority in one line."""

    __slots__ = ("count", "first_due", "line", "prefix", "priority", "serial")

    def __init__(self, line: Line, priority: int) -> None:
        self.line = line
        self.priority = priority
        self.prefix = stream_prefix(line.pool, line.queue, priority)
        self.count = 0
        self.first_due = 0  # while count: no row of the stream is due earlier
        self.serial = 0  # of its one valid heap entry

    @property
    def order(self) -> int:
        """What decides who starts first."""
        return self.first_due - self.priority * PRIORITY_MS


class Line:
    """The waiting jobs of one pool and queue, by priority."""

    __slots__ = ("pool", "queue", "streams")

    def __init__(self, pool: str, queue: str) -> None:
        self.pool = pool
        self.queue = queue
        self.streams: dict[int, PriorityBucket] = {}

    def row(self) -> LinesRow | None:
        """The summary as it is stored; None if nothing waits."""
        waiting = {s.priority: (s.count, s.first_due) for s in self.streams.values() if s.count}
        return LinesRow(waiting) if waiting else None


Entry = tuple[int, int, PriorityBucket]
Others = Callable[[PriorityBucket], bool]


class ReadyHeap:
    """Each stream has at most one valid entry, known by its serial; others are stale and dropped when met."""

    def __init__(self, may_start: Callable[[Line], bool], room: Callable[[str], int | None]) -> None:
        self._may_start, self._room = may_start, room
        self._future: list[Entry] = []
        self._ready: dict[str, list[Entry]] = {}  # by queue
        self._turns: OrderedDict[str, int] = OrderedDict()  # by queue: when it had its last one, or came; in that order
        self._turn = count(1)
        self._serial = count(1)
        self._compact_at = 1_000

    def enter(self, stream: PriorityBucket) -> None:
        """Give the stream its one valid place, if it may start at all."""
        stream.serial = 0
        if self._may_start(stream.line):
            stream.serial = next(self._serial)
            heapq.heappush(self._future, (stream.first_due, stream.serial, stream))
            if len(self._future) > self._compact_at:
                self._compact()

    def any_ready(self, now: int, queue: str) -> bool:
        """Whether a due job of the queue may start."""
        self._promote_due(now)
        return self._is_ready(queue)

    def ready_queues(self, now: int) -> Iterator[str]:
        """Queues with a due job that may start, the one whose turn it is first. There may be many, so none is looked at
        before it is asked for; turns are taken behind that."""
        self._promote_due(now)
        return (queue for queue in self._turns if self._is_ready(queue))

    def ready_of(self, now: int, queues: Sequence[str]) -> list[str]:
        """Those of these queues, in the same order."""
        self._promote_due(now)
        return sorted(filter(self._is_ready, queues), key=self._turns.__getitem__)

    def had_turn(self, queue: str) -> None:
        """The others come first now."""
        self._turns[queue] = next(self._turn)
        self._turns.move_to_end(queue)

    def forget(self, queue: str) -> None:
        """Nothing waits in it: it comes as a new one, behind the others."""
        self._turns.pop(queue, None)

    def next_due(self, now: int) -> int | None:
        """When the first future head that may start is due."""
        self._promote_due(now)
        stream = self._peek(self._future)
        return None if stream is None else stream.first_due

    def pick(
        self, now: int, queue: str, most: int, of_pool: Counter[str], after_others: Others | None = None
    ) -> list[PriorityBucket]:
        """Take up to `most` due streams that may start, in start order. Give each back with `enter`.

        Of one pool no more streams than it has slots (`of_pool` counts): its first jobs stand in those, and others need
        the rest. `after_others` says of which streams others come first.
        """
        self._promote_due(now)
        ready = self._ready.get(queue, [])
        picked: list[PriorityBucket] = []
        passed: list[Entry] = []
        while ready and len(picked) < most:
            entry = heapq.heappop(ready)
            _, serial, stream = entry
            if serial != stream.serial or not stream.count:
                continue
            if after_others is not None and after_others(stream):
                passed.append(entry)
                continue
            room = self._room(stream.line.pool)
            if room is not None and room and of_pool[stream.line.pool] >= room:
                passed.append(entry)
                continue
            stream.serial = 0
            if self._may_start(stream.line):
                picked.append(stream)
                of_pool[stream.line.pool] += 1
        for entry in passed:
            heapq.heappush(ready, entry)
        return picked

    def _is_ready(self, queue: str) -> bool:
        heap = self._ready.get(queue)
        if heap is None or self._peek(heap) is None:
            self._ready.pop(queue, None)
            return False
        return True

    def _promote_due(self, now: int) -> None:
        while self._future and self._future[0][0] <= now:
            _, serial, stream = heapq.heappop(self._future)
            if serial == stream.serial and stream.count:
                queue = stream.line.queue
                heapq.heappush(self._ready.setdefault(queue, []), (stream.order, serial, stream))
                if queue not in self._turns:
                    self._turns[queue] = next(self._turn)

    def _peek(self, heap: list[Entry]) -> PriorityBucket | None:
        while heap:
            _, serial, stream = heap[0]
            if serial == stream.serial and stream.count:
                if self._may_start(stream.line):
                    return stream
                stream.serial = 0
            heapq.heappop(heap)
        return None

    def _compact(self) -> None:
        """Heads that moved leave stale entries behind; drop them before they outgrow the lines."""
        self._future = [entry for entry in self._future if entry[1] == entry[2].serial]
        heapq.heapify(self._future)
        self._compact_at = 2 * len(self._future) + 1_000


def slots_left(pool: PoolRow | None, held: int) -> int:
    """How many more jobs of a pool may start; what is there of it says its row, if it has one."""
    row = PoolRow(1) if pool is None else pool
    return 0 if row.paused else max(row.cap - held, 0)


class Outlook(NamedTuple):
    """Which callbacks may start at an instant, as far as pools and pauses allow."""

    ready: bool
    """A due callback may start."""
    suspects: Set[int]
    """The levels of suspects of which a due callback may start."""
    next_due: int | None
    """When the first future callback is due, suspects included."""


class JobQueues:
    """All lines of one scheduler, and the fill of its pools."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolRow] = {}
        self.holders: Counter[str] = Counter()
        self.touched: set[LineName] = set()
        self.paused = False  # the whole instance
        self.in_queue: Counter[str] = Counter()
        """How many jobs wait in each queue, those of the future too."""
        self.headless: dict[bytes, PriorityBucket] = {}
        """Buckets whose first job was removed, by prefix: the next one must be looked up when the turn closes."""
        self._lines: dict[LineName, Line] = {}
        self._of_pool: dict[str, dict[LineName, None]] = {}
        self._suspects: dict[LineName, int] = {}  # lines of callbacks that are kept apart, and their levels
        self._called = ReadyHeap(self.may_start, self.room)
        self.pulled = ReadyHeap(self.may_start, self.room)

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines.values())

    # ---- What waits ------------------------------------------------------------------------------

    def load(self, name: LineName, row: LinesRow) -> None:
        line = self._line(name)
        for priority, (waiting, first_due) in row.streams.items():
            stream = line.streams[priority] = PriorityBucket(line, priority)
            stream.count, stream.first_due = waiting, first_due
            self.in_queue[name[1]] += waiting
            self._enter(stream)

    def add(self, pool: str, queue: str, priority: int, due: int) -> None:
        line = self._line((pool, queue))
        stream = line.streams.get(priority)
        if stream is None:
            stream = line.streams[priority] = PriorityBucket(line, priority)
        stream.count += 1
        self.in_queue[queue] += 1
        if stream.count == 1 or due < stream.first_due:
            stream.first_due = due
            self._enter(stream)
        self.touched.add((pool, queue))

    def remove(self, pool: str, queue: str, priority: int, due: int) -> None:
        """One job fewer."""
        stream = self._lines[pool, queue].streams[priority]
        stream.count -= 1
        self.in_queue[queue] -= 1
        if not self.in_queue[queue]:
            del self.in_queue[queue]
            self.pulled.forget(queue)
        self.touched.add((pool, queue))
        if stream.count and due == stream.first_due:
            self.headless[stream.prefix] = stream

    def set_head(self, stream: PriorityBucket, due: int) -> None:
        """Say when the first job of the bucket is due."""
        if self.headless:
            self.headless.pop(stream.prefix, None)
        stream.first_due = due
        self._enter(stream)

    def take_headless(self) -> list[PriorityBucket]:
        """Take the buckets whose first job must be looked up."""
        taken, self.headless = list(self.headless.values()), {}
        return taken

    def sealed(self) -> list[tuple[LineName, LinesRow | None]]:
        """Return the lines that changed since the last call, each with its row, or None if it is empty now."""
        rows: list[tuple[LineName, LinesRow | None]] = []
        for name in sorted(self.touched):
            line = self._lines[name]
            row = line.row()
            if row is None:
                del self._lines[name]
                self._suspects.pop(name, None)
                names = self._of_pool[line.pool]
                names.pop(name, None)
                if not names:
                    del self._of_pool[line.pool]
            rows.append((name, row))
        self.touched.clear()
        return rows

    def _line(self, name: LineName) -> Line:
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(*name)
            if line.queue and not plain(line.queue):
                self._suspects[name] = level_in(line.queue)
            self._of_pool.setdefault(line.pool, {})[name] = None
        return line

    # ---- What may start --------------------------------------------------------------------------

    def room(self, pool: str) -> int | None:
        """How many more of this pool may start; None: no bound."""
        if not pool:
            return None
        return slots_left(self.pools.get(pool), self.holders[pool])

    def may_start(self, line: Line) -> bool:
        return not self.paused and (not line.pool or self.room(line.pool) != 0)

    def hold(self, pool: str) -> None:
        """Take a slot of the pool."""
        self.holders[pool] += 1

    def release(self, pool: str) -> None:
        """Give a slot of the pool back."""
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
        lines = (self._lines[name] for name in self._of_pool.get(pool, ()))
        return sum(stream.count for line in lines for stream in line.streams.values())

    def pool_changed(self, pool: str) -> None:
        """A slot, the cap or the pause changed: its waiting heads may stand in a heap again."""
        for name in self._of_pool.get(pool, ()):
            for stream in self._lines[name].streams.values():
                if stream.count and not stream.serial:
                    self._enter(stream)

    def pick(self, now: int, most: int) -> list[PriorityBucket]:
        """Take up to `most` due streams of callbacks that may start, in start order. Give each back with `set_head`."""
        return self._called.pick(now, "", most, Counter())

    def callback_first(self, stream: PriorityBucket, now: int) -> bool:
        """Whether a callback of the same pool stands before this stream of pulled jobs: they share its slots."""
        for name in self._of_pool.get(stream.line.pool, ()) if stream.line.pool else ():
            if plain(name[1]):
                continue
            for other in self._lines[name].streams.values():
                stands = other.count and (other.serial or name in self._suspects)
                if stands and other.first_due <= now and other.order < stream.order:
                    return True
        return False

    def outlook(self, now: int) -> Outlook:
        """Say which callbacks may start now, and when the next one is due."""
        ready, head = self._called.any_ready(now, ""), self._called.next_due(now)
        if not self._suspects:
            return Outlook(ready, NO_LEVELS, head)
        apart = list(self._kept_apart(None))
        levels = {self._suspects[one.line.pool, one.line.queue] for one in apart if one.first_due <= now}
        later = [one.first_due for one in apart if one.first_due > now]
        return Outlook(ready, levels, min(later if head is None else [*later, head], default=None))

    def suspects_ready(self, now: int, level: int) -> list[PriorityBucket]:
        """Where due callbacks of suspects of this level wait that may start; the first in order first."""
        due = [stream for stream in self._kept_apart(level) if stream.first_due <= now]
        return sorted(due, key=lambda stream: stream.order)

    def _kept_apart(self, wanted: int | None) -> Iterator[PriorityBucket]:
        for name, level in self._suspects.items():
            line = self._lines[name]
            if wanted in (None, level) and self.may_start(line):
                yield from (stream for stream in line.streams.values() if stream.count)

    def _enter(self, stream: PriorityBucket) -> None:
        """Callbacks of suspects stand in neither: `suspects_ready` finds them."""
        name = stream.line.pool, stream.line.queue
        if name not in self._suspects:
            (self.pulled if stream.line.queue else self._called).enter(stream)
