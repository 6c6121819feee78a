"""Index jobs by label: `label/<label>/<id>` for live jobs, with the instant of their next attempt, and
`deadlabel/<label>/<parked>/<id>` for dead ones. So a list by label reads only what it shows.

The rows change in the commit of what they follow from. In a scheduler of a layout without them they are filled in, a
page a turn; meanwhile lists walk all jobs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Final

from tocsin.actors.runtime.overlay import ActorStorage
from tocsin.actors.scheduler.model.rows import (
    META_COUNTERS,
    META_LAYOUT,
    AtRow,
    BadRow,
    DeadRow,
    JobRow,
    ParkedRow,
    R,
    at_key,
    dead_key,
    decode,
    encode,
    job_key,
)
from tocsin.actors.scheduler.state.layout import layout_of
from tocsin.storage.api import Row, StoreView, after, each_row

LIVE: Final = b"label/"
DEAD: Final = b"deadlabel/"
META_LABELS: Final = b"meta/labels"
"""Exists while rows are missing: the key of the job with which the filling goes on."""
SINCE_LAYOUT: Final = 3
FILLED_AT_ONCE: Final = 100
"""How many jobs are read in a turn, each with its args."""
PAGE: Final = 1_000
STRAYS_AT_ONCE: Final = 200


def live_prefix(label: str) -> bytes:
    return b"label/%b/" % label.encode()


def dead_prefix(label: str) -> bytes:
    return b"deadlabel/%b/" % label.encode()


def live_rows(job: JobRow, due: int) -> Iterator[Row]:
    for label in set(job.labels):
        yield live_prefix(label) + job.id.encode(), b"%015d" % due


def dead_rows(job: JobRow, dead: DeadRow) -> Iterator[Row]:
    """Return the rows of a dead job; each holds what its row `parked/` holds."""
    said = encode(ParkedRow(dead.reason, job.pool, job.target)) if job.labels else b""
    for label in set(job.labels):
        yield dead_prefix(label) + b"%015d/%b" % (dead.parked_at, job.id.encode()), said


class Labels:
    """Part of the state, and dropped with it when a turn fails."""

    def __init__(self, storage: ActorStorage) -> None:
        self._storage = storage
        self.next_to_fill: bytes | None = None
        """The key of the job with which the filling goes on; None: no rows are missing."""

    def load(self, layout: int, place: bytes | None) -> None:
        """Take over what is stored: `layout` as found, 0 for none; `place` from the row `meta/labels`."""
        self.next_to_fill = place
        if 0 < layout < SINCE_LAYOUT:
            self.next_to_fill = b"job/"
            self._storage.put(META_LABELS, self.next_to_fill)

    def filled(self) -> None:
        self.next_to_fill = None
        self._storage.delete(META_LABELS)

    # ---- One job ---------------------------------------------------------------------------------

    def wait(self, job: JobRow, due: int) -> None:
        for key, value in live_rows(job, due):
            self._storage.put(key, value)

    def erase(self, job: JobRow) -> None:
        for key, _ in live_rows(job, 0):
            self._storage.delete(key)

    def park(self, job: JobRow, dead: DeadRow) -> None:
        self.erase(job)
        for key, value in dead_rows(job, dead):
            self._storage.put(key, value)

    def unpark(self, job: JobRow, dead: DeadRow) -> None:
        for key, _ in dead_rows(job, dead):
            self._storage.delete(key)

    # ---- All of them -----------------------------------------------------------------------------

    async def fill(self, start: bytes, running: Callable[[str], AtRow | None]) -> None:
        """Fill in the rows of a page of jobs from this key on. `running` returns the place that a job's lease holds."""
        page = await self._storage.scan(start, after(b"job/"), limit=FILLED_AT_ONCE)
        jobs = [job for row in page if (job := _row(JobRow, *row)) is not None and job.labels]
        rows = await self._storage.get_many([key for job in jobs for key in (at_key(job.id), dead_key(job.id))])
        for job in jobs:
            if (letter := rows.get(dead_key(job.id))) is not None:
                dead = _row(DeadRow, b"", letter)
                missing = dead_rows(job, dead) if dead is not None else ()
            else:
                at = running(job.id) or _row(AtRow, b"", rows.get(at_key(job.id), b""))
                missing = live_rows(job, job.scheduled_for if at is None else at.next_at)
            for key, value in missing:
                self._storage.put(key, value)
        if len(page) < FILLED_AT_ONCE:
            self.filled()
        else:
            self.next_to_fill = page[-1][0] + b"\x00"
            self._storage.put(META_LABELS, self.next_to_fill)

    async def replace(self, right: Mapping[bytes, bytes]) -> None:
        """Make the index hold these rows and no others. Missing rows are left to `fill` while it is at work."""
        missing = dict(right)
        async for key, value in self._all():
            said = missing.pop(key, None)
            if said is None:
                self._storage.delete(key)
            elif said != value:
                self._storage.put(key, said)
        if self.next_to_fill is None:
            for key, value in missing.items():
                self._storage.put(key, value)

    async def drop_strays(self) -> None:
        """Delete rows of jobs that do not exist: the job rows could not be read, and were set aside."""
        some: list[bytes] = []
        async for key, _ in self._all():
            some.append(key)
            if len(some) == STRAYS_AT_ONCE:
                await self._drop(some)
                some = []
        await self._drop(some)

    async def _drop(self, keys: Iterable[bytes]) -> None:
        owners = {key: job_key(key.rsplit(b"/", 1)[1].decode()) for key in keys}
        there = await self._storage.get_many(sorted(set(owners.values())))
        for key, owner in owners.items():
            if owner not in there:
                self._storage.delete(key)

    async def _all(self) -> AsyncIterator[Row]:
        for start, end in ((LIVE, after(LIVE)), (DEAD, after(DEAD))):
            async for row in each_row(self._storage, start, end, PAGE):
                yield row


def _row(kind: type[R], key: bytes, value: bytes) -> R | None:
    try:
        return decode(kind, key, value)
    except BadRow:
        return None  # the turn that needs the row sets it aside


async def are_filled(view: StoreView) -> bool:
    """Return whether a list may rely on the index."""
    meta = await view.get([META_LAYOUT, META_COUNTERS, META_LABELS])
    layout = layout_of(meta) or b"%d" % SINCE_LAYOUT
    return META_LABELS not in meta and layout.isdigit() and int(layout) >= SINCE_LAYOUT
