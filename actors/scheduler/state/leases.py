"""Keep lease rows in memory: by token, by job, by end, and by the worker that pulled."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Final

import msgspec

from tocsin.actors.runtime.overlay import ActorStorage
from tocsin.actors.scheduler.model.counters import Counters, levels
from tocsin.actors.scheduler.model.rows import PULLED, LeaseRow, encode, lease_key
from tocsin.actors.scheduler.model.suspects import ALONE, level_of, share_of_level
from tocsin.actors.scheduler.state.grouped import Groups
from tocsin.actors.scheduler.state.held_jobs import HeldJobs
from tocsin.actors.scheduler.state.job_queues import JobQueues
from tocsin.actors.scheduler.state.later import Later
from tocsin.actors.scheduler.state.tally import Tally

ENDS_PER_TURN = 500
NONE_FOUND: Final[set[str]] = set()
"""Of all schedulers whose store one host has: nothing is added to it."""
Lease = tuple[str, str, LeaseRow]  # id, token and row


def as_promised(lease: LeaseRow) -> LeaseRow:
    """Return the lease with the end it must have. The one rule: whatever becomes of its attempt, a lease does not end
    before the instant that an answered `/extend` promised."""
    return lease if lease.until >= lease.promised else msgspec.structs.replace(lease, until=lease.promised)


class Leases:
    """The leases of one scheduler, and the counters that change with them.

    A lease that was found in its row may be of another host, by whose clock its end was written: it is held for
    `clocks_differ_ms` longer, by which the clocks of two hosts may differ. The row and its end stay as they are.
    """

    later: Later | None = None
    """Calls that are kept until the jobs of their ids have run; None for most."""
    groups: Groups | None = None
    """The groups that were used lately; only a scheduler that uses some has the attribute."""

    def __init__(self, storage: ActorStorage, clocks_differ_ms: int = 0) -> None:
        self.storage = storage
        self._clocks_differ_ms = clocks_differ_ms
        # Tokens of leases that may be of other hosts.
        self._found = set[str]() if clocks_differ_ms else NONE_FOUND
        self.lines = JobQueues()
        self.counters = Counters(accepted=0)
        self.tally = Tally(levels(self.counters))
        """The deeds of the running turn."""
        self.leases: dict[str, tuple[str, LeaseRow]] = {}
        self.by_id: dict[str, set[str]] = {}
        self.pulled_by: Counter[str] = Counter()
        """How many jobs each worker has."""
        self.suspects_of: Counter[str] = Counter()
        """How much of its share of suspects each worker has."""
        self.alone: Counter[str] = Counter()
        """Workers that have one which must run alone."""
        self.held = HeldJobs()
        self._ends: list[tuple[int, str]] = []  # with stale entries

    def put_lease(self, job_id: str, token: str, lease: LeaseRow) -> None:
        self.remember(job_id, token, lease)
        if lease.pool and self.lines.meters is not None:
            self.lines.meters.spend(lease.pool)
        if lease.shard:
            self.lines.use_rotas().started(lease)
        self.counters.leased += 1
        self.storage.put(lease_key(job_id, token), encode(lease))

    def change_lease(self, token: str, lease: LeaseRow) -> None:
        """Rewrite in place: extended, of another kind, or orphaned. It ends no earlier than was promised."""
        job_id, old = self.leases[token]
        new = as_promised(lease)
        self.storage.put(lease_key(job_id, token), encode(new))
        self.leases[token] = (job_id, new)
        if new.until != old.until:
            self._found.discard(token)
        self.remember_end(token)
        if new.orphan and not old.orphan:
            self.counters.leased -= 1
            self.counters.orphaned += 1
            self.held.forget(token)

    def drop_lease(self, token: str) -> Lease:
        job_id, lease = self.leases.pop(token)
        self._found.discard(token)
        tokens = self.by_id[job_id]
        tokens.discard(token)
        if not tokens:
            del self.by_id[job_id]
        self.held.forget(token)
        if lease.kind == PULLED:
            self._count_worker(lease, -1)
        if lease.pool:
            self.lines.release(lease.pool)
        if lease.shard:
            self.lines.use_rotas().release(lease)
        if lease.orphan:
            self.counters.orphaned -= 1
        else:
            self.counters.leased -= 1
        self.storage.delete(lease_key(job_id, token))
        return job_id, token, lease

    def lease_of(self, job_id: str) -> str | None:
        """Return the token of the attempt that runs this job, not of one whose job was cancelled."""
        for token in self.by_id.get(job_id, ()):
            if not self.leases[token][1].orphan:
                return token
        return None

    def first_end(self) -> tuple[int, str] | None:
        """Return token of the lease that ends first, and the instant at which this host may end it."""
        while self._ends:
            end, token = self._ends[0]
            if token in self.leases and self.end_of(token) == end:
                return end, token
            heapq.heappop(self._ends)
        return None

    def end_of(self, token: str) -> int:
        """Return the instant, by this host's clock, at which a lease has ended by the clock of any host."""
        until = self.leases[token][1].until
        return until + self._clocks_differ_ms if token in self._found else until

    def stored_end(self, end: int) -> int:
        """Return an instant that is no later than the end of any lease as its row says, if `end` is the first end."""
        return end - self._clocks_differ_ms if self._found else end

    def ended(self, horizon: int) -> list[str]:
        """Take tokens of leases that end at or before `horizon`, a page; each must then be dropped or changed."""
        tokens: list[str] = []
        while len(tokens) < ENDS_PER_TURN and (first := self.first_end()) is not None and first[0] <= horizon:
            heapq.heappop(self._ends)
            if first[1] not in tokens:
                tokens.append(first[1])
        return tokens

    def remember_end(self, token: str) -> None:
        """Put back what `ended` took."""
        heapq.heappush(self._ends, (self.end_of(token), token))

    def find(self, job_id: str, token: str, lease: LeaseRow) -> None:
        """Take over a lease row that was there before this activation."""
        if self._clocks_differ_ms:
            self._found.add(token)
        self.remember(job_id, token, lease)

    def remember(self, job_id: str, token: str, lease: LeaseRow) -> None:
        """Keep a lease in memory."""
        self.leases[token] = (job_id, lease)
        self.by_id.setdefault(job_id, set()).add(token)
        self.remember_end(token)
        if lease.pool:
            self.lines.hold(lease.pool)
        if lease.shard:
            self.lines.use_rotas().hold(lease)
        if lease.kind == PULLED:
            self._count_worker(lease, 1)

    def _count_worker(self, lease: LeaseRow, by: int) -> None:
        if not lease.host:
            return
        _add(self.pulled_by, lease.host, by)
        if level := level_of(lease.at):
            _add(self.suspects_of, lease.host, by * share_of_level(level))
            if level == ALONE:
                _add(self.alone, lease.host, by)


def _add(counter: Counter[str], worker: str, by: int) -> None:
    """Count so many more for a worker, and forget one that has none."""
    if (now := counter.get(worker, 0) + by) != 0:
        counter[worker] = now
    else:
        counter.pop(worker, None)
