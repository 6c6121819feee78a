"""A line and its streams: which jobs of one pool and queue wait, by priority, and when the first of them is due."""

from __future__ import annotations

from tocsin.actors.scheduler.model.rows import LinesRow, stream_prefix

PRIORITY_MS = 30_000


class PriorityBucket:
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
        self.streams: dict[int, PriorityBucket] = {}

    @property
    def count(self) -> int:
        return sum(stream.count for stream in self.streams.values())

    def row(self) -> LinesRow:
        return LinesRow({s.priority: (s.count, s.first_due) for s in self.streams.values() if s.count})
