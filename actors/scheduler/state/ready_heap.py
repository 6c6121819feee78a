"""The heads of lines, in the order in which they may start: those of the future by due, those due by start order.

There is one of these for callbacks, where all stand in one queue, and one for pulled work, where each queue has its own
order, and queues have turns.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from tocsin.actors.scheduler.state.line import Line, PriorityBucket

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
