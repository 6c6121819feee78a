"""See what schedulers do by what they commit: leases are starts and held slots, rows of history are ends.

The rows are the truth of a scheduler, so what is counted here is what happened, whatever feature made it happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tocsin.actors.rehearsal.saturation import PoolUse
from tocsin.actors.scheduler.model.line_names import queue_in
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.actors.scheduler.model.rows import (
    HistRow,
    JobRow,
    LeaseRow,
    ParkedRow,
    PoolRow,
    decode,
    job_key,
    split_lease_key,
    split_line_tail,
    split_lines_key,
)
from tocsin.actors.scheduler.model.schedule_rows import SlotRow
from tocsin.storage.api import after
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, MemoryProvider

HOUR_MS: Final = 3_600_000
PREFIX: Final = str(actor_of(""))
ALL: Final = 2**62


class Run(NamedTuple):
    """An attempt that holds a lease. `kind` is that of its lease when it was first seen."""

    instance: str
    id: str
    path: str
    pool: str
    kind: str
    started: int


class Missed(NamedTuple):
    """The fate of one slot, or of a run of slots that nothing was fired for."""

    state: str
    reason: str | None
    slots: int


@dataclass(slots=True)
class Hour:
    """Starts within one hour of the rehearsal."""

    fires: int = 0
    late: list[int] = field(default_factory=list)
    """By how many ms each start came after its due instant."""


class Watch:
    """Counts what is committed to a disk."""

    def __init__(self, disk: MemoryDisk, now_ms: Callable[[], int], on_queue: Callable[[str, str], None]) -> None:
        """`on_queue(instance, queue)` is called when work for workers is seen; it may be called again."""
        self.disk, self.now_ms, self._on_queue = disk, now_ms, on_queue
        self.runs: dict[str, Run] = {}
        """By token."""
        self.outcomes: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        """By reason."""
        self.hours: dict[int, Hour] = {}
        """By the number of the hour since the epoch."""
        self.pools: dict[tuple[str, str], PoolUse] = {}
        self.slots: dict[tuple[str, bytes], Missed] = {}
        """By instance and key."""

    def begin(self) -> None:
        """Take in what is there before anything happens: caps of pools, held slots, queues with work."""
        for actor in self.disk.maps:
            instance = actor.removeprefix(PREFIX)
            for key, value in self._rows(actor, b"pool/"):
                self._pool(instance, key, value)
            for key, value in self._rows(actor, b"lease/"):
                self._lease(actor, key, value, {})
            for key, _ in self._rows(actor, b"lines/"):
                self._line(instance, *split_lines_key(key))

    def _rows(self, actor: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return self.disk.maps[actor].range(prefix, after(prefix), ALL, False)

    # ---- While it runs -----------------------------------------------------------------------------

    def commit(self, writes: Sequence[ActorWrites]) -> None:
        """Look at what is about to be committed."""
        for one in writes:
            instance = one.name.removeprefix(PREFIX)
            for key, value in one.rows.items():
                family = key.partition(b"/")[0]
                if family == b"lease":
                    self._lease(one.name, key, value, one.rows)
                elif family == b"hist" and value is not None:
                    self.outcomes[decode(HistRow, key, value).outcome] += 1
                elif family == b"slot" and value is not None:
                    self._slot(one.name, instance, key, decode(SlotRow, key, value))
                elif family == b"pool" and value is not None:
                    self._pool(instance, key, value)
                elif family == b"parked" and value is not None:
                    self.deaths[decode(ParkedRow, key, value).reason] += 1
                elif family == b"lines" and value is not None:
                    self._line(instance, *split_lines_key(key))

    def _lease(self, actor: str, key: bytes, value: bytes | None, rows: Mapping[bytes, bytes | None]) -> None:
        job_id, token = split_lease_key(key)
        if value is None:
            if (ended := self.runs.pop(token, None)) is not None and ended.pool:
                self._use(ended.instance, ended.pool).freed(self.now_ms())
            return
        if token in self.runs:
            return  # extended, or of another kind
        lease = decode(LeaseRow, key, value)
        raw = rows.get(job_key(job_id)) or self.disk.maps[actor].get(job_key(job_id))
        job = None if raw is None else decode(JobRow, job_key(job_id), raw)
        path = "" if job is None else job.target
        self.runs[token] = run = Run(
            actor.removeprefix(PREFIX),
            job_id,
            path,
            lease.pool,
            "orphan" if lease.orphan else lease.kind,
            lease.started,
        )
        late = max(lease.started - lease.at.next_at, 0)
        if rows:  # else it was held before
            now = self.now_ms()
            hour = self.hours.setdefault(now // HOUR_MS, Hour())
            hour.fires += 1
            hour.late.append(late)
        if lease.pool:
            self._use(run.instance, lease.pool).taken(self.now_ms(), late if rows else None)

    def _slot(self, actor: str, instance: str, key: bytes, row: SlotRow) -> None:
        before = 0
        if (instance, key) not in self.slots and (old := self.disk.maps[actor].get(key)) is not None:
            before = decode(SlotRow, key, old).count or 0  # of a run that goes on, which began before the rehearsal
        self.slots[instance, key] = Missed(row.state, row.reason, max((row.count or 0) - before, 1))

    def _pool(self, instance: str, key: bytes, value: bytes) -> None:
        name = key.decode().partition("/")[2]
        self._use(instance, name).set(decode(PoolRow, key, value), self.now_ms())

    def _use(self, instance: str, pool: str) -> PoolUse:
        use = self.pools.get((instance, pool))
        if use is None:
            use = self.pools[instance, pool] = PoolUse(self.now_ms())
        return use

    def _line(self, instance: str, pool: str, line: str) -> None:
        if line and (queue := queue_in(line)):
            self._on_queue(instance, queue)

    # ---- At the end --------------------------------------------------------------------------------

    def end(self, now: int) -> Counter[tuple[str, str]]:
        """Count what is due and has not started, by instance and pool; pools learn how long it has waited."""
        waiting: Counter[tuple[str, str]] = Counter()
        for actor in self.disk.maps:
            instance = actor.removeprefix(PREFIX)
            for key, _ in self._rows(actor, b"line/"):
                due = split_line_tail(key)[0]
                if due < now:
                    pool = key.split(b"/", 2)[1].decode()
                    waiting[instance, pool] += 1
                    if pool:
                        self._use(instance, pool).still_waits(now - due)
        for use in self.pools.values():
            use.pass_time(now)
        return waiting


class WatchedStore(MemoryProvider):
    """A store in memory whose commits are watched."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch.disk)
        self._watch = watch

    async def write(self, writes: Sequence[ActorWrites]) -> None:
        await self.hop()
        self._watch.commit(writes)
        self.disk.apply(writes)
