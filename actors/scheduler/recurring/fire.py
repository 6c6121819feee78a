"""A slot becomes a job, waits for the live one to end, or ends without one; each with its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import msgspec

from tocsin.actors.scheduler.arguments import mint_id
from tocsin.actors.scheduler.followers import Follower, with_blob, with_ids
from tocsin.actors.scheduler.recurring.rows import DefinitionRow, SlotRow, occurrence_id, slot_key
from tocsin.actors.scheduler.recurring.schedule import Schedule, args_of
from tocsin.actors.scheduler.recurring.slots import Fire, Run
from tocsin.actors.scheduler.rows import JobRow, ScheduleRef, job_key
from tocsin.actors.scheduler.submit import accept, over_quota
from tocsin.actors.scheduler.turn import Turn

SPREAD_MS: Final = 300_000
SPREAD_OVER: Final = 3_000
"""Late occurrences start one after the other, 100 ms apart, within five minutes: the more of them, the closer."""
MERGED: Final = ("overlap", "quota")
"""Reasons of skipped slots that follow one another for long; those are one row."""


@dataclass(slots=True)
class Known:
    """What has to be read before slots can be fired."""

    taken: set[str] = field(default_factory=set)
    """Ids that jobs hold."""
    decided: set[bytes] = field(default_factory=set)
    """Keys of slots that have their row already: those ended before, whatever clock or rule say now."""
    args: dict[str, list[bytes]] = field(default_factory=dict)


async def know(turn: Turn, wanted: Sequence[tuple[Schedule, Sequence[int], Sequence[str]]]) -> Known:
    """For schedules, slots that may fire, and further ids: two hops at most."""
    ids = {
        job_key(job_id): job_id
        for one, slots, more in wanted
        for job_id in (*(occurrence_id(one.name, slot) for slot in slots), *more)
    }
    if not ids:
        return Known()
    slot_keys = [slot_key(one.name, slot) for one, slots, _ in wanted for slot in slots]
    rows = await turn.book.storage.get_many([*ids, *slot_keys])
    long = [one for one, slots, more in wanted if (slots or more) and one.definition.args_rows]
    args = await args_of(turn, long) if long else {}
    return Known({ids[key] for key in rows if key in ids}, {key for key in slot_keys if key in rows}, args)


def record_run(turn: Turn, one: Schedule, run: Run) -> None:
    """Slots that end without a job, as one row."""
    until = None if run.last == run.first else run.last
    row = SlotRow(run.state, turn.now, run.first + one.jitter, None, run.reason, until, run.count)
    one.record(turn, run.first, row)


def fire_slot(turn: Turn, one: Schedule, fire: Fire, known: Known, *, again: bool = False) -> None:
    """`again`: its row is there already, held back by an overlap that is over."""
    if not again and slot_key(one.name, fire.slot) in known.decided:
        return
    overlap = one.definition.overlap
    row = SlotRow("fired", turn.now, fire.slot + one.jitter, first_slot=fire.first_slot, coalesced=fire.coalesced)
    job_id = occurrence_id(one.name, fire.slot)
    if one.is_over(fire.slot, turn.now):
        one.record(turn, fire.slot, msgspec.structs.replace(row, state="expired"), again=again)
        return
    if overlap != "allow" and one.cursor.live:
        if overlap == "queue" and one.cursor.queued is None:
            one.record(turn, fire.slot, msgspec.structs.replace(row, state="queued"), again=again)
            one.move(queued=fire.slot)
            return
        reason = "overlap"
    elif job_id in known.taken:
        reason = "id_taken"
    elif over_quota(turn) is not None:
        reason = "quota"
    else:
        start(turn, one, job_id, fire.slot, row, known, late=fire.late, again=again)
        return
    skipped = msgspec.structs.replace(row, state="skipped", reason=reason)
    if again or reason not in MERGED or fire.first_slot is not None:
        one.record(turn, fire.slot, skipped, again=again)
    else:
        _join_run(turn, one, fire.slot, reason, skipped)


def _join_run(turn: Turn, one: Schedule, slot: int, reason: str, row: SlotRow) -> None:
    """Skipped like the one before it: the same row stands for both."""
    run = one.cursor.run
    if run is None or run[2] != reason:
        one.record(turn, slot, row)
        one.move(run=(slot, 1, reason))
        return
    first, count = run[0], run[1] + 1
    row = msgspec.structs.replace(row, due=first + one.jitter, until=slot, count=count)
    one.record(turn, first, row, again=True)
    one.move(run=(first, count, reason))


def start(
    turn: Turn, one: Schedule, job_id: str, slot: int, row: SlotRow, known: Known, *, late: bool, again: bool = False
) -> None:
    """The job: a frozen copy of the definition."""
    definition = one.definition
    expires_at = None if definition.expires_after_ms is None else row.due + definition.expires_after_ms
    one.record(turn, slot, msgspec.structs.replace(row, job_id=job_id), again=again)
    one.move(live=one.cursor.live + 1)
    known.taken.add(job_id)
    job = JobRow(
        id=job_id,
        incarnation="",
        scheduled_for=row.due,
        enqueued_at=turn.now,
        args=b"",
        function_path=definition.function_path,
        workflow=definition.workflow,
        pool=definition.pool,
        queue=definition.queue,
        priority=definition.priority,
        max_concurrency=definition.max_concurrency,
        retry=definition.retry,
        timeout_ms=definition.timeout_ms,
        expires_at=expires_at,
        shard_key=definition.shard_key,
        labels=definition.labels,
        initiator=definition.initiator,
        schedule=ScheduleRef(one.name, slot, definition.uid, row.first_slot, row.coalesced, row.request),
    )
    more = known.args.get(one.name, [])
    # What is left of them, where a piece is missing, must not be taken for all of them: the job dies of its damage.
    args = definition.args + b"".join(more if len(more) == definition.args_rows else [])
    new = with_blob(job, args, _followers(turn, definition))
    accept(turn, new, _start_at(turn, job) if late else row.due)


def _followers(turn: Turn, definition: DefinitionRow) -> tuple[Follower, ...]:
    """What follows this occurrence, under ids of its own."""
    mint = (mint_id(turn.now, turn.random.getrandbits(80)) for _ in repeat(None))
    return with_ids(definition.then, mint)


def _start_at(turn: Turn, job: JobRow) -> int:
    """Late ones are spread, so that a catch-up does not fire everything in one second; in order, and never past their
    time."""
    spread = turn.book.occurrences
    at = max(turn.now, spread.spread_until)
    if at > turn.now + SPREAD_MS:  # the clock has stepped back
        at = turn.now
    if job.expires_at is not None and at >= job.expires_at:
        return job.scheduled_for
    spread.spread_until = at + (SPREAD_MS - (at - turn.now)) // SPREAD_OVER
    return job.scheduled_for if at == turn.now else at
