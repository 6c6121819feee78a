"""Buckets of waiting jobs, and the heaps that say which of them may start next."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final

from tocsin.actors.scheduler.model.rows import LARGEST_MS
from tocsin.actors.scheduler.state.line import PRIORITY_MS as PRIORITY_MS
from tocsin.actors.scheduler.state.line import Line as Line
from tocsin.actors.scheduler.state.line import PriorityBucket as PriorityBucket
from tocsin.actors.scheduler.state.rota import Rota

Entry = tuple[int, int, PriorityBucket | Rota]
Others = Callable[[PriorityBucket | Rota], bool]
HEADS: Final = 4
"""So many times as many buckets as jobs are wanted are taken at most, where keys have turns."""


class ReadyHeap:
    """Buckets in the order in which they may start: those of the future by due instant, those due by start order.

    Each bucket has at most one valid entry, known by its serial. Other entries are stale and dropped when met.
    """

    def __init__(self, may_start: Callable[[Line], bool], room: Callable[[str], int | None]) -> None:
        self._may_start, self._room = may_start, room
        self._future: list[Entry] = []
        self._ready: dict[str, list[Entry]] = {}  # by queue
        self._turns: OrderedDict[str, int] = OrderedDict()  # by queue: its last turn, or when it came; in that order
        self._turn = count(1)
        self._serial = count(1)
        self._compact_at = 1_000

    def enter(self, bucket: PriorityBucket) -> None:
        """Give the bucket its one valid entry, if its line may start at all."""
        bucket.serial = 0
        if self._may_start(bucket.line):
            bucket.serial = next(self._serial)
            heapq.heappush(self._future, (bucket.first_due, bucket.serial, bucket))
            if len(self._future) > self._compact_at:
                self._compact()

    def enter_rota(self, rota: Rota) -> None:
        """Give the rota its valid entry, if its pool has room: for now if jobs are ready, else for when they are."""
        due = 0 if rota.is_ready() else rota.first_due
        if rota.serial and due is not None and due >= rota.looked_at:
            return  # its entry comes no later
        rota.serial = 0
        if due is not None and self._may_start(rota.line):
            rota.serial, rota.looked_at = next(self._serial), due
            heapq.heappush(self._future, (due, rota.serial, rota))
            if len(self._future) > self._compact_at:
                self._compact()

    def any_ready(self, now: int, queue: str) -> bool:
        """Return whether a due job of the queue may start."""
        self._promote_due(now)
        return self._is_ready(queue)

    def first_order(self, now: int, queue: str) -> int | None:
        """Return the place in the start order of the queue's first due job that may start; None: there is none."""
        self._promote_due(now)
        return self._ready[queue][0][0] if self._is_ready(queue) else None

    def ready_queues(self, now: int) -> Iterator[str]:
        """Yield queues with a due job that may start, the one whose turn it is first. There may be many, so each is
        checked only when it is asked for."""
        self._promote_due(now)
        return (queue for queue in self._turns if self._is_ready(queue))

    def ready_of(self, now: int, queues: Sequence[str]) -> list[str]:
        """Return those of these queues that have a due job that may start, in the order of their turns."""
        self._promote_due(now)
        return sorted(filter(self._is_ready, queues), key=self._turns.__getitem__)

    def had_turn(self, queue: str) -> None:
        """Note that the queue has had its turn: the others come first now."""
        self._turns[queue] = next(self._turn)
        self._turns.move_to_end(queue)

    def forget(self, queue: str) -> None:
        """Forget the turn of a queue in which nothing waits: when it comes again, it is behind the others."""
        self._turns.pop(queue, None)

    def next_due(self, now: int) -> int | None:
        """Return when the first future bucket that may start is due."""
        self._promote_due(now)
        bucket = self._peek(self._future)
        return None if bucket is None else bucket.first_due

    def pick(
        self, now: int, queue: str, most: int, of_pool: Counter[str], after_others: Others | None = None
    ) -> list[PriorityBucket]:
        """Take up to `most` due buckets that may start, in start order. Give each back with `enter`.

        No more buckets of a pool are taken than it has slots (`of_pool` counts them): its first jobs are in those, and
        other pools need the rest. `after_others` says which buckets others come before.
        """
        self._promote_due(now)
        ready = self._ready.get(queue, [])
        picked: list[PriorityBucket] = []
        passed: list[Entry] = []
        rotas: dict[Rota, int] = {}
        met = 0
        while ready and met < most and len(picked) < HEADS * most:
            entry = heapq.heappop(ready)
            _, serial, bucket = entry
            if serial != bucket.serial or not bucket.count or (bucket.is_rota and not bucket.promote(now)):
                continue
            if after_others is not None and after_others(bucket):
                passed.append(entry)
                continue
            room = self._room(bucket.line.pool)
            if room is not None and room and of_pool[bucket.line.pool] >= room:
                passed.append(entry)
                continue
            bucket.serial = 0
            if not self._may_start(bucket.line):
                continue
            if bucket.is_rota:  # those before it have one job each at least
                n = rotas[bucket] = most - met if room is None else min(most - met, room - of_pool[bucket.line.pool])
                picked += bucket.take(now, n)
                of_pool[bucket.line.pool] += n
            else:
                picked.append(bucket)
                of_pool[bucket.line.pool] += 1
            met += 1
        for entry in passed:
            heapq.heappush(ready, entry)
        for rota, n in rotas.items():
            if ready or len(rotas) > 1 or met > 1:
                picked += rota.first_in_order(n)
            else:
                rota.owes_nothing()
            self.enter_rota(rota)
        return picked

    def _is_ready(self, queue: str) -> bool:
        heap = self._ready.get(queue)
        if heap is None or self._peek(heap) is None:
            self._ready.pop(queue, None)
            return False
        return True

    def _promote_due(self, now: int) -> None:
        while self._future and self._future[0][0] <= now:
            _, serial, bucket = heapq.heappop(self._future)
            if serial == bucket.serial and bucket.count:
                queue = bucket.line.base
                if bucket.is_rota and not self._is_promoted(bucket, now):
                    continue
                heapq.heappush(self._ready.setdefault(queue, []), (bucket.order, serial, bucket))
                if queue not in self._turns:
                    self._turns[queue] = next(self._turn)

    def _is_promoted(self, rota: Rota, now: int) -> bool:
        """Let those of a rota take part that are due, with an entry for when the next one is."""
        is_ready = rota.promote(now)
        due = rota.first_due
        rota.looked_at = LARGEST_MS if due is None else due
        if due is not None:
            heapq.heappush(self._future, (due, rota.serial, rota))
        return is_ready

    def _peek(self, heap: list[Entry]) -> PriorityBucket | Rota | None:
        while heap:
            _, serial, bucket = heap[0]
            if serial == bucket.serial and bucket.count:
                if not self._may_start(bucket.line):
                    bucket.serial = 0
                elif not bucket.is_rota or heap is self._future or bucket.is_ready():
                    return bucket
            heapq.heappop(heap)
        return None

    def _compact(self) -> None:
        """Drop stale entries before they outgrow the lines: each first job that changes leaves one behind."""
        self._future = [entry for entry in self._future if entry[1] == entry[2].serial]
        heapq.heapify(self._future)
        self._compact_at = 2 * len(self._future) + 1_000
