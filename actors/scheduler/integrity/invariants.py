"""Check the invariants between the rows of a scheduler, from one snapshot of committed state.

Used by the simulation after every run, and by operators who ask whether a store is sound (`tocsin check`). Every row
is read once, a page at a time, and what each job must have is looked up; only where a count shows that there is more
than that, a family is read again to name it. Memory: leases, lines, pools and faults, not jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tocsin.actors.scheduler.integrity.findings import Findings, shown
from tocsin.actors.scheduler.integrity.invariants_of_acts import check_acts
from tocsin.actors.scheduler.integrity.invariants_of_calls import TIMERS as CALL_TIMERS
from tocsin.actors.scheduler.integrity.invariants_of_calls import check_calls
from tocsin.actors.scheduler.integrity.invariants_of_groups import check_groups
from tocsin.actors.scheduler.integrity.invariants_of_jobs import Look, place_of
from tocsin.actors.scheduler.integrity.invariants_of_labels import check_labels
from tocsin.actors.scheduler.integrity.invariants_of_schedules import TIMERS as RECURRING_TIMERS
from tocsin.actors.scheduler.integrity.invariants_of_schedules import check_schedules, damaged_args
from tocsin.actors.scheduler.integrity.invariants_of_unknown import name_unknown
from tocsin.actors.scheduler.model import counters, rows
from tocsin.actors.scheduler.model.acts import UNDO
from tocsin.actors.scheduler.model.audit import AUDIT
from tocsin.actors.scheduler.model.groups import GROUP, STOP
from tocsin.actors.scheduler.model.line_names import queue_in, shard_in
from tocsin.actors.scheduler.model.lost import lost_work
from tocsin.actors.scheduler.model.rate_rows import opens_at
from tocsin.actors.scheduler.model.row_kinds import BAD, Shape, day_of, read_row
from tocsin.actors.scheduler.model.schedule_rows import RECHECK
from tocsin.actors.scheduler.state.in_memory_view import hold
from tocsin.actors.scheduler.state.scheduler_state import EXPIRE, HISTORY, IDEM, RESULT, RETIRE
from tocsin.actors.scheduler.transitions.following import FOLLOW
from tocsin.actors.scheduler.transitions.redrive import REDRIVE
from tocsin.storage.api import StoreView, after

SOME = 200
"""Number of jobs looked up at once when stray rows are named; their args are read too."""
OF_JOBS = (EXPIRE, RETIRE, HISTORY, IDEM, RESULT, FOLLOW, GROUP, STOP, *CALL_TIMERS)
KNOWN_TIMERS = (AUDIT, UNDO, REDRIVE, RECHECK, *OF_JOBS, *RECURRING_TIMERS)
CLOCK_MS: Final = 2_000
"""By so much a clock may have been set since the row of a rate was written, without being written anew."""
Buckets = dict[tuple[str, str], dict[int, tuple[int, int]]]


async def check(view: StoreView, wake_at: int | None = None) -> list[str]:
    """Return every broken invariant as text, and every row that was set aside; empty if the rows are sound.
    `wake_at` as stored for the actor."""
    found = await examine(view, wake_at)
    return [
        *(fault.message for fault in found.faults),
        *(f"set aside: {key}" for key in found.aside),
    ]


async def examine(view: StoreView, wake_at: int | None) -> Findings:
    """Return all findings. The view must not change meanwhile: a snapshot, or no writer."""
    look = Look(await hold(view), wake_at)
    await look.look_around()
    await _aside(look)
    if not await look.instance():
        return look.found
    await look.leases()
    await look.jobs()
    buckets = await _lines(look)
    await _summaries(look, buckets)
    await _parked(look)
    await _args(look)
    await check_calls(look)
    await check_groups(look)
    await _paths(look)
    await check_labels(look)
    first_timer = await _timers(look)
    await check_acts(look)
    await _schedules(look)
    await name_unknown(look)
    _counts(look, buckets)
    _wakes(look, buckets, first_timer)
    return look.found


# ---- Lines ---------------------------------------------------------------------------------------


async def _lines(look: Look) -> Buckets:
    """Count what each line holds. Rows where no job should be are named in a second pass."""
    buckets: Buckets = {}
    total = 0
    async for shapes in look.shapes(b"line"):
        total += len(shapes)
        for shape in shapes:
            pool, queue, priority, due = shape.names[0], shape.names[1], 9 - int(shape.names[2]), int(shape.names[3])
            line = buckets.setdefault((pool, queue), {})
            count, first = line.get(priority, (0, due))
            line[priority] = (count + 1, min(first, due))
    if total > look.expected["line"]:
        await _stray_lines(look)
    for job_id, key in look.missing.items():
        look.found.add("NO_PLACE", job_id, f"job {job_id} stands nowhere: no lease, not dead, not at {shown(key)}")
    return buckets


async def _stray_lines(look: Look) -> None:
    async for page in look.rows(b"line/", after(b"line/")):
        for first in range(0, len(page), SOME):
            shapes = [shape for row in page[first : first + SOME] if (shape := _quietly(look, row)) is not None]
            ids = [shape.names[4] for shape in shapes]
            known = await look.get(
                [key for job_id in ids for key in (rows.job_key(job_id), rows.at_key(job_id), rows.dead_key(job_id))]
            )
            for shape in shapes:
                _judge_line(look, shape, known)


def _judge_line(look: Look, shape: Shape, known: dict[bytes, bytes]) -> None:
    job_id = shape.names[4]
    job = _row(rows.JobRow, rows.job_key(job_id), known)
    if job is None:
        look.found.add("NO_JOB", job_id, f"a line holds {job_id}, which is no job")
        return
    key = b"line/" + "/".join(shape.names).encode()
    place = place_of(job, _row(rows.AtRow, rows.at_key(job_id), known))
    if key == place:
        return
    if job_id not in look.missing:
        look.found.add(
            "TWO_PLACES", job_id, f"job {job_id} stands in line twice, or where it runs or is dead: {shown(key)}"
        )
    else:
        del look.missing[job_id]
        look.found.add("WRONG_PLACE", job_id, f"job {job_id} stands at {shown(key)}, not at {shown(place)}")


async def _summaries(look: Look, buckets: Buckets) -> None:
    """Check that `lines/` agrees with the line rows."""
    said: Buckets = {}
    async for shapes in look.shapes(b"lines"):
        said.update(
            ((shape.names[0], shape.names[1]), shape.row.buckets)
            for shape in shapes
            if isinstance(shape.row, rows.LinesRow)
        )
    for name in sorted(buckets.keys() | said.keys()):
        if buckets.get(name) != said.get(name):
            line = f"lines/{name[0]}/{name[1]}"
            words = _difference(said.get(name, {}), buckets.get(name, {}))
            look.found.add("LINES", line, f"{line} is not what its line holds: {words}")


def _difference(said: dict[int, tuple[int, int]], held: dict[int, tuple[int, int]]) -> str:
    """Return the priorities where the two differ."""

    def words(bucket: tuple[int, int] | None) -> str:
        return "none" if bucket is None else f"{bucket[0]} from {bucket[1]}"

    priorities = sorted(each for each in said.keys() | held.keys() if said.get(each) != held.get(each))
    return "; ".join(
        f"priority {each} says {words(said.get(each))}, holds {words(held.get(each))}" for each in priorities
    )


# ---- Dead letters and args -----------------------------------------------------------------------


async def _parked(look: Look) -> None:
    if not await look.has_strays("parked"):
        return
    async for page in look.rows(b"parked/", after(b"parked/"), SOME):
        shapes = [shape for row in page if (shape := _quietly(look, row)) is not None]
        known = await look.get(
            [key for shape in shapes for key in (rows.dead_key(shape.names[1]), rows.job_key(shape.names[1]))]
        )
        for shape in shapes:
            letter = _row(rows.DeadRow, rows.dead_key(shape.names[1]), known)
            if letter is None or letter.parked_at != int(shape.names[0]) or rows.job_key(shape.names[1]) not in known:
                about = "/".join(shape.names)
                look.found.add("PARKED", about, f"parked/ and dead/ differ: parked/{about} is of no dead job")


async def _args(look: Look) -> None:
    """Report pieces of args that belong to no job."""
    if not await look.has_strays("args"):
        return
    async for page in look.rows(b"args/", after(b"args/"), SOME):
        shapes = [shape for row in page if (shape := _quietly(look, row)) is not None]
        known = await look.get([rows.job_key(shape.names[0]) for shape in shapes])
        for shape in shapes:
            job_id, n = shape.names
            job = _row(rows.JobRow, rows.job_key(job_id), known)
            if job is None or int(n) >= job.args_rows:
                look.found.add("ARGS_EXTRA", job_id, f"args/{job_id}/{n} belongs to no job")


async def _paths(look: Look) -> None:
    """Check that `paths/` has the number of live jobs of each path."""
    said: dict[bytes, int] = {}
    async for page in look.of(b"paths/"):
        said.update((key, int(value)) for key, value in page if look.read((key, value)) is not None)
    if not look.counts_paths:
        return
    for key in sorted(said.keys() | look.paths.keys()):
        if said.get(key, 0) != look.paths[key]:
            about = shown(key)
            look.found.add("PATHS", about, f"{about} says {said.get(key, 0)}, there are {look.paths[key]} live jobs")


# ---- Timers, and what only timers serve ----------------------------------------------------------


async def _timers(look: Look) -> int | None:
    """Check that each timer serves a row that names its instant; return the first timer."""
    await _redrives(look)
    await _results(look)
    days = {HISTORY: await _days(look, b"hist"), IDEM: await _days(look, b"idem"), AUDIT: await _days(look, b"audit")}
    first: int | None = None
    total: Counter[str] = Counter()
    async for shapes in look.shapes(b"timer"):
        for shape in shapes:
            ms, kind, name = shape.names
            first = int(ms) if first is None else first
            total[kind] += 1
            if kind in days:
                days[kind].discard(name)
            elif kind not in KNOWN_TIMERS:
                look.found.add("UNKNOWN_ROW", kind, f"timer {ms}/{kind}/{name} is of no known kind")
    for kind, left in days.items():
        for day in sorted(left):
            look.found.add("TIMER_MISSING", f"{kind} {day}", f"day {day} of {kind} is to be dropped and has no timer")
    if any(total[kind] > look.expected[kind] for kind in (EXPIRE, RETIRE, REDRIVE)):
        await _idle_timers(look)
    return first


async def _redrives(look: Look) -> None:
    async for shapes in look.shapes(b"redrive"):
        ticking = [(shape.names[0], shape.row.next_at) for shape in shapes if shape.row.next_at]
        keys = {rows.timer_key(ms, REDRIVE, name): name for name, ms in ticking}
        there = await look.get(list(keys))
        look.expected[REDRIVE] += len(there)
        for key, name in keys.items():
            if key not in there:
                look.found.add("TIMER_MISSING", name, f"redrive {name} goes on and has no timer")


async def _results(look: Look) -> None:
    """Check that each result has a timer; a timer may belong to an earlier result of the same id."""
    async for shapes in look.shapes(b"result"):
        keys = {rows.timer_key(shape.row.until, RESULT, shape.names[0]): shape.names[0] for shape in shapes}
        there = await look.get(list(keys))
        for key, name in keys.items():
            if key not in there:
                look.found.add("TIMER_MISSING", name, f"the result of job {name} is to be dropped and has no timer")


async def _days(look: Look, family: bytes) -> set[str]:
    """Return the days that have rows, as timers name them."""
    days: set[str] = set()
    async for shapes in look.shapes(family):
        for shape in shapes:
            day = int(shape.names[0])
            days.add(str(day))
            if day_of(shape.row) != day:
                about = f"{family.decode()}/{'/'.join(shape.names)}"
                look.found.add("DAY", about, f"{about} belongs under day {day_of(shape.row)}")
    return days


async def _idle_timers(look: Look) -> None:
    async for page in look.rows(b"timer/", after(b"timer/"), SOME):
        shapes = [shape for row in page if (shape := _quietly(look, row)) is not None]
        keys = [served for shape in shapes for served in _served_by(shape)]
        known = await look.get(keys)
        for shape in shapes:
            ms, kind, name = shape.names
            if kind in (EXPIRE, RETIRE, REDRIVE) and not _serves(int(ms), kind, name, known):
                look.found.add("TIMER_IDLE", name, f"timer {ms}/{kind}/{name} serves nothing")


def _served_by(shape: Shape) -> Iterator[bytes]:
    _, kind, name = shape.names
    if kind in (EXPIRE, RETIRE):
        yield rows.job_key(name)
        yield rows.dead_key(name)
    elif kind == REDRIVE:
        yield rows.redrive_key(name)


def _serves(ms: int, kind: str, name: str, known: dict[bytes, bytes]) -> bool:
    job = _row(rows.JobRow, rows.job_key(name), known)
    if kind == EXPIRE:
        return job is not None and job.expires_at == ms
    if kind == RETIRE:
        letter = _row(rows.DeadRow, rows.dead_key(name), known)
        return job is not None and letter is not None and letter.retire_at == ms
    redrive = _row(rows.RedriveRow, rows.redrive_key(name), known)
    return redrive is not None and redrive.next_at == ms


async def _schedules(look: Look) -> None:
    for family in (b"cron", b"cronargs", b"cronat", b"slot", b"trigger", b"backfill"):
        async for _ in look.shapes(family):
            pass  # what cannot be read is noted by the reading
    for name, message in await check_schedules(look.view):
        look.found.add("SCHEDULE", name, message)
    for name, message in await damaged_args(look.view):
        look.found.add("ARGS_LOST", name, message)


# ---- What was set aside --------------------------------------------------------------------------


async def _aside(look: Look) -> None:
    lost: set[tuple[str, str]] = set()
    async for page in look.of(BAD):
        for key, value in page:
            look.found.add_aside(key)
            if (work := lost_work(key, value)) is not None and work not in lost:
                lost.add(work)
                look.found.add("LOST", work[1], f"{work[0]} {work[1]} was set aside: {shown(key)}")


# ---- Counters and the wake time ------------------------------------------------------------------


def _counts(look: Look, buckets: Buckets) -> None:
    orphans = sum(lease.orphan for _, _, lease in look.held)
    truth = {
        "waiting": sum(count for line in buckets.values() for count, _ in line.values()),
        "leased": len(look.held) - orphans,
        "orphaned": orphans,
        "dead": look.letters,
    }
    for name, count in truth.items():
        if getattr(look.counters, name) != count:
            said = getattr(look.counters, name)
            look.found.add("COUNTER", name, f"the counter {name} says {said}, there are {count}")
    for name, wrong in counters.faults(look.counters):
        said = getattr(look.counters, name)
        look.found.add("COUNTER", name, f"the counter {name} says {said}, the others add up to {said - wrong}")


def _wakes(look: Look, buckets: Buckets, first_timer: int | None) -> None:
    """Check that `wake_at` is no later than any head that may start, timer or lease end."""
    if look.sealed:
        return  # nothing of it happens any more
    held = Counter(lease.pool for _, _, lease in look.held)
    keys = Counter((lease.pool, lease.shard) for _, _, lease in look.held if lease.shard)
    timers = [] if first_timer is None else [first_timer]
    heads: list[int] = []
    for (pool, queue), line in buckets.items():
        cap = look.pools.get(pool, rows.PoolRow(1))
        flow, shard = cap.flow, shard_in(queue)
        if flow is not None and flow.fair and flow.per_key is not None and keys[pool, shard] >= flow.per_key:
            continue
        if not queue_in(queue) and not look.paused and (not pool or (not cap.paused and held[pool] < cap.cap)):
            token = opens_at(cap.flow, look.rates.get(pool))
            heads.extend(max(first, token + CLOCK_MS if token else 0) for _, first in line.values())
    if (clock := look.clock) is not None:
        # What is later waits for an advance, which is itself a reason to wake; what is due is to be looked at at once.
        heads = [0 for instant in (*heads, *timers) if instant <= clock.at or clock.target]
        timers = []
    instants = [lease.until for _, _, lease in look.held] + timers + heads
    if instants and (look.wake_at is None or look.wake_at > min(instants)):
        look.found.add("WAKE", "wake_at", f"wake_at is {look.wake_at}, but something is to be done at {min(instants)}")


# ---- Rows ----------------------------------------------------------------------------------------


def _row(kind: type[rows.R], key: bytes, known: dict[bytes, bytes]) -> rows.R | None:
    """Return the decoded row; None if it is missing or unreadable (which is reported elsewhere)."""
    try:
        return rows.decode(kind, key, known[key]) if key in known else None
    except rows.BadRow:
        return None


def _quietly(look: Look, row: tuple[bytes, bytes]) -> Shape | None:
    """Read rows a second time without reporting unreadable ones again."""
    look.found.rows -= 1
    try:
        return read_row(*row)
    except rows.BadRow:
        return None
