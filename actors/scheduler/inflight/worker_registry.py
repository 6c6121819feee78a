"""The workers of a host, as their snapshots describe them: in memory, bounded, and forgotten when silent."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.records import WorkerPage, WorkerRecord
from tocsin.dispatch.pulled import EVERY_QUEUE, WorkerJob, WorkerSnapshot
from tocsin.dispatch.words import member
from tocsin.errors import InvalidInputError

LOST_S: Final = 30.0
FORGOTTEN_S: Final = 5 * 60.0
MAX_WORKERS: Final = 10_000
"""On one host; over it, those silent for the longest time are forgotten first."""
MAX_JOBS: Final = 100
"""Shown of one worker."""
MAX_TEXT: Final = 256
MAX_INSTANT: Final = 10**15 - 1
LOST: Final = "lost"
STATUSES: Final = ("idle", "busy", "stopping", "stopped")


class WorkerRegistry:
    """The workers of all schedulers of a host, by the clock of the host: those of workers may be wrong."""

    def __init__(self, clock: Clock, limit: int = MAX_WORKERS) -> None:
        self._clock, self._limit = clock, limit
        self._seen: OrderedDict[tuple[str, str], tuple[float, WorkerSnapshot]] = OrderedDict()
        """By instance and worker, the one heard of last at the end."""

    def note(self, instance: str, snapshot: object) -> None:
        """Keep the snapshot of a worker. InvalidInputError names the member that is not valid."""
        worker = checked(snapshot)
        heard_at, now = self._clock.now_ms(), self._clock.monotonic()
        self._seen.pop((instance, worker.id), None)
        heard = msgspec.structs.replace(worker, heartbeat_at=heard_at, jobs=tuple(worker.jobs[:MAX_JOBS]))
        self._seen[instance, worker.id] = now, heard
        self._forget(now)
        while len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    def page(self, instance: str, after: str, limit: int) -> WorkerPage:
        """Return workers of an instance by id, those behind `after`."""
        now = self._clock.monotonic()
        self._forget(now)
        found = sorted(id for name, id in self._seen if name == instance and id > after)
        workers = [_record(*self._seen[instance, id], now) for id in found[:limit]]
        more = len(found) > limit
        return WorkerPage(workers=workers, truncated=more, cursor=workers[-1].id if more else None)

    def statuses(self) -> Counter[str]:
        """Count the workers by status; those that were silent for too long are `lost`."""
        now = self._clock.monotonic()
        self._forget(now)
        return Counter(
            LOST if now - heard_at > LOST_S and one.status != "stopped" else one.status
            for heard_at, one in self._seen.values()
        )

    def _forget(self, now: float) -> None:
        while self._seen:
            heard_at, _ = next(iter(self._seen.values()))
            if heard_at > now - FORGOTTEN_S:
                return
            self._seen.popitem(last=False)


def _record(heard_at: float, snapshot: WorkerSnapshot, now: float) -> WorkerRecord:
    members = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    return WorkerRecord(**members, lost=now - heard_at > LOST_S and snapshot.status != "stopped")


def checked(snapshot: object) -> WorkerSnapshot:
    """Return what is a snapshot; InvalidInputError names the member that is not valid."""
    if not isinstance(snapshot, WorkerSnapshot):
        raise InvalidInputError(f"snapshot must be a WorkerSnapshot, not {type(snapshot).__name__}")
    _text(snapshot.name, "name")
    _text(snapshot.hostname, "hostname")
    if snapshot.status not in STATUSES:
        raise InvalidInputError(f"status must be one of {', '.join(STATUSES)}, not {snapshot.status!r:.80}")
    started_at, heartbeat_at, path = member("started_at"), member("heartbeat_at"), member("function_path")
    arguments.plain_name(snapshot.id, "id")
    if snapshot.pid is not None:
        arguments.integer(snapshot.pid, "pid", 0, 2**63 - 1)
    if snapshot.queues != EVERY_QUEUE:
        arguments.queues_of(snapshot.queues, "queues")
    arguments.queues_of(snapshot.exclude, "exclude")
    arguments.integer(snapshot.concurrency, "concurrency", 1, 1_000_000)
    arguments.integer(snapshot.started_at, started_at, 0, MAX_INSTANT)
    arguments.integer(snapshot.heartbeat_at, heartbeat_at, 0, MAX_INSTANT)
    if not isinstance(snapshot.jobs, Sequence) or not all(isinstance(one, WorkerJob) for one in snapshot.jobs):
        raise InvalidInputError(f"jobs must be a list of jobs: id, {path} or workflow, attempt, {started_at}")
    for n, job in enumerate(snapshot.jobs[:MAX_JOBS]):
        place = f"jobs[{n}]"
        if not isinstance(job.id, str) or not 1 <= len(job.id) <= 64:
            raise InvalidInputError(f"{place}.id must be the id of a job")
        _text(job.function_path, f"{place}.{path}", arguments.MAX_TARGET)
        _text(job.workflow, f"{place}.workflow", arguments.MAX_TARGET)
        arguments.integer(job.attempt, f"{place}.attempt", 1, MAX_INSTANT)
        arguments.integer(job.started_at, f"{place}.{started_at}", 0, MAX_INSTANT)
    return snapshot


def _text(value: object, name: str, most: int = MAX_TEXT) -> None:
    if value is not None and (not isinstance(value, str) or len(value) > most):
        raise InvalidInputError(f"{name} must be a text of at most {most} characters")
