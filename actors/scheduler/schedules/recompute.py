"""A pass over all schedules, a page a turn: when the time zones have changed, next slots are computed anew; when the
clock was wrong, those that were ahead of it come back; when a job's row was lost, what lives is counted anew."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from tocsin.actors.cron.zones import database_version
from tocsin.actors.scheduler.model.rows import DAY_MS, META_ZONES, JobRow, dead_key, encode, job_key
from tocsin.actors.scheduler.model.schedule_rows import (
    RECHECK,
    SlotRow,
    cursor_key,
    slot_key,
    slot_prefix,
    split_slot_key,
)
from tocsin.actors.scheduler.schedules.allowance import Allowance
from tocsin.actors.scheduler.schedules.process_due import stop
from tocsin.actors.scheduler.schedules.schedule import Schedule, load, read_slot
from tocsin.actors.scheduler.schedules.series import next_of
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.storage.api import after

log = logging.getLogger("tocsin.scheduler")

AHEAD_MS: Final = DAY_MS
"""A cursor this far ahead of the clock was moved by a clock that was wrong (contract, section 6; scenario K04)."""
PAGE: Final = 100


async def check_zones(turn: Turn) -> None:
    """Begin a pass, at activation, if the time zones differ from those of the last one."""
    version = database_version().encode()
    stored = await turn.state.storage.get(META_ZONES)
    turn.state.occurrences.zones_noted = stored is not None
    if stored == version:
        return
    has_any = await turn.state.storage.scan(b"cronat/", after(b"cronat/"), limit=1)
    if has_any:
        note_zones(turn)
        if stored is not None:
            log.warning("time zones are now %s: the next slots of all schedules are checked", version.decode())
        turn.state.put_timer(1, RECHECK, "")


def note_zones(turn: Turn) -> None:
    """Note the version of the time zones with which next slots are computed from here on."""
    turn.state.storage.put(META_ZONES, database_version().encode())
    turn.state.occurrences.zones_noted = True


def check_clock(turn: Turn) -> None:
    """Begin a pass if the clock is more than a day behind the latest slot: it was ahead before."""
    seen = turn.state.occurrences
    if is_behind(turn.now, seen.latest_slot):
        log.error(
            "the clock is %d s behind the latest slot that was decided, so it was wrong then or is now: "
            "schedules go on from here", (seen.latest_slot - turn.now) // 1000,
        )  # fmt: skip
        seen.forget_latest(turn.now)
        turn.state.put_timer(1, RECHECK, "")
    if seen.lost_jobs:
        seen.lost_jobs = False
        turn.state.put_timer(1, RECHECK, "")


def in_doubt(now: int, latest_slot: bytes, zones: bytes | None) -> bool:
    """Tell from the rows `meta/slot` and `meta/zones` whether the next slots may be wrong."""
    behind = latest_slot.isdigit() and is_behind(now, int(latest_slot))
    return behind or zones != database_version().encode()


def is_behind(now: int, latest_slot: int) -> bool:
    return latest_slot > now + AHEAD_MS


async def recompute(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Carry out a page of each pass; of two passes the one that is behind does the work of both."""
    first = min(name for _, name in due)
    for ms, name in due:
        turn.state.drop_timer(ms, RECHECK, name)
    allowance = Allowance(turn)
    start = cursor_key(first) + b"\x00" if first else b"cronat/"
    rows = await turn.state.storage.scan(start, after(b"cronat/"), limit=PAGE)
    names = [key[7:].decode() for key, _ in rows]
    found = await load(turn, names)
    done = 0
    for name in names:
        if done and allowance.spent:
            break
        done += 1
        if name in found:
            await _recompute(turn, found[name], allowance)
    if done < len(names) or len(rows) == PAGE:
        turn.state.put_timer(1, RECHECK, names[done - 1])


async def _recompute(turn: Turn, one: Schedule, allowance: Allowance) -> None:
    if one.cursor.live or one.cursor.next_slot is None:
        await _count_live(turn, one, allowance)
    if one.cursor.last > turn.now + AHEAD_MS:
        log.warning("schedule %s was at slot %d, more than a day ahead: it goes on from now", one.name, one.cursor.last)
        await _take_back(turn, one, allowance)
    try:
        allowance.steps -= 2
        one.move(next_slot=next_of(one.definition)(one.cursor.last), error=None)
    except Exception as error:
        # As where slots are processed: it is this schedule's fault, and stops no other.
        stop(turn, one, error)
    else:
        one.arm(more=one.cursor.skip_to is not None)
    one.save(turn)


async def _count_live(turn: Turn, one: Schedule, allowance: Allowance) -> None:
    """Count anew which occurrences live: a job whose row was lost, or set aside, never says that it has ended."""
    prefix = slot_prefix(one.name)
    rows = await turn.state.storage.scan(prefix, after(prefix), limit=2 * turn.state.limits.kept_slots)
    allowance.take(len(rows) // 10)
    kept = [read_slot(turn, one, key, {key: value}) for key, value in rows]
    ids = [row.job_id for row in kept if row is not None and row.job_id is not None and row.state == "fired"]
    jobs = await turn.state.storage.get_many([key for job_id in ids for key in (job_key(job_id), dead_key(job_id))])
    live = 0
    for job_id in ids:
        key = job_key(job_id)
        job = turn.state.read(JobRow, key, jobs[key]) if key in jobs and dead_key(job_id) not in jobs else None
        live += job is not None and job.schedule is not None and job.schedule.uid == one.definition.uid
    if len(rows) < turn.state.limits.kept_slots:  # else some may live whose slots are forgotten
        one.move(live=live)


async def _take_back(turn: Turn, one: Schedule, allowance: Allowance) -> None:
    """Take back what was recorded for slots that have not come after all. Those that became jobs stay used."""
    cursor, storage = one.cursor, turn.state.storage
    prefix = slot_prefix(one.name)
    future = await storage.scan(slot_key(one.name, turn.now + 1), after(prefix), limit=2 * turn.state.limits.kept_slots)
    dropped = 0
    for key, value in future:
        row = read_slot(turn, one, key, {key: value})
        if row is not None and row.job_id is None and row.state != "queued":
            storage.delete(key)
            dropped += 1
    allowance.take(dropped)
    kept, now_key = turn.state.limits.kept_slots, slot_key(one.name, turn.now + 1)
    past = await storage.scan(prefix, now_key, limit=kept, reverse=True)
    allowance.take(len(past) // 10)
    for key, value in past:
        row = read_slot(turn, one, key, {key: value})
        if row is not None and row.until is not None and row.until > turn.now:
            storage.put(key, encode(_cut(row, split_slot_key(key), turn.now)))
    _keep_what_came(turn, one)
    one.move(
        last=turn.now, kept=one.cursor.kept - dropped, used_to=cursor.last,
        skip_to=None, fire_to=None, run=None, starts_from=None,
    )  # fmt: skip


def _keep_what_came(turn: Turn, one: Schedule) -> None:
    """Keep those slots that have come of those that the one held back stands for: the others come again."""
    if one.cursor.stands is not None:
        came = [piece for piece in one.cursor.stands if piece[0] <= turn.now]
        one.move(stands=tuple(piece if piece[1] <= turn.now else (piece[0], turn.now, None) for piece in came))


def _cut(row: SlotRow, first: int, now: int) -> SlotRow:
    """Cut a run off where it has come to. Its slots are those of the rule of then, which is not known: so it ends
    with the clock, and how many they are is known only of one."""
    single = first == now
    return msgspec.structs.replace(row, until=None if single else now, count=1 if single else None)
