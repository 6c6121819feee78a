"""The rota of a fair pool: its lines by shard key, and whose turn it is.

A rota stands among other lines in the start order where the first of its jobs would stand, so that fairness inside a
pool takes nothing from other pools. Who goes then is the key that has had the least; of several, the one whose job is
first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import ClassVar, Final, Literal

from tocsin.actors.scheduler.model.line_names import shard_in
from tocsin.actors.scheduler.state.line import Line, PriorityBucket
from tocsin.actors.scheduler.state.shares import Shares

_serials = count(1)
OWED: Final = 1_000
"""So many places of other jobs are remembered at most; what goes beyond costs other pools so many starts."""


class ShardLine(Line):
    """The waiting jobs of one shard key, in a rota."""

    __slots__ = ("rota", "shard", "stands", "was_taken")

    def __init__(self, pool: str, queue: str, rota: Rota) -> None:
        self.pool, self.queue = pool, queue
        self.base, self.is_pulled = rota.line.base, rota.line.is_pulled  # one text for all lines of the rota
        self.buckets = {}
        self.shard = shard_in(queue)
        """The part of its name that stands for the shard key of its jobs."""
        self.rota = rota
        self.stands = 0  # the serial of its valid entry among those who wait for their turn
        self.was_taken = False


class Rota:
    """The lines of one pool and base whose jobs have turns by shard key."""

    __slots__ = (
        "_by_order", "_by_share", "_future", "_held_back", "count", "is_fair", "line", "lines", "looked_at", "order",
        "owed", "serial", "shares", "shift",
    )  # fmt: skip
    is_rota: ClassVar[Literal[True]] = True

    def __init__(self, pool: str, base: str, shares: Shares, held_back: Callable[[ShardLine], bool]) -> None:
        """`held_back` says that as many of a line's key run as may, and wakes the line when one has ended."""
        self.line = Line(pool, base)
        self.shares = shares
        self.lines: dict[str, ShardLine] = {}
        """By shard."""
        self.is_fair = False
        """True while its jobs are to have turns; else they are to be moved."""
        self.count = 0
        """How many jobs wait in its lines."""
        self.serial = 0  # of its valid entries in a `ReadyHeap`
        self.looked_at = 0  # when its valid entry among those of the future comes
        self.order = 0  # where it stands among those that are ready
        self.owed: list[int] = []
        """A heap: the places of jobs that went in the places of earlier ones, whose turn has not come."""
        self.shift = 0  # by which its first job stands later than by itself, since so many places are used up
        self._held_back = held_back
        self._future: list[tuple[int, int, PriorityBucket]] = []
        self._by_order: list[tuple[int, int, PriorityBucket]] = []
        self._by_share: list[tuple[int, int, int, ShardLine]] = []

    # ---- What waits ------------------------------------------------------------------------------

    def enter(self, bucket: PriorityBucket) -> None:
        """Give the bucket its one valid entry, if its key may have a job more."""
        bucket.serial = 0
        line = bucket.line
        assert isinstance(line, ShardLine)
        if not self._held_back(line):
            bucket.serial = next(_serials)
            heapq.heappush(self._future, (bucket.first_due, bucket.serial, bucket))
            if len(self._future) > 1_000 + 4 * len(self.lines):
                self._compact()

    def hold_back(self, line: ShardLine) -> None:
        """Take a line out until its key may have a job more."""
        line.stands, line.was_taken = 0, False
        for bucket in line.buckets.values():
            bucket.serial = 0

    def begin_anew(self, shares: Shares) -> None:
        """Enter all lines by other rules."""
        self._future, self._by_order, self._by_share = [], [], []
        for line in self.lines.values():
            self.shares.went(line.shard)
            shares.came(line.shard)
            self.hold_back(line)
        self.shares = shares
        for line in self.lines.values():
            for bucket in line.buckets.values():
                if bucket.count:
                    self.enter(bucket)

    # ---- Who is next -----------------------------------------------------------------------------

    def promote(self, now: int) -> bool:
        """Let those take part that are due by now; return whether any may start."""
        future = self._future
        while future and future[0][0] <= now:
            _, serial, bucket = heapq.heappop(future)
            if serial == bucket.serial and bucket.count:
                heapq.heappush(self._by_order, (bucket.order, serial, bucket))
                line = bucket.line
                assert isinstance(line, ShardLine)
                if not line.stands:
                    self._stand(line, bucket.order)
        return self.is_ready()

    def is_ready(self) -> bool:
        """Return whether jobs that are due may start; then `order` says where the first of them stands."""
        ready = self._by_order
        while ready:
            order, serial, bucket = ready[0]
            if serial == bucket.serial and bucket.count:
                self.order = self.place_of(order)
                return True
            heapq.heappop(ready)
        return False

    def place_of(self, order: int) -> int:
        """Return where the rota stands among others if its first job is of this order."""
        place = order + self.shift
        return min(place, self.owed[0]) if self.owed else place

    def owes_nothing(self) -> None:
        """Forget which places are used up: nobody else waits."""
        self.owed, self.shift = [], 0

    @property
    def first_due(self) -> int | None:
        """Return when the next job is due of those that are not yet."""
        future = self._future
        while future:
            due, serial, bucket = future[0]
            if serial == bucket.serial and bucket.count:
                return due
            heapq.heappop(future)
        return None

    @property
    def next_turn(self) -> tuple[int, int]:
        """Return what the key that is next has had, and where its first job stood when it began to wait."""
        found = self._next()
        return (0, self.order) if found is None else found[:2]

    def take(self, now: int, most: int) -> list[PriorityBucket]:
        """Take the due buckets of so many keys whose turn comes first; each is given back with `enter`."""
        taken: list[PriorityBucket] = []
        lines = 0
        while lines < most and (found := self._next()) is not None:
            line = found[3]
            heapq.heappop(self._by_share)
            line.stands, line.was_taken = 0, True
            if self._held_back(line):
                self.hold_back(line)
                continue
            due = [one for one in line.buckets.values() if one.count and one.serial and one.first_due <= now]
            for bucket in due:
                bucket.serial = 0
            taken += due
            lines += bool(due)
        return taken

    def first_in_order(self, most: int) -> list[PriorityBucket]:
        """Take so many buckets more, those whose jobs stand first: their places are what the rota has among others."""
        taken: list[PriorityBucket] = []
        while len(taken) < most and self.is_ready():
            _, _, bucket = heapq.heappop(self._by_order)
            bucket.serial = 0
            taken.append(bucket)
        return taken

    def _stand(self, line: ShardLine, order: int) -> None:
        had = self.shares.begin(line.shard, was_taken=line.was_taken)
        line.stands, line.was_taken = next(_serials), False
        heapq.heappush(self._by_share, (had, order, line.stands, line))

    def _next(self) -> tuple[int, int, int, ShardLine] | None:
        """Return the valid entry that comes first: what a key has had may have grown in other rotas since."""
        waiting = self._by_share
        while waiting:
            had, order, serial, line = waiting[0]
            if serial != line.stands:
                heapq.heappop(waiting)
            elif (now := self.shares.had(line.shard)) > had:
                heapq.heapreplace(waiting, (now, order, serial, line))
            else:
                return waiting[0]
        return None

    def _compact(self) -> None:
        """Drop stale entries before they outgrow the lines."""
        self._future = [entry for entry in self._future if entry[1] == entry[2].serial]
        heapq.heapify(self._future)
