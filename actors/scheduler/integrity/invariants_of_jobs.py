"""Read the rows of one scheduler a page at a time, and check the invariants of every job.

Memory: leases, pools and faults, not jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tocsin.actors.scheduler.integrity.findings import Findings, shown
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.damage import json_fault
from tocsin.actors.scheduler.model.flow_rows import FLOW_LAYOUT
from tocsin.actors.scheduler.model.followers import followers_of, on_dead_of
from tocsin.actors.scheduler.model.line_names import line_of
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rate_rows import RateRow
from tocsin.actors.scheduler.model.row_kinds import BAD, FAMILIES, Shape, read_row
from tocsin.actors.scheduler.model.rows import (
    INSTANCE,
    LAYOUT,
    META_COUNTERS,
    META_LAYOUT,
    META_RECOUNT,
    AtRow,
    BadRow,
    DeadRow,
    InstanceRow,
    JobRow,
    LeaseRow,
    ParkedRow,
    PoolRow,
    args_key,
    encode,
    line_key,
    parked_key,
    timer_key,
)
from tocsin.actors.scheduler.state.groups import uid_of
from tocsin.actors.scheduler.state.in_memory_view import InMemoryView
from tocsin.actors.scheduler.state.labels import META_LABELS, SINCE_LAYOUT, dead_rows, live_rows
from tocsin.actors.scheduler.state.layout import layout_of
from tocsin.actors.scheduler.state.path_counts import keys_of
from tocsin.actors.scheduler.state.scheduler_state import EXPIRE, RETIRE
from tocsin.storage.api import Row, StoreView, after, row_pages

PAGE = 1_000
KNOWN = {*(family + b"/" for family in FAMILIES), BAD, INSTANCE, b"meta/"}
Held = tuple[str, str, LeaseRow]
"""The id, token and row of a lease."""


@dataclass(slots=True)
class Look:
    """The state of a check: what has been read so far."""

    view: StoreView
    wake_at: int | None
    found: Findings = field(default_factory=Findings)
    counters: Counters = field(default_factory=Counters)
    is_recounted: bool = False
    """Set if a job row was set aside: dependent rows are corrected at the next start."""
    has_labels: bool = True
    """Set if the rows of labels are complete."""
    paused: bool = False
    sealed: bool = False
    """True once it has left for another place."""
    clock: ClockRow | None = None
    """The test clock, if it has one."""
    pools: dict[str, PoolRow] = field(default_factory=dict)
    rates: dict[str, RateRow] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    by_id: dict[str, list[Held]] = field(default_factory=dict)
    owned: set[tuple[str, str]] = field(default_factory=set)
    """Id and token of leases whose job exists."""
    expected: Counter[str] = field(default_factory=Counter)
    """By family, or kind of timer: the number of rows found in their place. If the store has more, some are stray."""
    letters: int = 0
    paths: Counter[bytes] = field(default_factory=Counter)
    grouped: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """By the uid of their group: how many live, and how many are dead."""
    """By key: the number of live jobs of each function path, chained ones included."""
    missing: dict[str, bytes] = field(default_factory=dict)
    """By id: the place in line that a job should have and lacks."""
    counts_paths: bool = True
    """Cleared if the next start counts paths anew: after a row was set aside, or in layout 1, which had none."""
    only_families: bool = False
    """Set once it is known that there is no row of another kind."""
    _present: set[bytes] = field(default_factory=set)

    # ---- Reading -------------------------------------------------------------------------------------

    async def rows(self, start: bytes, end: bytes, limit: int = PAGE) -> AsyncIterator[Sequence[Row]]:
        """Yield pages of raw rows."""
        async for page in row_pages(self.view, start, end, limit):
            self.found.rows += len(page)
            yield page

    async def look_around(self) -> None:
        """Find out which families exist: most schedulers have few."""
        if isinstance(self.view, InMemoryView):
            self._present = self.view.prefixes()
            meta = {key for key, _ in await self.view.scan(b"meta/", after(b"meta/"), limit=PAGE)}
            self.only_families = self._present <= KNOWN and meta <= {META_COUNTERS, META_LAYOUT}
            return
        families = [*(family + b"/" for family in FAMILIES), BAD]
        firsts = await self.view.scan_many([(prefix, after(prefix), 1) for prefix in families])
        self._present = {prefix for prefix, rows in zip(families, firsts, strict=True) if rows}

    def of(self, prefix: bytes) -> AsyncIterator[Sequence[Row]]:
        """Yield pages of the rows with this prefix."""
        return self.rows(prefix, after(prefix)) if prefix in self._present else _Nothing()

    def shapes(self, family: bytes) -> AsyncIterator[list[Shape]]:
        """Yield pages of the readable rows of a family; report the others."""
        return self._shapes(family) if family + b"/" in self._present else _Nothing()

    async def _shapes(self, family: bytes) -> AsyncIterator[list[Shape]]:
        async for page in self.rows(family + b"/", after(family + b"/")):
            yield [shape for row in page if (shape := self.read(row)) is not None]

    async def has_strays(self, family: str) -> bool:
        """Read a family, and return whether it has more rows than were found in their place."""
        return sum([len(shapes) async for shapes in self.shapes(family.encode())]) > self.expected[family]

    def read(self, row: Row) -> Shape | None:
        try:
            return read_row(*row)
        except BadRow as error:
            self.found.add("UNREADABLE", shown(row[0]), f"unreadable: {error}")
            return None

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self.view.get(keys) if keys else {}

    # ---- The instance --------------------------------------------------------------------------------

    async def instance(self) -> bool:
        """Return False if the rows cannot be judged: a newer layout, or a removal under way."""
        meta = await self.view.get([META_LAYOUT, META_COUNTERS, META_RECOUNT, META_LABELS, INSTANCE, CLOCK])
        self.found.rows += len(meta)
        if (layout := layout_of(meta)) is None:
            layout = b"%d" % LAYOUT
        if not layout.isdigit() or len(layout) > 9 or int(layout) > FLOW_LAYOUT:
            self.found.add("LAYOUT", "meta/layout", f"layout {shown(layout[:40])} is not one up to {FLOW_LAYOUT}")
            return False
        self.is_recounted = META_RECOUNT in meta
        self.counts_paths = int(layout) >= 2 and not self.is_recounted
        self.has_labels = int(layout) >= SINCE_LAYOUT and META_LABELS not in meta
        for key in (META_COUNTERS, INSTANCE, CLOCK):
            shape = self.read((key, meta[key])) if key in meta else None
            if shape is not None and isinstance(shape.row, Counters):
                self.counters = shape.row
            if shape is not None and isinstance(shape.row, InstanceRow):
                self.found.removing, moving = shape.row.erasing, shape.row.moving
                self.paused = shape.row.paused or moving is not None
                self.sealed = moving is not None and moving[2]
            if shape is not None and isinstance(shape.row, ClockRow):
                self.clock = shape.row
        if self.found.removing:
            if self.wake_at is None:
                self.found.add("WAKE", "wake_at", "wake_at is None, but this instance is being removed")
            return False
        async for shapes in self.shapes(b"pool"):
            self.pools.update((shape.names[0], shape.row) for shape in shapes)
        async for shapes in self.shapes(b"rate"):
            self.rates.update((shape.names[0], shape.row) for shape in shapes)
        return True

    async def leases(self) -> None:
        tokens: set[str] = set()
        async for shapes in self.shapes(b"lease"):
            for shape in shapes:
                if shape.names[1] in tokens:
                    self.found.add("TWO_PLACES", shape.names[0], f"lease {shape.names[1]} is of two jobs")
                tokens.add(shape.names[1])
                held = (shape.names[0], shape.names[1], shape.row)
                self.held.append(held)
                self.by_id.setdefault(held[0], []).append(held)

    # ---- Jobs ----------------------------------------------------------------------------------------

    async def jobs(self) -> None:
        """Yield pages of jobs with all rows of `at/` and `dead/` from the end of the previous page to their own end."""
        start = b""
        while True:
            page = await self.view.scan(b"job/" + start, after(b"job/"), limit=PAGE)
            self.found.rows += len(page)
            end = page[-1][0][4:] + b"\x00" if page else None
            at, dead = await self._between(b"at/", start, end), await self._between(b"dead/", start, end)
            jobs = [shape.row for row in page if (shape := self.read(row)) is not None]
            await self._judge(jobs, at, dead)
            if end is None:
                break
            start = end
        for job_id, token, lease in self.held:
            if (job_id, token) not in self.owned and not lease.orphan:
                self.found.add("NO_JOB", job_id, f"lease {token} of {job_id} has no job and is no orphan")

    async def _between(self, prefix: bytes, start: bytes, end: bytes | None) -> dict[str, Any]:
        stop = after(prefix) if end is None else prefix + end
        read: dict[str, Any] = {}
        if prefix not in self._present:
            return read
        async for page in self.rows(prefix + start, stop):
            self.letters += len(page) if prefix == b"dead/" else 0
            read.update((shape.names[0], shape.row) for row in page if (shape := self.read(row)) is not None)
        return read

    async def _judge(self, jobs: Sequence[JobRow], at: dict[str, AtRow], dead: dict[str, DeadRow]) -> None:
        self.found.jobs += len(jobs)
        self.paths.update(key for job in jobs if job.id not in dead for key in keys_of(job))
        self.grouped.update((uid_of(job), job.id in dead) for job in jobs if job.extras is not None)
        ids = {job.id for job in jobs}
        for job_id in at.keys() - ids:
            self.found.add("NO_JOB", job_id, f"at/{job_id} is there, but that job is not")
        for job_id in dead.keys() - ids:
            self.found.add("NO_JOB", job_id, f"dead/{job_id} has no job")
        looks = [_of(job, at.get(job.id), dead.get(job.id), self) for job in jobs]
        keys = [
            key for look in looks for key in (look.line, look.parked, look.expire, look.retire, *look.labels) if key
        ]
        there: dict[bytes, bytes] = {}
        for first in range(0, len(keys), 5_000):
            there.update(await self.get(keys[first : first + 5_000]))
        for look in looks:
            self._judge_one(look, there)
        await self._judge_args(jobs)

    def _judge_one(self, look: _OfJob, there: dict[bytes, bytes]) -> None:
        found, job_id = self.found, look.job.id
        places = look.holders + (look.dead is not None)
        in_line = look.line in there
        if places + in_line > 1:
            found.add(
                "TWO_PLACES", job_id, f"job {job_id} is in {places + in_line} places (line, lease, dead), not one"
            )
        elif not places and not in_line:
            self.missing[job_id] = look.line
        self.expected["line"] += in_line
        if places and look.at is not None:
            found.add("LEFTOVER", job_id, f"at/{job_id} is there, but that job does not wait")
        self._judge_labels(look, there)
        if look.dead is not None:
            self._judge_letter(look, look.dead, there)
        if look.expire is not None:
            self.expected[EXPIRE] += look.expire in there
            waits = not places and (look.at is None or look.at.expires)
            if waits and look.expire not in there:
                found.add("TIMER_MISSING", job_id, f"job {job_id} expires at {look.job.expires_at} and has no timer")

    def _judge_labels(self, look: _OfJob, there: dict[bytes, bytes]) -> None:
        for key, right in look.labels.items():
            said = there.get(key)
            self.expected[key[: key.index(b"/")].decode()] += said is not None
            if said != right and (said is not None or self.has_labels):
                self.found.add("LABELS", look.job.id, f"{shown(key)} does not say how job {look.job.id} stands")

    def _judge_letter(self, look: _OfJob, dead: DeadRow, there: dict[bytes, bytes]) -> None:
        job = look.job
        said = there.get(look.parked or b"")
        row = ParkedRow(dead.reason, job.pool, job.target)
        if said is None:
            self.found.add("PARKED", job.id, f"parked/ and dead/ differ: dead job {job.id} is not in parked/")
        else:
            self.expected["parked"] += 1
            if said != encode(row):
                self.found.add("PARKED", job.id, f"parked/ says of dead job {job.id} what is not so")
        if look.retire is not None:
            self.expected[RETIRE] += look.retire in there
            if look.retire not in there:
                self.found.add(
                    "TIMER_MISSING", job.id, f"dead job {job.id} is dropped at {dead.retire_at} and has no timer"
                )

    async def _judge_args(self, jobs: Sequence[JobRow]) -> None:
        """Check args: look up the pieces of the few jobs that have some; complete args must be JSON."""
        for job in jobs:
            args = job.args
            if job.args_rows:
                keys = [args_key(job.id, n) for n in range(job.args_rows)]
                pieces = await self.get(keys)
                self.expected["args"] += len(pieces)
                if lost := len(keys) - len(pieces):
                    self.found.add(
                        "ARGS_LOST", job.id, f"job {job.id} has {lost} of {len(keys)} pieces of args too few"
                    )
                    continue
                args += b"".join(pieces[key] for key in keys)
            parts = parts_of(job, args)
            if json_fault(parts.args) is not None:
                self.found.add("ARGS_LOST", job.id, f"the args of job {job.id} are not JSON")
            if parts.parent_result and json_fault(parts.parent_result) is not None:
                self.found.add("ARGS_LOST", job.id, f"what the parent of job {job.id} came to is not JSON")
            if not _is_chain(job, args):
                self.found.add("ARGS_LOST", job.id, f"what is to follow job {job.id} cannot be read")


class _Nothing:
    """An iterator without pages."""

    def __aiter__(self) -> _Nothing:
        return self

    async def __anext__(self) -> Any:
        raise StopAsyncIteration


@dataclass(frozen=True, slots=True)
class _OfJob:
    """A job, and the keys of the rows that it must have."""

    job: JobRow
    at: AtRow | None
    dead: DeadRow | None
    holders: int
    line: bytes
    parked: bytes | None = None
    expire: bytes | None = None
    retire: bytes | None = None
    labels: dict[bytes, bytes] = field(default_factory=dict)
    """The rows that must exist, with their values."""


def place_of(job: JobRow, at: AtRow | None) -> bytes:
    """Return the key of a waiting job's line row. `at` is the job's own row of its place; None if it has none."""
    at = at or AtRow(job.scheduled_for)
    return line_key(job.pool, line_of(job, at), job.priority, at.next_at, job.id)


def _of(job: JobRow, at: AtRow | None, dead: DeadRow | None, look: Look) -> _OfJob:
    holders, running = 0, at
    for _, token, lease in look.by_id.get(job.id, ()):
        if lease.incarnation == job.incarnation:
            look.owned.add((job.id, token))
            holders += not lease.orphan
            running = running if lease.orphan else lease.at
    return _OfJob(
        job,
        at,
        dead,
        holders,
        place_of(job, at),
        parked=None if dead is None else parked_key(dead.parked_at, job.id),
        expire=None if job.expires_at is None else timer_key(job.expires_at, EXPIRE, job.id),
        retire=None if dead is None or dead.retire_at is None else timer_key(dead.retire_at, RETIRE, job.id),
        labels=_labels(job, running, dead) if job.labels else {},
    )


def _labels(job: JobRow, at: AtRow | None, dead: DeadRow | None) -> dict[bytes, bytes]:
    due = job.scheduled_for if at is None else at.next_at
    return dict(live_rows(job, due) if dead is None else dead_rows(job, dead))


def _is_chain(job: JobRow, whole: bytes) -> bool:
    try:
        followers_of(job, whole)
        on_dead_of(job, whole)
    except BadRow:
        return False
    return True
