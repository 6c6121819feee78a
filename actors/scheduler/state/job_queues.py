"""Keep in memory what waits: which lines have jobs, when the first of each is due, and which may start.

A line is named by pool and queue. Inside it each priority is a bucket, ordered by due instant. A bucket has at most one
entry in a `ReadyHeap`, for its first job. There is one heap for callbacks, where all are in one order, and one for
pulled work, where each queue has an order of its own and queues take turns. A line whose pool is full or paused has no
entry: it costs nothing until its pool changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from tocsin.actors.scheduler.model.flow_rows import QueueRow
from tocsin.actors.scheduler.model.line_names import MARK, ORIGIN, SHARD, level_in, origin_in, queue_in, shard_in
from tocsin.actors.scheduler.model.rows import LinesRow, PoolRow
from tocsin.actors.scheduler.state.meters import Meters
from tocsin.actors.scheduler.state.ready_heap import Line, PriorityBucket, ReadyHeap
from tocsin.actors.scheduler.state.rota import Rota, ShardLine
from tocsin.actors.scheduler.state.rotas import Rotas

LineName = tuple[str, str]
NO_LEVELS: Final[Set[int]] = frozenset()
NO_ORIGINS: Final[Mapping[str, Set[int]]] = {}
NONE_NAMED: Final[Set[str]] = frozenset()


def slots_left(pool: PoolRow | None, held: int) -> int:
    """Return how many more jobs of a pool may start. A pool without a row has one slot."""
    row = PoolRow(1) if pool is None else pool
    return 0 if row.paused else max(row.cap - held, 0)


class Outlook(NamedTuple):
    """Which callbacks may start at an instant, as far as pools and pauses allow."""

    ready: bool
    """A due callback may start."""
    suspects: Set[int]
    """The levels of suspects of which a due callback may start."""
    next_due: int | None
    """When the first future callback is due, suspects and those to named origins included, or a pool has its next
    token."""
    named: Mapping[str, Set[int]] = NO_ORIGINS
    """Named origins to which a due callback may start, each with the levels of those; 0 for jobs that are not suspect.
    """


class JobQueues:
    """All lines of one scheduler, and how many slots of its pools are held."""

    meters: Meters | None = None
    """Of pools that have a rate, or cool. Few schedulers have the attribute."""
    named: Set[str] = NONE_NAMED
    """The named origins that callbacks have waited for since this scheduler is in memory."""
    rotas: Rotas | None = None
    """None where no pool and no queue is fair, as in most."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolRow] = {}
        self.holders: Counter[str] = Counter()
        self.touched: set[LineName] = set()
        self.paused = False  # the whole instance
        self.in_queue: Counter[str] = Counter()
        """How many jobs wait in lines of each base, those of the future included."""
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
        for priority, (waiting, first_due) in row.buckets.items():
            bucket = line.buckets[priority] = PriorityBucket(line, priority)
            bucket.count, bucket.first_due = waiting, first_due
            self.in_queue[line.base] += waiting
            if isinstance(line, ShardLine):
                line.rota.count += waiting
            self._enter(bucket)

    def add(self, pool: str, queue: str, priority: int, due: int, jobs: int = 1) -> PriorityBucket:
        """Count so many jobs more, of which the first is due at `due`, and return their bucket."""
        line = self._line((pool, queue))
        bucket = line.buckets.get(priority)
        if bucket is None:
            bucket = line.buckets[priority] = PriorityBucket(line, priority)
        bucket.count += jobs
        self.in_queue[line.base] += jobs
        if isinstance(line, ShardLine):
            line.rota.count += jobs
        if bucket.count == jobs or due < bucket.first_due:
            bucket.first_due = due
            self._enter(bucket)
        self.touched.add((pool, queue))
        return bucket

    def remove(self, pool: str, queue: str, priority: int, due: int) -> PriorityBucket:
        """Count one job fewer, and return the bucket it leaves."""
        bucket = self._lines[pool, queue].buckets[priority]
        base = bucket.line.base
        bucket.count -= 1
        if isinstance(bucket.line, ShardLine):
            bucket.line.rota.count -= 1
        self.in_queue[base] -= 1
        if not self.in_queue[base]:
            del self.in_queue[base]
            self.pulled.forget(base)
        self.touched.add((pool, queue))
        if bucket.count and due == bucket.first_due:
            self.headless[bucket.prefix] = bucket
        return bucket

    def set_head(self, bucket: PriorityBucket, due: int) -> None:
        """Say when the first job of the bucket is due."""
        if self.headless:
            self.headless.pop(bucket.prefix, None)
        bucket.first_due = due
        self._enter(bucket)

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
                self._left(line, name)
            rows.append((name, row))
        self.touched.clear()
        return rows

    def _line(self, name: LineName) -> Line:
        line = self._lines.get(name)
        if line is None and SHARD in name[1] and (not name[1].startswith(MARK) or queue_in(name[1])):
            made = line = self._lines[name] = self.use_rotas().line(*name)
            if len(made.rota.lines) == 1:
                self._note_origin(line)
        if line is None:
            line = self._lines[name] = Line(*name)
            if self.rotas is not None:
                self.rotas.note_place(name)
            if line.queue and not line.is_pulled and (level := level_in(line.queue)):
                self._suspects[name] = level
            self._note_origin(line)
            self._of_pool.setdefault(line.pool, {})[name] = None
        return line

    def _note_origin(self, line: Line) -> None:
        if line.queue and not line.is_pulled and (origin := origin_in(line.queue)) and origin not in self.named:
            self.named = self.named | {origin}

    def _left(self, line: Line, name: LineName) -> None:
        """Forget a line that is empty."""
        if self.rotas is not None:
            self.rotas.misplaced.pop(name, None)
            if isinstance(line, ShardLine):
                self.rotas.remove(line)
                return
        names = self._of_pool[line.pool]
        names.pop(name, None)
        if not names:
            del self._of_pool[line.pool]

    # ---- Fair ones -------------------------------------------------------------------------------

    def use_rotas(self) -> Rotas:
        """Return what is kept of fair pools and queues; it is made when it is first needed."""
        if self.rotas is None:
            self.rotas = Rotas(self._enter)
        return self.rotas

    def set_pool(self, name: str, row: PoolRow | None) -> None:
        """Take a pool as its row says it is; None: there is none."""
        if row is None:
            self.pools.pop(name, None)
        else:
            self.pools[name] = row
        fair = row is not None and row.flow is not None and row.flow.fair
        if (fair or self.rotas is not None) and self.use_rotas().set_pool(name, row):
            self._rules_changed()

    def set_queue(self, name: str, row: QueueRow | None) -> None:
        """Take a queue as its row says it is; None: there is none."""
        if self.use_rotas().set_queue(name, row):
            self._rules_changed()

    def misplaced(self, jobs: int) -> list[PriorityBucket]:
        """Return buckets whose jobs are to stand elsewhere, as many as hold so many jobs."""
        found: list[PriorityBucket] = []
        for name in self.use_rotas().misplaced:
            if jobs <= 0:
                break
            buckets = [bucket for bucket in self._lines[name].buckets.values() if bucket.count]
            found += buckets
            jobs -= sum(bucket.count for bucket in buckets)
        return found

    def like(self) -> JobQueues:
        """Return queues in which nothing waits, with the same pools, rules and holders."""
        new = JobQueues()
        new.pools, new.holders, new.paused = self.pools, self.holders, self.paused
        if self.meters is not None:
            new.meters = self.meters
        new.named = self.named
        if (old := self.rotas) is not None:
            rotas = new.use_rotas()
            rotas.queues, rotas.pools, rotas.of_queues, rotas.running = (
                old.queues, old.pools, old.of_queues, old.running
            )  # fmt: skip
        return new

    def _rules_changed(self) -> None:
        rotas = self.use_rotas()
        rotas.begin_anew({name: None for names in self._of_pool.values() for name in names})
        for rota in rotas:
            self._enter_rota(rota)

    def _enter_rota(self, rota: Rota) -> None:
        (self.pulled if rota.line.is_pulled else self._called).enter_rota(rota)

    # ---- What may start --------------------------------------------------------------------------

    def room(self, pool: str) -> int | None:
        """Return how many more jobs of this pool may start; None: no bound."""
        if not pool:
            return None
        slots = slots_left(self.pools.get(pool), self.holders[pool])
        return slots if self.meters is None or not slots else self.meters.room(pool, slots)

    def may_start(self, line: Line) -> bool:
        return not self.paused and (not line.pool or self.room(line.pool) != 0)

    def key_room(self, line: Line) -> int | None:
        """Return how many more jobs of the line's shard key may start; None: no bound of its own."""
        if self.rotas is None or not (shard := shard_in(line.queue)):
            return None
        return self.rotas.room(line.pool, queue_in(line.base), shard)

    def hold(self, pool: str) -> None:
        """Take a slot of the pool."""
        self.holders[pool] += 1

    def release(self, pool: str) -> None:
        """Give a slot of the pool back."""
        self.holders[pool] -= 1
        if not self.holders[pool]:
            del self.holders[pool]
        self.pool_changed(pool)

    def begin(self, now: int, monotonic_s: float | None) -> None:
        """Go on to the instant of a turn: pools may have a token again. Asked only where there are `meters`."""
        if self.meters is not None:
            for pool in self.meters.begin(now, monotonic_s):
                self.pool_changed(pool)

    def pause(self, paused: bool) -> None:
        """Stop or start all firing."""
        self.paused = paused
        for pool in list(self._of_pool):
            self.pool_changed(pool)
        for rota in self.rotas or ():
            self._enter_rota(rota)

    def queued(self, pool: str) -> int:
        """Return how many jobs of a pool wait."""
        lines = (self._lines[name] for name in self._of_pool.get(pool, ()))
        queued = sum(bucket.count for line in lines for bucket in line.buckets.values())
        return queued if self.rotas is None else queued + self.rotas.queued(pool)

    def pool_changed(self, pool: str) -> None:
        """Enter the pool's buckets again: a slot, the cap or the pause has changed."""
        for name in self._of_pool.get(pool, ()):
            for bucket in self._lines[name].buckets.values():
                if bucket.count and not bucket.serial:
                    self._enter(bucket)
        if self.rotas is not None:
            for rota in self.rotas.by_pool.get(pool, {}).values():
                if not rota.serial:
                    self._enter_rota(rota)

    def pick(self, now: int, most: int, origin: str = "") -> list[PriorityBucket]:
        """Take up to `most` due buckets of callbacks to an origin that may start, in start order; give each back with
        `set_head`."""
        return self._called.pick(now, ORIGIN + origin if origin else "", most, Counter())

    def in_turn(self, now: int, others: Iterable[str]) -> Sequence[str]:
        """Return the origins of callbacks, and others, "" for the host's own; the one first whose first due callback
        comes first: they share the slots of pools. Those that have none come last."""
        names = {"", *self.named, *others}
        orders = {name: self._called.first_order(now, ORIGIN + name if name else "") for name in names}
        return sorted(orders, key=lambda name: (orders[name] is None, orders[name] or 0, name))

    def callback_first(self, bucket: PriorityBucket | Rota, now: int) -> bool:
        """Return whether a callback of the same pool comes before this bucket of pulled jobs: they share its slots."""
        if self.rotas is not None and self._is_before(bucket, now):
            return True
        for name in self._of_pool.get(bucket.line.pool, ()) if bucket.line.pool else ():
            if (line := self._lines[name]).is_pulled:
                continue
            for other in line.buckets.values():
                stands = other.count and (other.serial or name in self._suspects)
                if stands and other.first_due <= now and other.order < bucket.order:
                    return True
        return False

    def _is_before(self, bucket: PriorityBucket | Rota, now: int) -> bool:
        """Return whether callbacks in a rota of the same pool come first. In a fair pool that is decided by turns."""
        for other in self.use_rotas().by_pool.get(bucket.line.pool, {}).values() if bucket.line.pool else ():
            if not other.line.is_pulled and other.serial and other.promote(now):
                if bucket.is_rota and bucket.shares is other.shares:
                    if other.next_turn < bucket.next_turn:
                        return True
                elif other.order < bucket.order:
                    return True
        return False

    def outlook(self, now: int, origin: str = "") -> Outlook:
        """Say which callbacks may start now, and when the next one is due: those to all origins, or to a named one."""
        ready, head = self._called.any_ready(now, ""), self._called.next_due(now)
        if not (self._suspects or self.named):
            return Outlook(ready, NO_LEVELS, head if self.meters is None else self._or_token(head))
        apart = list(self._kept_apart(None))
        levels = dict[str, set[int]]()
        for one in apart:
            if one.first_due <= now:
                levels.setdefault(origin_in(one.line.queue), set()).add(self._suspects[one.line.pool, one.line.queue])
        for name in self.named:
            if self._called.any_ready(now, ORIGIN + name):
                levels.setdefault(name, set()).add(0)
        later = [one.first_due for one in apart if one.first_due > now]
        next_due = self._or_token(min(later if head is None else [*later, head], default=None))
        if origin:
            wanted = levels.get(origin, NO_LEVELS)
            return Outlook(0 in wanted, wanted - {0}, next_due)
        own = levels.pop("", NO_LEVELS)
        return Outlook(ready, own, next_due, levels)

    def _or_token(self, due: int | None) -> int | None:
        """Return when the next token comes that jobs wait for, if that is sooner."""
        token = None if self.meters is None else self.meters.next_at()
        return due if token is None else token if due is None else min(due, token)

    def suspects_ready(self, now: int, level: int, origin: str = "") -> list[PriorityBucket]:
        """Return the buckets of suspects of this level and origin that are due and may start, in start order."""
        due = [
            bucket
            for bucket in self._kept_apart(level)
            if bucket.first_due <= now and origin_in(bucket.line.queue) == origin
        ]
        return sorted(due, key=lambda bucket: bucket.order)

    def _kept_apart(self, wanted: int | None) -> Iterator[PriorityBucket]:
        for name, level in self._suspects.items():
            line = self._lines[name]
            if wanted in (None, level) and self.may_start(line) and self.key_room(line) != 0:
                yield from (bucket for bucket in line.buckets.values() if bucket.count)

    def _enter(self, bucket: PriorityBucket) -> None:
        """Enter the bucket in its heap. Callbacks of suspects are in neither heap: `suspects_ready` finds them."""
        line = bucket.line
        if isinstance(line, ShardLine):
            line.rota.enter(bucket)
            self._enter_rota(line.rota)
        elif (line.pool, line.queue) not in self._suspects:
            (self.pulled if line.is_pulled else self._called).enter(bucket)
