"""Read memory from rows; and rebuild the summaries (lines, counters), after an unreadable row was set aside.

A rebuild reads every row, so it runs only then: at activation, before the first event; and in a repair. A job whose
lease or place could not be read goes back to its line at its own due instant. A job that stands in two places keeps the
first of these: its lease, its line, its dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from tocsin.actors.scheduler.model import counters as balance
from tocsin.actors.scheduler.model.clock import CLOCK, ClockRow
from tocsin.actors.scheduler.model.counters import Counters
from tocsin.actors.scheduler.model.flow_rows import FLOW_LAYOUT, QueueRow
from tocsin.actors.scheduler.model.line_names import line_of, place_in
from tocsin.actors.scheduler.model.lost import NO_JOB
from tocsin.actors.scheduler.model.rate_rows import RateRow, rate_key
from tocsin.actors.scheduler.model.row_kinds import Shape, read_row
from tocsin.actors.scheduler.model.rows import (
    INSTANCE,
    LAYOUT,
    META_COUNTERS,
    META_LAYOUT,
    META_RECOUNT,
    META_SLOT,
    AtRow,
    BadRow,
    DeadRow,
    InstanceRow,
    JobRow,
    LeaseRow,
    LinesRow,
    ParkedRow,
    PoolRow,
    at_key,
    bad_key,
    dead_key,
    decode,
    encode,
    job_key,
    line_key,
    lines_key,
)
from tocsin.actors.scheduler.state.fronts import Fronts
from tocsin.actors.scheduler.state.groups import recount
from tocsin.actors.scheduler.state.keeping import load_later
from tocsin.actors.scheduler.state.labels import META_LABELS, dead_rows, live_rows
from tocsin.actors.scheduler.state.layout import layout_of
from tocsin.actors.scheduler.state.meters import Meters, is_metered
from tocsin.actors.scheduler.state.scheduler_state import SchedulerState
from tocsin.actors.scheduler.state.tally import Tally
from tocsin.errors import StoreCorrupt, StoreSchema

Places = dict[tuple[str, str], dict[int, tuple[int, int]]]


@dataclass(slots=True)
class Rebuilt:
    """The readable jobs, without their args, and which of them wait or are dead letters."""

    jobs: dict[str, JobRow] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    dead: dict[str, DeadRow] = field(default_factory=dict)


async def load(state: SchedulerState) -> None:
    """Read memory from rows; rebuild it if one could not be read."""
    await _read_memory(state)
    if state.damaged and not state.instance.erasing:
        await rebuild(state)
    if state.has_flow and not state.instance.erasing:
        await load_later(state)
    state.tally = Tally(balance.levels(state.counters))


async def _read_memory(state: SchedulerState) -> None:
    """Read memory from rows: one hop for most, a page at a time for many lines."""
    keys = [META_LAYOUT, META_COUNTERS, META_SLOT, META_RECOUNT, META_LABELS, INSTANCE, CLOCK]
    meta = await state.storage.get_many(keys)
    if INSTANCE in meta and (instance := state.read(InstanceRow, INSTANCE, meta[INSTANCE])) is not None:
        state.instance = instance
        state.lines.paused = instance.paused or instance.moving is not None
    if state.instance.importing:
        return  # rows of a file, which nobody has found sound yet: whatever they say, they can be removed
    layout = LAYOUT if state.instance.erasing else _check_layout(state, layout_of(meta))
    state.labels.load(layout, meta.get(META_LABELS))
    if META_COUNTERS in meta and (counters := state.read(Counters, META_COUNTERS, meta[META_COUNTERS])):
        state.counters, state.sealed_counters = counters, encode(counters)
        if not balance.is_counted(counters):
            balance.settle(counters)
    state.occurrences.load(meta.get(META_SLOT))
    if state.instance.erasing:
        return  # the instance is being removed: only some of the rows are left
    if CLOCK in meta:
        state.clock = _clock(meta[CLOCK])
    for key, value in await state.all_rows(b"pool/"):
        if (pool := state.read(PoolRow, key, value)) is not None:
            state.lines.set_pool(key[5:].decode(), pool)
    await _read_meters(state)
    if state.has_flow:
        for key, value in await state.all_rows(b"queue/"):
            if (queue := state.read(QueueRow, key, value)) is not None:
                state.lines.set_queue(key[6:].decode(), queue)
    for key, value in await state.all_rows(b"lease/"):
        if (names := _names(state, key, 3, value)) and (lease := state.read(LeaseRow, key, value)) is not None:
            state.find(*names, lease)
    for key, value in await state.all_rows(b"lines/"):
        if (names := _names(state, key, 3, value)) and (row := state.read(LinesRow, key, value)) is not None:
            state.lines.load(names, row)
    if not state.damaged and (layout == 1 or META_RECOUNT in meta):
        await recount(state)
        await state.paths.count_anew()
        await state.labels.drop_strays()
    await state.look_at_timers()


async def _read_meters(state: SchedulerState) -> None:
    """Read what is left of the rates of pools, if any has one."""
    flows = {name: pool.flow for name, pool in state.lines.pools.items() if pool.flow and is_metered(pool.flow)}
    if not flows:
        return
    meters = state.lines.meters = Meters()
    rows = dict(await state.all_rows(b"rate/"))
    for name, flow in flows.items():
        value = rows.get(rate_key(name))
        meters.load(name, flow, None if value is None else state.read(RateRow, rate_key(name), value))


def _clock(value: bytes) -> ClockRow:
    """Read the test clock. Without it the instance would run on the live clock, so nothing of it runs."""
    try:
        return decode(ClockRow, CLOCK, value)
    except BadRow as error:
        raise StoreCorrupt(f"the test clock of this instance cannot be read: remove the instance ({error})") from None


def _check_layout(state: SchedulerState, value: bytes | None) -> int:
    """Return the layout that the rows have; 0 if there are none. Refuse a newer one."""
    layout = 0
    if value is not None:
        if not value.isdigit():
            raise StoreCorrupt(f"meta/layout is {value[:40]!r}, not a number: restore a backup of this store")
        layout = int(value)
    if layout < LAYOUT:
        state.storage.put(META_LAYOUT, b"%d" % LAYOUT)
    state.has_layout, state.has_flow = True, layout == FLOW_LAYOUT
    if layout > FLOW_LAYOUT:
        raise StoreSchema(
            f"this scheduler was written by a newer tocsin (layout {layout}); this one reads up to {FLOW_LAYOUT}: "
            "upgrade tocsin, or open the store with the newer one"
        )
    return layout


def _names(state: SchedulerState, key: bytes, parts: int, value: bytes) -> tuple[str, str] | None:
    """Return the two names in a key of so many parts; None after setting a misshapen key aside."""
    try:
        _, first, second = key.decode().split("/", parts)
    except ValueError:
        state.set_aside(key, value, "its key has another shape")
        return None
    return first, second


async def rebuild(state: SchedulerState) -> Rebuilt:
    """Rebuild memory and summaries. History, answers, redrives and timers are not read."""
    found = Rebuilt()
    for shape in await _read(state, b"job"):
        found.jobs[shape.names[0]] = msgspec.structs.replace(shape.row, args=b"")
    _orphan(state, found.jobs)
    at = {shape.names[0]: shape.row for shape in await _read(state, b"at")}
    places, moved = await _places(state, found, at)
    await _letters(state, found, moved)
    _leftovers(state, found, at)
    await _replace_lines(state, places)
    orphans = sum(lease.orphan for _, lease in state.leases.values())
    state.counters = msgspec.structs.replace(
        state.counters,
        waiting=len(found.waiting),
        leased=len(state.leases) - orphans,
        orphaned=orphans,
        dead=len(found.dead),
    )
    living = [job for job_id, job in found.jobs.items() if job_id not in found.dead]
    await state.paths.replace(living)
    await state.labels.replace(_labels(state, found, at | moved))
    for job_id, place in moved.items():
        state.enter_line(found.jobs[job_id], place)
    for job_id, job in found.jobs.items():
        if job_id not in found.waiting and job_id not in moved and not _is_held(state, found, job_id):
            state.enter_line(job, at.get(job_id, AtRow(job.scheduled_for)))
    balance.settle(state.counters)
    await recount(state)
    state.fronts = Fronts()  # these jobs were read without their args
    return found


def _labels(state: SchedulerState, found: Rebuilt, at: Mapping[str, AtRow]) -> dict[bytes, bytes]:
    right: dict[bytes, bytes] = {}
    for job_id, job in found.jobs.items():
        if (letter := found.dead.get(job_id)) is not None:
            right.update(dead_rows(job, letter))
            continue
        token = state.lease_of(job_id)
        place = at.get(job_id) if token is None else state.leases[token][1].at
        right.update(live_rows(job, job.scheduled_for if place is None else place.next_at))
    return right


def _is_held(state: SchedulerState, found: Rebuilt, job_id: str) -> bool:
    return job_id in found.dead or state.lease_of(job_id) is not None


async def _read(state: SchedulerState, family: bytes) -> list[Shape]:
    """Return the readable rows of a family; the others are set aside."""
    shapes: list[Shape] = []
    for key, value in await state.all_rows(family + b"/"):
        try:
            shape = read_row(key, value)
        except BadRow as error:
            state.set_aside(key, value, str(error))
            continue
        if shape is not None:
            shapes.append(shape)
    return shapes


def _orphan(state: SchedulerState, jobs: dict[str, JobRow]) -> None:
    """Orphan leases without a job, or beside a later attempt of it: each holds its slot until it ends and settles
    nothing."""
    for tokens in list(state.by_id.values()):
        mine = [token for token in tokens if not state.leases[token][1].orphan]
        mine.sort(key=lambda token: (state.leases[token][1].at.attempt, state.leases[token][1].started))
        kept = None
        for token in reversed(mine):
            job_id, lease = state.leases[token]
            job = jobs.get(job_id)
            if kept is None and job is not None and job.incarnation == lease.incarnation:
                kept = token
            else:
                state.change_lease(token, msgspec.structs.replace(lease, orphan=True))


async def _places(state: SchedulerState, found: Rebuilt, at: dict[str, AtRow]) -> tuple[Places, dict[str, AtRow]]:
    """Find which jobs wait where, and which are to be moved: the job's own place, if it has one, decides over the line
    row."""
    places: Places = {}
    keys: dict[str, list[bytes]] = {}
    for shape in await _read(state, b"line"):
        job_id, key = shape.names[4], b"line/" + "/".join(shape.names).encode()
        if job_id not in found.jobs:
            _set_aside(state, key, NO_JOB)
        elif state.lease_of(job_id) is not None:
            _set_aside(state, key)
        else:
            keys.setdefault(job_id, []).append(key)
    moved: dict[str, AtRow] = {}
    for job_id, stands in keys.items():
        job = found.jobs[job_id]
        place = at.get(job_id) or _as_the_line_says(job, stands)
        queue = line_of(job, place)
        right = line_key(job.pool, queue, job.priority, place.next_at, job_id)
        for key in stands:
            if key != right and right in stands:
                _set_aside(state, key)
            elif key != right:
                state.storage.delete(key)  # the job is entered where it belongs, so nothing is lost
        if right not in stands:
            moved[job_id] = place
            continue
        found.waiting.add(job_id)
        if job_id not in at:
            state.write_at(job, place)
        buckets = places.setdefault((job.pool, queue), {})
        count, first = buckets.get(job.priority, (0, place.next_at))
        buckets[job.priority] = (count + 1, min(first, place.next_at))
    return places, moved


def _as_the_line_says(job: JobRow, stands: Iterable[bytes]) -> AtRow:
    """Return the place that the job row implies if the job stands there, else the earliest at which it stands: the row
    of its place is lost."""
    own = line_key(job.pool, job.queue, job.priority, job.scheduled_for, job.id)
    if own in stands:
        return AtRow(job.scheduled_for)
    due, queue = min((int(parts[4]), parts[2].decode()) for parts in (key.split(b"/") for key in stands))
    return place_in(queue, due)


async def _letters(state: SchedulerState, found: Rebuilt, moved: dict[str, AtRow]) -> None:
    """Find the dead letters. An unreadable one is rewritten from its entry in `parked/`, so that its job stays dead."""
    for shape in await _read(state, b"dead"):
        job_id = shape.names[0]
        if job_id not in found.jobs or job_id in found.waiting or job_id in moved or state.lease_of(job_id) is not None:
            state.storage.put(bad_key(dead_key(job_id)), encode(shape.row))
            state.storage.delete(dead_key(job_id))
            own = bad_key(job_key(job_id))
            if job_id not in found.jobs and await state.storage.get(own) is None:
                state.storage.put(own, NO_JOB)
        else:
            found.dead[job_id] = shape.row
    for shape in await _read(state, b"parked"):
        job_id, entry = shape.names[1], shape.row
        lost = job_id in found.jobs and job_id not in found.waiting and job_id not in moved
        if lost and not _is_held(state, found, job_id) and isinstance(entry, ParkedRow):
            letter = DeadRow(entry.reason, int(shape.names[0]), AtRow(found.jobs[job_id].scheduled_for))
            state.storage.put(dead_key(job_id), encode(letter))
            found.dead[job_id] = letter


def _leftovers(state: SchedulerState, found: Rebuilt, at: dict[str, AtRow]) -> None:
    """Set aside rows of places of jobs that do not wait: read later, they would be wrong."""
    for job_id, row in at.items():
        if job_id not in found.jobs or _is_held(state, found, job_id):
            state.storage.put(bad_key(at_key(job_id)), encode(row))
            state.storage.delete(at_key(job_id))


def _set_aside(state: SchedulerState, key: bytes, value: bytes = b"") -> None:
    state.storage.put(bad_key(key), value)
    state.storage.delete(key)


async def _replace_lines(state: SchedulerState, places: Places) -> None:
    state.lines = state.lines.like()
    for shape in await _read(state, b"lines"):
        if (shape.names[0], shape.names[1]) not in places:
            state.storage.delete(lines_key(*shape.names))
    for name, buckets in places.items():
        state.lines.load(name, LinesRow(buckets))
        state.lines.touched.add(name)
