"""Repair the rows of one stopped scheduler: derived rows are written anew; rows that belong to no job or
cannot be read are set aside under `bad/`. A repair deletes no job and loses no row that holds information.

The repair is the actor's own at activation (`rebuild`), plus what would cost every start too much:
args, the index of dead jobs, timers, history, answers and bulk retries. Memory: all jobs, without their args.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from tocsin.actors.runtime.overlay import ActorStorage, Layer
from tocsin.actors.scheduler.integrity.repair_schedules import repair_schedules
from tocsin.actors.scheduler.model import rows
from tocsin.actors.scheduler.model.acts import UNDO, act_key
from tocsin.actors.scheduler.model.audit import AUDIT, AUDIT_MS
from tocsin.actors.scheduler.model.later_rows import LATER, THROTTLE
from tocsin.actors.scheduler.model.row_kinds import BAD, FAMILIES, SINGLE, Shape, day_of, read_row
from tocsin.actors.scheduler.state.keeping import count_kept
from tocsin.actors.scheduler.state.rebuild import Rebuilt, load, rebuild
from tocsin.actors.scheduler.state.scheduler_state import EXPIRE, HISTORY, IDEM, RESULT, RETIRE, SchedulerState
from tocsin.actors.scheduler.transitions.redrive import REDRIVE
from tocsin.storage.api import Batch, OrderedStore, Row, after, each_row

NOW = 0
"""The stored wake time after a repair: the next host processes the scheduler immediately and corrects it."""
KEYS_AT_ONCE = 5_000
BYTES_AT_ONCE = 4 * 1024 * 1024
PAGE = 1_000
SOON_MS = rows.SOON
"""The instant of a timer that rings at once."""
SERVED = (EXPIRE, RETIRE, REDRIVE)
"""Kinds of timers that serve one row; the others serve all rows of a day."""


async def repair_rows(store: OrderedStore) -> None:
    """Repair one scheduler. Requires the store's lock, a known layout and no removal under way."""
    storage = ActorStorage()
    await storage.open(store)
    layer = storage.layer = Layer(asyncio.current_task())
    await _set_unreadable_aside(storage)
    await _set_doubles_aside(storage)
    state = SchedulerState(storage)
    await load(state)
    if not state.instance.erasing:
        state.labels.filled()  # for all of them are written here
        found = await rebuild(state)
        await _repair_args(state, found)
        await _repair_calls(state)
        await _repair_letters(state, found)
        await _repair_acts(state)
        await repair_schedules(storage, found.jobs, found.dead)
        await _repair_timers(state, found, await _repair_days(state))
        await state.close()
        while state.paths.counting:
            await state.paths.close()
    await _write(store, layer.puts, layer.deletes)


async def _write(store: OrderedStore, puts: dict[bytes, bytes], deletes: set[bytes]) -> None:
    """Write in as many commits as the limits of a batch require, puts first, so that a stop between two commits
    duplicates rows and never loses one."""
    batch: dict[bytes, bytes] = {}
    size = 0
    for key, value in puts.items():
        if batch and (len(batch) >= KEYS_AT_ONCE or size + len(value) > BYTES_AT_ONCE):
            await store.commit(Batch(batch))
            batch, size = {}, 0
        batch[key] = value
        size += len(key) + len(value)
    left = sorted(deletes)
    if len(batch) + len(left) > KEYS_AT_ONCE:
        await store.commit(Batch(batch))
        batch = {}
    while len(left) > KEYS_AT_ONCE:
        await store.commit(Batch(deletes=set(left[:KEYS_AT_ONCE])))
        left = left[KEYS_AT_ONCE:]
    await store.commit(Batch(batch, set(left), wake_at=NOW))


# ---- What cannot be read -------------------------------------------------------------------------


async def _set_unreadable_aside(storage: ActorStorage) -> None:
    """Set unreadable rows aside, before the rest is used. Layout and rows of unknown kinds stay."""
    prefixes = [*(family + b"/" for family in FAMILIES), *SINGLE]
    for prefix in prefixes:
        async for key, value in _rows(storage, prefix):
            try:
                read_row(key, value)
            except rows.BadRow:
                _aside(storage, key, value)


async def _set_doubles_aside(storage: ActorStorage) -> None:
    """Keep one of two leases of one token: that of the job whose incarnation it has."""
    by_token: dict[str, list[tuple[Row, bool]]] = {}
    async for key, value in _rows(storage, b"lease/"):
        job_id, token = rows.split_lease_key(key)
        job = await storage.get(rows.job_key(job_id))
        mine = (
            job is not None
            and rows.decode(rows.JobRow, b"job", job).incarnation == rows.decode(rows.LeaseRow, key, value).incarnation
        )
        by_token.setdefault(token, []).append(((key, value), mine))
    for same in by_token.values():
        same.sort(key=lambda each: not each[1])
        for (key, value), _ in same[1:]:
            _aside(storage, key, value)


def _aside(storage: ActorStorage, key: bytes, value: bytes) -> None:
    storage.put(BAD + key, value)
    storage.delete(key)


def _rows(storage: ActorStorage, prefix: bytes) -> AsyncIterator[Row]:
    return each_row(storage, prefix, after(prefix), PAGE)


async def _shapes(state: SchedulerState, family: bytes) -> AsyncIterator[tuple[bytes, bytes, Shape]]:
    """Yield the rows of a family, all readable by now."""
    async for key, value in _rows(state.storage, family + b"/"):
        shape = read_row(key, value)
        if shape is not None:
            yield key, value, shape


# ---- Args and dead letters -----------------------------------------------------------------------


async def _repair_args(state: SchedulerState, found: Rebuilt) -> None:
    """Set aside pieces of args that belong to no job. Jobs with missing pieces stay as they are, for operators."""
    async for key, value, shape in _shapes(state, b"args"):
        job_id = shape.names[0]
        job = found.jobs.get(job_id)
        if job is None or key not in {rows.args_key(job_id, each) for each in range(job.args_rows)}:
            _aside(state.storage, key, value)


async def _repair_acts(state: SchedulerState) -> None:
    """Set aside what is kept of actions that are not there; let an action that nobody undoes be forgotten."""
    known = {shape.names[0]: shape.row async for _, _, shape in _shapes(state, b"act")}
    for family in (b"trash", b"trashargs"):
        async for key, value, shape in _shapes(state, family):
            if shape.names[0] not in known:
                _aside(state.storage, key, value)
    being_undone = {row.undoes for row in known.values() if row.undoes}
    for name, row in known.items():
        if not row.rings_at and name not in being_undone:
            row = msgspec.structs.replace(row, rings_at=SOON_MS)
            state.storage.put(act_key(name), rows.encode(row))


async def _repair_calls(state: SchedulerState) -> None:
    """Set aside pieces of args that belong to no kept call; the others count as pending."""
    count_kept(state)
    kept = {} if state.later is None else state.later.kept
    async for key, value, shape in _shapes(state, b"laterargs"):
        name, n = shape.names
        if name not in kept or int(n) >= kept[name].job.args_rows:
            _aside(state.storage, key, value)


async def _repair_letters(state: SchedulerState, found: Rebuilt) -> None:
    """Write `parked/` anew from the dead jobs."""
    right: dict[bytes, bytes] = {}
    for job_id, letter in found.dead.items():
        job = found.jobs[job_id]
        row = rows.ParkedRow(letter.reason, job.pool, job.target)
        right[rows.parked_key(letter.parked_at, job_id)] = rows.encode(row)
    async for key, value in _rows(state.storage, b"parked/"):
        if key not in right:
            state.storage.delete(key)
        elif right[key] == value:
            del right[key]
    for key, value in right.items():
        state.storage.put(key, value)


# ---- Days and timers -----------------------------------------------------------------------------


async def _repair_days(state: SchedulerState) -> set[bytes]:
    """Move history, answers and the audit log to their own day; return the timers that drop these days."""
    needed: set[bytes] = set()
    for family, kind, after_ms in (
        (b"hist", HISTORY, rows.DAY_MS + state.history_ms),
        (b"idem", IDEM, 2 * rows.DAY_MS),
        (b"audit", AUDIT, rows.DAY_MS + AUDIT_MS),
    ):
        async for key, value, shape in _shapes(state, family):
            day = day_of(shape.row)
            assert day is not None, "rows of these families have one"
            if day != int(shape.names[0]):
                state.storage.put(b"%b/%06d/%b" % (family, day, "/".join(shape.names[1:]).encode()), value)
                state.storage.delete(key)
            needed.add(rows.timer_key(day * rows.DAY_MS + after_ms, kind, str(day)))
    return needed


async def _repair_timers(state: SchedulerState, found: Rebuilt, days: set[bytes]) -> None:
    """Write missing timers and remove those that serve no row."""
    useful, needed = _timers_of(found)
    async for _, _, shape in _shapes(state, b"redrive"):
        if shape.row.next_at:
            needed.add(rows.timer_key(shape.row.next_at, REDRIVE, shape.names[0]))
    async for _, _, shape in _shapes(state, b"act"):
        if shape.row.rings_at:
            needed.add(rows.timer_key(shape.row.rings_at, UNDO, shape.names[0]))
    async for _, _, shape in _shapes(state, b"result"):
        needed.add(rows.timer_key(shape.row.until, RESULT, shape.names[0]))
    async for _, _, shape in _shapes(state, b"throttle"):
        needed.add(rows.timer_key(shape.row.until, THROTTLE, shape.names[0]))
    for name in () if state.later is None else state.later.kept:
        if state.lease_of(name) is None:
            needed.add(rows.timer_key(SOON_MS, LATER, name))
    useful |= needed
    have_days: set[tuple[str, str]] = set()
    async for key, _, shape in _shapes(state, b"timer"):
        _, kind, name = shape.names
        needed.discard(key)
        if kind in SERVED and key not in useful:
            state.storage.delete(key)
        elif kind in (AUDIT, HISTORY, IDEM):
            have_days.add((kind, name))
    for key in sorted(needed):
        state.storage.put(key, b"")
    for key in sorted(days):
        _, _, kind_of, day = key.decode().split("/")
        if (kind_of, day) not in have_days:
            state.storage.put(key, b"")
    await state.look_at_timers()


def _timers_of(found: Rebuilt) -> tuple[set[bytes], set[bytes]]:
    """Return the timers of live and dead jobs: those that may exist, and those that must."""
    useful: set[bytes] = set()
    needed: set[bytes] = set()
    for job_id, job in found.jobs.items():
        letter = found.dead.get(job_id)
        if job.expires_at is not None:
            useful.add(rows.timer_key(job.expires_at, EXPIRE, job_id))
            if letter is None:
                needed.add(rows.timer_key(job.expires_at, EXPIRE, job_id))
        if letter is not None and letter.retire_at is not None:
            needed.add(rows.timer_key(letter.retire_at, RETIRE, job_id))
    return useful, needed
