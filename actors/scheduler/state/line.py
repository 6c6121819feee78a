"""Lines of waiting jobs in memory, and their buckets."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from tocsin.actors.scheduler.model.line_names import queue_in, whole
from tocsin.actors.scheduler.model.rows import LinesRow, bucket_prefix

PRIORITY_MS: Final = 30_000


class PriorityBucket:
    """The waiting jobs of one priority in one line."""

    __slots__ = ("count", "first_due", "line", "prefix", "priority", "serial")
    is_rota: ClassVar[Literal[False]] = False

    def __init__(self, line: Line, priority: int) -> None:
        self.line = line
        self.priority = priority
        self.prefix = bucket_prefix(line.pool, line.queue, priority)
        self.count = 0
        self.first_due = 0  # while count: no row of the bucket is due earlier
        self.serial = 0  # of its one valid heap entry

    @property
    def order(self) -> int:
        """Return the place in the start order: each level of priority is worth 30 s."""
        return self.first_due - self.priority * PRIORITY_MS


class Line:
    """The waiting jobs of one pool and queue, by priority."""

    __slots__ = ("base", "buckets", "is_pulled", "pool", "queue")

    def __init__(self, pool: str, queue: str) -> None:
        self.pool = pool
        self.queue = queue
        """The name of the line inside its pool (`line_names`)."""
        self.base = whole(queue)
        """The name without the shard: lines of one base are in one order."""
        self.is_pulled = bool(queue) and bool(queue_in(queue))
        """True for the jobs of workers, False for callbacks."""
        self.buckets: dict[int, PriorityBucket] = {}

    def row(self) -> LinesRow | None:
        """Return the summary as it is stored; None if nothing waits."""
        waiting = {s.priority: (s.count, s.first_due) for s in self.buckets.values() if s.count}
        return LinesRow(waiting) if waiting else None
