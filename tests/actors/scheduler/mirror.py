"""What a watcher knows of a scheduler by its feed, kept as docs/feed.md says; what lists say, to compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocsin.actors.scheduler.client.scheduler import Scheduler
from tocsin.actors.scheduler.model.feed_frames import Change, ChangedJob
from tocsin.actors.scheduler.model.records import Record

Standing = tuple[Any, ...]


def standing(one: ChangedJob | Record) -> Standing:
    """How a job stands. Whether one that waits is due follows from the clock alone."""
    state = "waits" if one.state in ("pending", "waiting") else one.state
    lease = None if one.lease is None else (one.lease.kind, one.lease.until)
    return one.incarnation, state, one.scheduled_for, one.next_attempt_at, one.attempt, one.attempts, lease, one.reason


class Mirror:
    """Jobs by id. `stale`: a list is to be read, for the snapshot has not all of them."""

    def __init__(self) -> None:
        self.jobs: dict[str, Standing] = {}
        self.seq: str | None = None
        self.stale = True
        self.resyncs = self.frames = 0
        self.ends: dict[str, str] = {}

    def take(self, frame: Change) -> None:
        self.seq = frame.seq
        self.frames += 1
        if frame.type == "resync":
            self.resyncs += 1
            self.jobs.clear()
        if frame.type == "snapshot":
            assert frame.status is not None
            self.stale = frame.truncated or frame.status.dead > 0
            self.jobs = {}
        self.jobs.update({one.id: standing(one) for one in frame.jobs})
        for gone in frame.gone:
            self.jobs.pop(gone.id, None)
            self.ends[gone.id] = gone.how

    def load(self, records: Sequence[Record], after: Sequence[Change]) -> None:
        """Take what lists said, and the frames that came meanwhile once more."""
        self.jobs = {one.id: standing(one) for one in records}
        self.stale = False
        for frame in after:
            self.take(frame)


async def listed(jobs: Scheduler) -> list[Record]:
    """Every job there is, dead ones too."""
    found = [one async for one in jobs.list_all()]
    cursor: str | None = None
    while True:
        page = await jobs.dead(limit=1000, cursor=cursor)
        found += page.records
        if not page.truncated:
            return found
        cursor = page.cursor


async def truth(jobs: Scheduler) -> dict[str, Standing]:
    return {one.id: standing(one) for one in await listed(jobs)}
