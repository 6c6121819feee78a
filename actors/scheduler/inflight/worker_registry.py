"""Which workers there are, as they say of themselves: in this host's memory, bounded, and forgotten when silent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tocsin.actors.scheduler.model import validation as arguments
from tocsin.actors.scheduler.model.records import WorkerPage, WorkerRecord
from tocsin.dispatch.pulled import EVERY_QUEUE, WorkerJob, WorkerSnapshot
from tocsin.dispatch.words import member
from tocsin.errors import InvalidInputError

LOST_S: Final = 30.0
FORGOTTEN_S: Final = 5 * 60.0
MAX_WORKERS: Final = 10_000
"""On one host; over it, who has been silent for the longest time is forgotten first."""
MAX_JOBS: Final = 100
"""Shown of one worker."""
MAX_TEXT: Final = 256
STATUSES: Final = ("idle", "busy", "stopping", "stopped")


class WorkerRegistry:
    """The workers of all schedulers of a host. `monotonic` is its clock: those of workers may be wrong."""

    def __init__(self, monotonic: Callable[[], float], limit: int = MAX_WORKERS) -> None:
        self._monotonic, self._limit = monotonic, limit
        self._seen: OrderedDict[tuple[str, str], tuple[float, WorkerSnapshot]] = OrderedDict()
        """By instance and worker, the one heard of last at the end."""

    def note(self, instance: str, snapshot: WorkerSnapshot, now_ms: int) -> None:
        """A worker has spoken, at `now_ms`."""
        self._seen.pop((instance, snapshot.id), None)
        heard = msgspec.structs.replace(snapshot, heartbeat_at=now_ms, jobs=tuple(snapshot.jobs[:MAX_JOBS]))
        self._seen[instance, snapshot.id] = self._monotonic(), heard
        self._forget()
        while len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    def page(self, instance: str, after: str, limit: int) -> WorkerPage:
        """Workers of an instance by id, those behind `after`."""
        self._forget()
        now = self._monotonic()
        found = sorted(id for name, id in self._seen if name == instance and id > after)
        workers = [_record(*self._seen[instance, id], now) for id in found[:limit]]
        more = len(found) > limit
        return WorkerPage(workers=workers, truncated=more, cursor=workers[-1].id if more else None)

    def _forget(self) -> None:
        before = self._monotonic() - FORGOTTEN_S
        while self._seen:
            heard_at, _ = next(iter(self._seen.values()))
            if heard_at > before:
                return
            self._seen.popitem(last=False)


def _record(heard_at: float, snapshot: WorkerSnapshot, now: float) -> WorkerRecord:
    members = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    return WorkerRecord(**members, lost=now - heard_at > LOST_S and snapshot.status != "stopped")


def checked(snapshot: object) -> WorkerSnapshot:
    """InvalidInputError names the member that cannot be so."""
    if not isinstance(snapshot, WorkerSnapshot):
        raise InvalidInputError(f"snapshot must be a WorkerSnapshot, not {type(snapshot).__name__}")
    arguments.plain_name(snapshot.id, "id")
    for name in ("name", "hostname"):
        _text(getattr(snapshot, name), name)
    if snapshot.pid is not None:
        arguments.integer(snapshot.pid, "pid", 0, 2**63 - 1)
    if snapshot.queues != EVERY_QUEUE:
        arguments.queues_of(snapshot.queues, "queues")
    arguments.queues_of(snapshot.exclude, "exclude")
    arguments.integer(snapshot.concurrency, "concurrency", 1, 1_000_000)
    if snapshot.status not in STATUSES:
        raise InvalidInputError(f"status must be one of {', '.join(STATUSES)}, not {snapshot.status!r:.80}")
    for name in ("started_at", "heartbeat_at"):
        arguments.integer(getattr(snapshot, name), member(name), 0, 10**15 - 1)
    if not isinstance(snapshot.jobs, Sequence) or not all(isinstance(one, WorkerJob) for one in snapshot.jobs):
        raise InvalidInputError(
            f"jobs must be a list of jobs: id, {member('function_path')} or workflow, attempt, {member('started_at')}"
        )
    for n, job in enumerate(snapshot.jobs[:MAX_JOBS]):
        _check_job(job, f"jobs[{n}]")
    return snapshot


def _check_job(job: WorkerJob, place: str) -> None:
    if not isinstance(job.id, str) or not 1 <= len(job.id) <= 64:
        raise InvalidInputError(f"{place}.id must be the id of a job")
    for name, value in ((member("function_path"), job.function_path), ("workflow", job.workflow)):
        _text(value, f"{place}.{name}", arguments.MAX_TARGET)
    arguments.integer(job.attempt, f"{place}.attempt", 1, 10**15 - 1)
    arguments.integer(job.started_at, f"{place}.{member('started_at')}", 0, 10**15 - 1)


def _text(value: object, name: str, most: int = MAX_TEXT) -> None:
    if value is not None and (not isinstance(value, str) or len(value) > most):
        raise InvalidInputError(f"{name} must be a text of at most {most} characters")
