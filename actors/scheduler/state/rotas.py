"""Memory of schedulers with fair pools or queues, besides their lines. Others have none of this.

Whether jobs stand by shard key is said in the rows of their pool and queue (`PoolFlow.fair`, `QueueRow.fair`). Lines
that stand otherwise, since that has changed, are `misplaced`: the turns that follow move their jobs. Nothing of this is
stored, since it follows from the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tocsin.actors.scheduler.model.flow_rows import PoolFlow, QueueRow
from tocsin.actors.scheduler.model.line_names import SHARD, queue_in, whole
from tocsin.actors.scheduler.model.rows import LeaseRow, PoolRow
from tocsin.actors.scheduler.state.line import PriorityBucket
from tocsin.actors.scheduler.state.rota import Rota, ShardLine
from tocsin.actors.scheduler.state.shares import Shares

LineName = tuple[str, str]
Holds = tuple[str, str, str]
"""Of which jobs no more may run: "pool" or "queue", its name, and the shard."""
POOL: Final = "pool"
QUEUE: Final = "queue"


class Rotas:
    """The rotas of one scheduler, the rules by which they go, and how many jobs of each key run."""

    def __init__(self, enter: Callable[[PriorityBucket], None]) -> None:
        """`enter` enters a bucket in its heap anew."""
        self.queues: dict[str, QueueRow] = {}
        self.misplaced: dict[LineName, None] = {}
        """Lines whose jobs are to stand by shard key and do not, or do and are not to."""
        self.pools: dict[str, Shares] = {}
        """Of fair pools."""
        self.of_queues: dict[str, Shares] = {}
        """Of fair queues."""
        self.by_pool: dict[str, dict[str, Rota]] = {}
        """By pool and base."""
        self.running: Counter[Holds] = Counter()
        self._enter = enter
        self._held_back: dict[Holds, list[ShardLine]] = {}

    def __iter__(self) -> Iterator[Rota]:
        return (rota for rotas in self.by_pool.values() for rota in rotas.values())

    # ---- Rules -----------------------------------------------------------------------------------

    def are_fair(self, pool: str, queue: str) -> bool:
        """Return whether jobs of this pool and queue stand by shard key."""
        return pool in self.pools or queue in self.of_queues

    def shares_of(self, pool: str, queue: str) -> Shares | None:
        """Return the rules by which jobs of this pool and queue have turns: those of a fair pool go before its
        queues'."""
        return self.pools.get(pool) or self.of_queues.get(queue)

    def set_pool(self, pool: str, row: PoolRow | None) -> bool:
        """Take the rules of a pool from its row; return whether they have changed."""
        return _changed(self.pools, pool, None if row is None else row.flow)

    def set_queue(self, queue: str, row: QueueRow | None) -> bool:
        """Take the rules of a queue from its row; return whether they have changed."""
        if row is None:
            self.queues.pop(queue, None)
        else:
            self.queues[queue] = row
        return _changed(self.of_queues, queue, row)

    def begin_anew(self, names: Mapping[LineName, object]) -> None:
        """Let all lines go by the rules as they are now. `names`: the lines that are in no rota."""
        self._held_back.clear()
        for rota in self:
            shares = self.shares_of(rota.line.pool, queue_in(rota.line.base))
            rota.is_fair = shares is not None
            rota.begin_anew(shares or Shares())
            for line in rota.lines.values():
                self.note_place((line.pool, line.queue))
        for name in names:
            self.note_place(name)

    def note_place(self, name: LineName) -> None:
        """Note whether the jobs of a line are to be moved."""
        if (SHARD in name[1]) == self.are_fair(name[0], queue_in(name[1])):
            self.misplaced.pop(name, None)
        else:
            self.misplaced[name] = None

    # ---- Lines -----------------------------------------------------------------------------------

    def line(self, pool: str, queue: str) -> ShardLine:
        """Make the line of a key, in its rota."""
        base = whole(queue)
        rotas = self.by_pool.setdefault(pool, {})
        rota = rotas.get(base)
        if rota is None:
            shares = self.shares_of(pool, queue_in(base))
            rota = rotas[base] = Rota(pool, base, shares or Shares(), self._is_held_back)
            rota.is_fair = shares is not None
        line = ShardLine(pool, queue, rota)
        if not rota.is_fair:
            self.misplaced[pool, queue] = None
        rota.lines[line.shard] = line
        rota.shares.came(line.shard)
        return line

    def remove(self, line: ShardLine) -> None:
        """Forget a line in which nothing waits."""
        rota = line.rota
        rota.hold_back(line)
        del rota.lines[line.shard]
        rota.shares.went(line.shard)
        rota.shares.forget(len(rota.lines))
        if not rota.lines:
            rota.serial = 0
            rotas = self.by_pool[line.pool]
            del rotas[rota.line.base]
            if not rotas:
                del self.by_pool[line.pool]

    def queued(self, pool: str) -> int:
        """Return how many jobs of a pool wait in rotas."""
        return sum(rota.count for rota in self.by_pool.get(pool, {}).values())

    # ---- What runs -------------------------------------------------------------------------------

    def started(self, lease: LeaseRow) -> None:
        """Count a start of the lease's key."""
        if (shares := self.shares_of(lease.pool, lease.queue)) is not None:
            shares.started(lease.shard)

    def hold(self, lease: LeaseRow) -> None:
        """Count a job of the lease's key that runs."""
        for one in _holds(lease):
            self.running[one] += 1

    def release(self, lease: LeaseRow) -> None:
        """Count one fewer, and wake the lines that waited for it."""
        for one in _holds(lease):
            self.running[one] -= 1
            if not self.running[one]:
                del self.running[one]
            for line in self._held_back.pop(one, ()):
                if line.rota.lines.get(line.shard) is line:
                    for bucket in line.buckets.values():
                        if bucket.count and not bucket.serial:
                            self._enter(bucket)

    def room(self, pool: str, queue: str, shard: str) -> int | None:
        """Return how many more jobs of a key may start; None: no bound but those of all keys."""
        rooms = [left for _, left in self.rooms(pool, queue, shard)]
        return min(rooms, default=None)

    def _is_held_back(self, line: ShardLine) -> bool:
        for holds, left in self.rooms(line.pool, queue_in(line.base), line.shard):
            if left <= 0:
                waiting = self._held_back.setdefault(holds, [])
                if line not in waiting:  # at most one of each base
                    waiting.append(line)
                return True
        return False

    def rooms(self, pool: str, queue: str, shard: str) -> Iterator[tuple[Holds, int]]:
        """Yield each cap that a key has, and how much is left of it."""
        for kind, name, rules in ((POOL, pool, self.pools), (QUEUE, queue, self.of_queues)):
            shares = rules.get(name)
            if shares is not None and shares.per_key is not None:
                holds = kind, name, shard
                yield holds, shares.per_key - self.running[holds]


def _holds(lease: LeaseRow) -> Iterator[Holds]:
    if lease.pool:
        yield POOL, lease.pool, lease.shard
    if lease.queue:
        yield QUEUE, lease.queue, lease.shard


def _changed(rules: dict[str, Shares], name: str, flow: PoolFlow | QueueRow | None) -> bool:
    old = rules.get(name)
    if flow is None or not flow.fair:
        rules.pop(name, None)
        return old is not None
    new = Shares(flow.weights, flow.per_key)
    if old is not None and (old.weights, old.per_key) == (new.weights, new.per_key):
        return False
    rules[name] = new
    return True
