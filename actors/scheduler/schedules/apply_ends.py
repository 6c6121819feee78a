"""Occurrences end: their slots say how, and a slot that an overlap held back starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tocsin.actors.scheduler.model.rows import End, encode
from tocsin.actors.scheduler.model.schedule_rows import slot_key
from tocsin.actors.scheduler.schedules.fire import record_pieces
from tocsin.actors.scheduler.schedules.schedule import Schedule, load, read_slot
from tocsin.actors.scheduler.state.turn import Turn

LIVE_BY: dict[str, int] = {
    "done": -1, "expired": -1, "cancelled": -1, "dead": -1, "retried": 1, "dropped": 0, "restored": 0,
}  # fmt: skip
"""How many more of its occurrences live after such an end. `dropped`: a dead one was cancelled. `restored`: that was
undone."""
STATES: dict[str, str] = {
    "expired": "expired", "cancelled": "cancelled", "dead": "dead", "retried": "fired", "dropped": "cancelled",
    "restored": "dead",
}  # fmt: skip


async def apply_ends(turn: Turn) -> None:
    """Apply what the turn has noted of occurrences (`Occurrences.note`); last, since any event may end one."""
    seen = turn.state.occurrences
    while seen.ended:
        ends, seen.ended = seen.ended, []
        found = await load(turn, list({ref.name for ref, _, _ in ends}))
        if told := [one for one in ends if one[2] in STATES]:
            await _write_states(turn, told, found)
        for ref, _, how in ends:
            one = found.get(ref.name)
            if one is not None and one.definition.uid == ref.uid:
                one.move(live=max(one.cursor.live + LIVE_BY[how], 0))
                doing = one.cursor.backfill
                if doing is not None and doing.live_slot == ref.slot and ref.request is None and LIVE_BY[how] < 0:
                    one.move(backfill=msgspec.structs.replace(doing, live_slot=None))
        if free := [one for one in found.values() if one.cursor.queued is not None and not one.cursor.live]:
            await _held_back(turn, free)
        for one in found.values():
            one.save(turn)


async def _write_states(turn: Turn, ends: Sequence[End], found: Mapping[str, Schedule]) -> None:
    """Write how occurrences ended into the rows of their slots; those that were trimmed meanwhile are left alone."""
    changed = [(ref.name, slot_key(ref.name, ref.slot, ref.request), job_id, STATES[how]) for ref, job_id, how in ends]
    rows = await turn.state.storage.get_many([key for _, key, _, _ in changed])
    for name, key, job_id, state in changed:
        row = read_slot(turn, found.get(name), key, rows)
        if row is not None and row.job_id == job_id:
            at = row.at if state in ("dead", "fired") else turn.now  # how late it was fired stays what it was
            turn.state.storage.put(key, encode(msgspec.structs.replace(row, state=state, at=at)))


async def _held_back(turn: Turn, schedules: Sequence[Schedule]) -> None:
    """Start the slot that waited until no occurrence lives, with the next look; or let it pass, while its schedule is
    paused."""
    paused = [one for one in schedules if one.cursor.paused]
    for one in schedules:
        if not one.cursor.paused:
            one.arm()
    if paused:
        await drop_held(turn, paused, "paused")


async def drop_held(turn: Turn, schedules: Sequence[Schedule], reason: str) -> None:
    """Let slots that were held back pass, with those they were to stand for."""
    keys = {one.name: slot_key(one.name, one.cursor.queued) for one in schedules if one.cursor.queued is not None}
    rows = await turn.state.storage.get_many(keys.values()) if keys else {}
    for one in schedules:
        if one.name in keys:
            row = read_slot(turn, one, keys[one.name], rows)
            if row is not None and row.state == "queued":
                passed = msgspec.structs.replace(
                    row, state="skipped", reason=reason, at=turn.now, first_slot=None, coalesced=0
                )
                turn.state.storage.put(keys[one.name], encode(passed))
            record_pieces(turn, one, one.cursor.stands or (), "skipped", reason)
            one.move(queued=None, stands=None)
