"""What must hold between the rows of a scheduler, checked from one snapshot of committed state.

Used by the simulation after every run, and by operators who ask whether a store is sound. Reads everything:
for tests and tools, not for a serving path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tocsin.actors.scheduler.book import queue_of
from tocsin.actors.scheduler.lines import ALONE
from tocsin.actors.scheduler.recurring.invariants import FAMILIES, TIMERS, check_schedules
from tocsin.actors.scheduler.rows import (
    LAYOUT,
    META_COUNTERS,
    META_LAYOUT,
    META_SLOT,
    META_ZONES,
    AtRow,
    BadRow,
    Counters,
    DeadRow,
    HistRow,
    IdemRow,
    InstanceRow,
    JobRow,
    LeaseRow,
    LinesRow,
    PoolRow,
    R,
    RedriveRow,
    decode,
    split_lease_key,
    split_lines_key,
    split_timer_key,
)
from tocsin.storage.api import Row, StoreView

PAGE = 5_000
OTHERS: dict[bytes, Any] = {b"hist": HistRow, b"idem": IdemRow, b"redrive": RedriveRow, b"instance": InstanceRow}
"""Families of which only that they can be read is checked."""
K = TypeVar("K")


@dataclass(slots=True)
class Snapshot:
    """All rows of one scheduler, decoded."""

    jobs: dict[str, JobRow] = field(default_factory=dict)
    args: dict[str, int] = field(default_factory=dict)
    at: dict[str, AtRow] = field(default_factory=dict)
    dead: dict[str, DeadRow] = field(default_factory=dict)
    parked: set[tuple[int, str]] = field(default_factory=set)
    leases: list[tuple[str, str, LeaseRow]] = field(default_factory=list)
    waiting: dict[str, tuple[str, str, int, int]] = field(default_factory=dict)
    """By id: pool, queue, priority, due."""
    lines: dict[tuple[str, str], LinesRow] = field(default_factory=dict)
    pools: dict[str, PoolRow] = field(default_factory=dict)
    timers: set[tuple[int, str, str]] = field(default_factory=set)
    counters: Counters = field(default_factory=Counters)
    paused: bool = False
    faults: list[str] = field(default_factory=list)


async def snapshot(view: StoreView) -> Snapshot:
    """Read everything, a page at a time: exact only while nobody writes."""
    taken = Snapshot()
    start = b"\x01"
    while True:
        rows = await view.scan(start, b"\xff", limit=PAGE)
        for row in rows:
            _enter(taken, row)
        if len(rows) < PAGE and not rows:
            return taken
        start = rows[-1][0] + b"\x00"


def _enter(taken: Snapshot, row: Row) -> None:
    key, value = row
    family, _, rest = key.partition(b"/")
    name = rest.decode()
    if family == b"job":
        _keep(taken, taken.jobs, name, JobRow, row)
    elif family == b"at":
        _keep(taken, taken.at, name, AtRow, row)
    elif family == b"dead":
        _keep(taken, taken.dead, name, DeadRow, row)
    elif family == b"pool":
        _keep(taken, taken.pools, name, PoolRow, row)
    elif family == b"lines":
        _keep(taken, taken.lines, split_lines_key(key), LinesRow, row)
    elif family == b"args":
        job_id = name.partition("/")[0]
        taken.args[job_id] = taken.args.get(job_id, 0) + 1
    elif family == b"parked":
        ms, _, job_id = name.partition("/")
        taken.parked.add((int(ms), job_id))
    elif family == b"timer":
        taken.timers.add(split_timer_key(key))
    elif family == b"line":
        pool, queue, priority, due, job_id = name.split("/")
        if job_id in taken.waiting:
            taken.faults.append(f"job {job_id} stands in line twice")
        taken.waiting[job_id] = (pool, queue, 9 - int(priority), int(due))
    else:
        _enter_rest(taken, family, key, value)


def _enter_rest(taken: Snapshot, family: bytes, key: bytes, value: bytes) -> None:
    if family in OTHERS:
        others: dict[str, Any] = {}
        _keep(taken, others, name_of(key), OTHERS[family], (key, value))
        taken.paused = taken.paused or any(isinstance(row, InstanceRow) and row.paused for row in others.values())
    elif family == b"lease":
        leases: dict[tuple[str, str], LeaseRow] = {}
        _keep(taken, leases, split_lease_key(key), LeaseRow, (key, value))
        taken.leases.extend((*name, lease) for name, lease in leases.items())
    elif key == META_COUNTERS:
        counters: dict[str, Counters] = {}
        _keep(taken, counters, "", Counters, (key, value))
        taken.counters = counters.get("", taken.counters)
    elif family.decode() in FAMILIES or key in (META_SLOT, META_ZONES):
        pass  # `check_schedules` looks at them
    elif key == META_LAYOUT:
        if int(value) > LAYOUT:
            taken.faults.append(f"layout {int(value)} is newer than {LAYOUT}")
    else:
        taken.faults.append(f"a row of no known kind: {key!r}")


def name_of(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _keep(taken: Snapshot, into: dict[K, R], name: K, kind: type[R], row: Row) -> None:
    try:
        into[name] = decode(kind, *row)
    except BadRow as error:
        taken.faults.append(f"unreadable: {error}")


# ---- The invariants ------------------------------------------------------------------------------


async def check(view: StoreView, wake_at: int | None = None) -> list[str]:
    """Every broken invariant, in words; empty if the rows are sound. `wake_at` as stored for the actor."""
    taken = await snapshot(view)
    return [
        *taken.faults,
        *_places(taken),
        *_summaries(taken),
        *_letters(taken),
        *_counts(taken),
        *_timers(taken),
        *_wakes(taken, wake_at),
        *await check_schedules(view),
    ]


def _places(taken: Snapshot) -> Iterator[str]:
    """A live job has exactly one of a line row and a lease; nothing else has either."""
    held = Counter(
        job_id
        for job_id, _, lease in taken.leases
        if not lease.orphan and job_id in taken.jobs and taken.jobs[job_id].incarnation == lease.incarnation
    )
    for job_id, job in taken.jobs.items():
        places = (job_id in taken.waiting) + held[job_id] + (job_id in taken.dead)
        if places != 1:
            yield f"job {job_id} is in {places} places (line, lease, dead), not one"
        if taken.args.get(job_id, 0) != job.args_rows:
            yield f"job {job_id} has {taken.args.get(job_id, 0)} rows of args, not {job.args_rows}"
        if job_id in taken.waiting:
            at = taken.at.get(job_id, AtRow(job.scheduled_for))
            place = (job.pool, queue_of(job, at), job.priority, at.next_at)
            if taken.waiting[job_id] != place:
                yield f"job {job_id} stands at {taken.waiting[job_id]}, not at {place}"
    for job_id in taken.waiting.keys() - taken.jobs.keys():
        yield f"a line holds {job_id}, which is no job"
    for job_id in taken.at.keys() - taken.waiting.keys():
        yield f"at/{job_id} is there, but that job does not wait"
    for job_id in taken.args.keys() - taken.jobs.keys():
        yield f"args of {job_id}, which is no job"
    for job_id, token, lease in taken.leases:
        owner = taken.jobs.get(job_id)
        if not lease.orphan and (owner is None or owner.incarnation != lease.incarnation):
            yield f"lease {token} of {job_id} has no job and is no orphan"


def _summaries(taken: Snapshot) -> Iterator[str]:
    """`lines/` says what its line holds."""
    found: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    for pool, queue, priority, due in taken.waiting.values():
        streams = found.setdefault((pool, queue), {})
        count, first = streams.get(priority, (0, due))
        streams[priority] = (count + 1, min(first, due))
    said = {name: row.streams for name, row in taken.lines.items()}
    for name in found.keys() | said.keys():
        if found.get(name) != said.get(name):
            yield f"lines/{name[0]}/{name[1]} says {said.get(name)}, its line holds {found.get(name)}"


def _letters(taken: Snapshot) -> Iterator[str]:
    index = {(dead.parked_at, job_id) for job_id, dead in taken.dead.items()}
    if index != taken.parked:
        yield f"parked/ and dead/ differ in {sorted(index ^ taken.parked)[:5]}"
    for job_id in taken.dead.keys() - taken.jobs.keys():
        yield f"dead/{job_id} has no job"


def _counts(taken: Snapshot) -> Iterator[str]:
    orphans = sum(lease.orphan for _, _, lease in taken.leases)
    truth = {
        "waiting": len(taken.waiting),
        "leased": len(taken.leases) - orphans,
        "orphaned": orphans,
        "dead": len(taken.dead),
    }
    for name, count in truth.items():
        if getattr(taken.counters, name) != count:
            yield f"the counter {name} says {getattr(taken.counters, name)}, there are {count}"


def _timers(taken: Snapshot) -> Iterator[str]:
    """A timer serves a row that names its instant; a waiting job that can expire has its timer."""
    for ms, kind, job_id in taken.timers:
        if kind in ("history", "idem", "redrive", "cronrecheck", *TIMERS):
            continue
        if kind == "retire":
            letter = taken.dead.get(job_id)
            if letter is None or letter.retire_at != ms:
                yield f"timer {ms}/{kind}/{job_id} serves nothing"
            continue
        served = taken.jobs.get(job_id)
        if kind != "expire" or served is None or served.expires_at != ms:
            yield f"timer {ms}/{kind}/{job_id} serves nothing"
    for job_id in taken.waiting:
        waiting = taken.jobs.get(job_id)
        at = taken.at.get(job_id)
        if waiting is None or waiting.expires_at is None or (at is not None and not at.expires):
            continue
        if (waiting.expires_at, "expire", job_id) not in taken.timers:
            yield f"job {job_id} expires at {waiting.expires_at} and has no timer"


def _wakes(taken: Snapshot, wake_at: int | None) -> Iterator[str]:
    """`wake_at` is no later than any head that may start, timer or lease end."""
    held = Counter(lease.pool for _, _, lease in taken.leases)
    ends = [lease.until for _, _, lease in taken.leases]
    instants = [*ends, *(ms for ms, _, _ in taken.timers)]
    for (pool, queue), row in taken.lines.items():
        cap = taken.pools.get(pool, PoolRow(1))
        if queue in ("", ALONE) and not taken.paused and (not pool or (not cap.paused and held[pool] < cap.cap)):
            instants.extend(first for _, first in row.streams.values())
    if instants and (wake_at is None or wake_at > min(instants)):
        yield f"wake_at is {wake_at}, but something is to be done at {min(instants)}"
