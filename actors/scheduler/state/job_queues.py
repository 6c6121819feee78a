"""Memory of the lines: which streams have waiting jobs, when their heads are due, and which may start.

A line is named by pool and queue; inside it each priority is a *stream* ordered by due time. Heads stand in `heads`,
apart for callbacks and pulled work. A line whose pool is full or paused stands in none: it costs nothing until its pool
changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tocsin.actors.scheduler.model.rows import LinesRow, PoolRow
from tocsin.actors.scheduler.model.suspects import level_in, plain
from tocsin.actors.scheduler.state.line import Line, PriorityBucket
from tocsin.actors.scheduler.state.ready_heap import ReadyHeap

LineName = tuple[str, str]


def slots_left(pool: PoolRow | None, held: int) -> int:
    """How many more jobs of a pool may start; what is there of it says its row, if it has one."""
    row = PoolRow(1) if pool is None else pool
    return 0 if row.paused else max(row.cap - held, 0)


class JobQueues:
    """All lines of one scheduler, and the fill of its pools."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolRow] = {}
        self.holders: Counter[str] = Counter()
        self.touched: set[LineName] = set()
        self.paused = False  # the whole instance
        self.in_queue: Counter[str] = Counter()
        """How many jobs wait in each queue, those of the future too."""
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

    def remove(self, pool: str, queue: str, priority: int, due: int) -> PriorityBucket | None:
        """One job fewer. The stream, if its head is no longer known: then call `set_head`."""
        stream = self._lines[pool, queue].streams[priority]
        stream.count -= 1
        self.in_queue[queue] -= 1
        if not self.in_queue[queue]:
            del self.in_queue[queue]
            self.pulled.forget(queue)
        self.touched.add((pool, queue))
        return stream if stream.count and due == stream.first_due else None

    def set_head(self, stream: PriorityBucket, due: int) -> None:
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
                self._suspects.pop(name, None)
                names = self._of_pool[line.pool]
                names.pop(name, None)
                if not names:
                    del self._of_pool[line.pool]
                yield name, None

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
        return not self.paused and self.room(line.pool) != 0

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

    def suspects_ready(self, now: int, level: int | None = None) -> list[PriorityBucket]:
        """Where due callbacks of suspects of this level, or any, wait that may start; the first in order first."""
        if not self._suspects:
            return []  # as in nearly every turn, which asks several times
        due = [stream for stream in self._kept_apart(level) if stream.first_due <= now]
        return sorted(due, key=lambda stream: stream.order)

    def suspects_due(self, now: int) -> int | None:
        """When the first future head of suspects is due."""
        if not self._suspects:
            return None
        return min((stream.first_due for stream in self._kept_apart(None) if stream.first_due > now), default=None)

    def _kept_apart(self, wanted: int | None) -> Iterator[PriorityBucket]:
        for name, level in self._suspects.items():
            line = self._lines[name]
            if wanted in (None, level) and self.may_start(line):
                yield from (stream for stream in line.streams.values() if stream.count)

    def any_ready(self, now: int) -> bool:
        """Whether a due callback may start."""
        return self._called.any_ready(now, "")

    def next_due(self, now: int) -> int | None:
        """When the first future callback that may start is due."""
        return self._called.next_due(now)

    def _enter(self, stream: PriorityBucket) -> None:
        """Callbacks of suspects stand in neither: `suspects_ready` finds them."""
        name = stream.line.pool, stream.line.queue
        if name not in self._suspects:
            (self.pulled if stream.line.queue else self._called).enter(stream)
