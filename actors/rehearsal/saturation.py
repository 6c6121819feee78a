"""How much of a pool is used: for how long it was full, hour by hour, and how long its jobs waited."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tocsin.actors.scheduler.model.rows import PoolRow

HOUR_MS: Final = 3_600_000


class PoolUse:
    """One pool over the time of a rehearsal."""

    def __init__(self, now: int) -> None:
        self.row = PoolRow(1)
        """As it is set; a pool that nobody has set has one slot."""
        self.held = 0
        self.starts = 0
        self.starts_by_hour: Counter[int] = Counter()
        self.full_ms: Counter[int] = Counter()
        """By hour, for how long all of its slots were held."""
        self.late: list[int] = []
        self.waited = 0
        """The longest time that one of its jobs waited after it was due, also of those that have not started."""
        self._seen = now

    @property
    def is_full(self) -> bool:
        """Return whether all slots are held. A pool without slots holds its jobs as a paused one does: it is not
        full."""
        return bool(self.row.cap) and self.held >= self.row.cap

    def set(self, row: PoolRow, now: int) -> None:
        """Note what was set of the pool."""
        self.pass_time(now)
        self.row = row

    def taken(self, now: int, late: int | None) -> None:
        """Note that a slot is taken, by a job that was so late; None: it was held before the rehearsal began."""
        self.pass_time(now)
        self.held += 1
        if late is not None:
            self.starts += 1
            self.starts_by_hour[now // HOUR_MS] += 1
            self.late.append(late)
            self.waited = max(self.waited, late)

    def freed(self, now: int) -> None:
        """Note that a slot is free again."""
        self.pass_time(now)
        self.held -= 1

    def still_waits(self, ms: int) -> None:
        """Note that a job waits at the end, for so long already."""
        self.waited = max(self.waited, ms)

    def pass_time(self, now: int) -> None:
        """Count the time since the last change."""
        start, self._seen = self._seen, now
        while self.is_full and start < now:
            end = min((start // HOUR_MS + 1) * HOUR_MS, now)
            self.full_ms[start // HOUR_MS] += end - start
            start = end
