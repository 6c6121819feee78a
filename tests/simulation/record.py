"""The record of the one receiver, by which all who send to it are judged: what was booked as done has run there.

It knows what has run by instance, id and args: whatever the callback was called, and whoever took it for another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import HistRow, JobRow, decode, job_key
from tocsin.dispatch.receiver.received import fence_of
from tocsin.storage.combiner import ActorWrites
from tocsin.storage.memory import MemoryDisk, SortedMap

KIND = "scheduler/"
Key = tuple[str, str, int]
"""Instance, id, and the number in the args, or the slot."""


@dataclass
class Record:
    """Notes every job that was booked and has not run; whoever judges looks at `broken` at the end."""

    ran: set[Key] = field(default_factory=set)
    booked: set[Key] = field(default_factory=set)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By instance: the highest that came."""
    broken: list[str] = field(default_factory=list)

    def comes(self, content: Mapping[str, Any]) -> None:
        instance, fence = content["instanceName"], fence_of(content["lease"])
        self.fences[instance] = max(self.fences.get(instance, fence), fence)

    def runs(self, content: Mapping[str, Any]) -> None:
        """A callback is worked off, just now."""
        planned = content.get("schedule")
        what = content["args"]["n"] if planned is None else planned["slot"]
        self.ran.add((content["instanceName"], content["id"], what))

    def is_booked(self, instance: str, job: JobRow) -> None:
        """A job that is called back is done: that is about to be on disk."""
        what = msgspec.json.decode(parts_of(job, job.args).args)["n"] if job.schedule is None else job.schedule.slot
        self.booked.add((instance, job.id, what))
        if (instance, job.id, what) not in self.ran:
            self.broken.append(f"{job.id} ({what}) of {instance} is booked as done, and has never run")


class RecordedDisk(MemoryDisk):
    """Says of each commit which jobs it books as done."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def apply(self, writes: Sequence[ActorWrites]) -> None:
        for one in writes:
            if one.name.startswith(KIND):
                for job in _done(self.maps.get(one.name) or SortedMap(), one.rows):
                    self.record.is_booked(one.name.removeprefix(KIND), job)
        super().apply(writes)

    def copied(self) -> RecordedDisk:
        """A backup: what is on disk just now."""
        copy = RecordedDisk(self.record)
        for name, rows in self.maps.items():
            kept = copy.maps[name] = SortedMap()
            kept.apply(dict(rows.range(b"", b"\xff", 1_000_000, False)))
        copy.wakes = dict(self.wakes)
        return copy


def _done(before: SortedMap, rows: Mapping[bytes, bytes | None]) -> Iterator[JobRow]:
    """Jobs that are called back, and whose end is in these rows."""
    for key, value in rows.items():
        if value is None or not key.startswith(b"hist/") or decode(HistRow, key, value).outcome != "done":
            continue
        _, _, job_id, incarnation, _ = key.decode().split("/")
        row = before.get(job_key(job_id))
        job = None if row is None else decode(JobRow, job_key(job_id), row)
        if job is not None and job.incarnation == incarnation and not job.queue:
            yield job
