"""Process schedules whose timers have come: decide the slots that have come, each with its row, in the commit that
moves the cursor. What is wrong with one stops no other; what is too much for one turn is left to the next."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.model.rows import DAY_MS, SOON
from tocsin.actors.scheduler.model.schedule_rows import TIMER, slot_key
from tocsin.actors.scheduler.schedules import series, slots
from tocsin.actors.scheduler.schedules.allowance import Allowance, Share
from tocsin.actors.scheduler.schedules.fire import Known, fire_slot, know, record_pieces, record_run
from tocsin.actors.scheduler.schedules.schedule import TRIMMED_BY, Schedule, load, read_slot, trim, used_slots
from tocsin.actors.scheduler.schedules.slots import Fire, Owed
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.errors import TocsinError

log = logging.getLogger("tocsin.scheduler")

AT_ONCE: Final = 200
"""Schedules processed in one turn."""
FAILED_AGAIN_MS: Final = 3_600_000
"""After that long a schedule is looked at again that was set aside because a slot of it could not be decided."""
BACKLOGS: Final = 50
"""At most so many of them continue a backlog: one goes first, the others after those that are due."""


@dataclass(frozen=True, slots=True)
class Looked:
    """One processed schedule, a slot of it that was held back until now, and what it owes."""

    one: Schedule
    held: Fire | None
    owed: Owed | None
    slots: list[int]
    """Those that may become jobs."""
    read: list[int]
    """Those whose rows have to be read: also one that goes on to be held back."""


class SlotFailed(TocsinError):
    """A slot could not be decided. Nothing of its turn was written; the next one sets its schedule aside."""

    def __init__(self, seen: Looked, error: Exception) -> None:
        super().__init__(f"schedule {seen.one.name!r}: {type(error).__name__}")
        self._slots = ", ".join(map(str, seen.slots[:3])) or "none"
        self.why = f"a slot of it cannot be decided (slot {self._slots}): {error!r:.200}"

    def __repr__(self) -> str:
        """Name the slot too, which is another one at the next try: the text says whether it is the same fault."""
        return f"SlotFailed({self}, slot {self._slots})"


async def on_timer(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Process schedules whose timers have come. Each timer is dropped with its schedule's turn; those left are still
    due."""
    soon = [one for one in due if one[0] < SOON][:BACKLOGS]
    now = [*soon[:1], *[one for one in due if one[0] >= SOON][: AT_ONCE - len(soon)], *soon[1:]]
    found = await load(turn, [name for _, name in now])
    rung: list[Schedule] = []
    for ms, name in now:
        if name in found and found[name].cursor.rings_at == ms:
            rung.append(found[name])
        else:
            turn.state.drop_timer(ms, TIMER, name)
    looked = await process_due(turn, rung)
    tick = turn.state.occurrences.tick
    for one in rung[:looked]:
        tick.failed = tick.failed or one.cursor.error is not None
        tick.rest = tick.rest or (one.cursor.rings_at is not None and one.cursor.rings_at <= turn.now)
    tick.rest = tick.rest or looked < len(due)


async def process_due(turn: Turn, schedules: Sequence[Schedule]) -> int:
    """Decide what has come, and save; return of how many schedules, from the first on."""
    failed = turn.state.occurrences.failed
    waiting = [one for one in schedules if one.cursor.queued is not None and one.version not in failed]
    held = await _held(turn, waiting) if waiting else {}
    ahead = [one for one in schedules if one.cursor.used_to is not None]
    used = await used_slots(turn, ahead) if ahead else {}
    allowance = Allowance(turn, for_schedules=len(schedules))
    looked: list[Looked] = []
    for one in schedules:
        if looked and allowance.spent:
            break
        if failed and (why := failed.get(one.version)) is not None:
            stop(turn, one, TocsinError(why), again_ms=FAILED_AGAIN_MS)
            turn.ctx.after_commit(turn.state.occurrences.forget_failed, one.version)
            looked.append(Looked(one, None, None, [], []))
            continue
        most = max(min(allowance.rows // one.rows, allowance.size // one.size), 1)
        seen = _see(turn, one, held.get(one.name), used.get(one.name, frozenset()), allowance.share(most))
        allowance.take(2 + one.rows * len(seen.slots), one.size * len(seen.slots))
        looked.append(seen)
    known = await know(turn, [(seen.one, seen.read, ()) for seen in looked])
    for seen in looked:
        try:
            _apply(turn, seen, known)
        except Exception as error:
            # Whatever it is, the turn cannot be kept: half of the slot may be written. The next turn sets this schedule
            # aside, and the others go on.
            failure = SlotFailed(seen, error)
            failed[seen.one.version] = failure.why
            raise failure from error
    for seen in looked:
        if seen.one.cursor.kept >= turn.state.limits.kept_slots + TRIMMED_BY:
            await trim(turn, seen.one, allowance)
        seen.one.save(turn)
    return len(looked)


async def _held(turn: Turn, schedules: Sequence[Schedule]) -> dict[str, Fire]:
    """Return by name the slot that an overlap held back, where nothing is live any more, or its own time is over."""
    free = [
        (one, one.cursor.queued)
        for one in schedules
        if one.cursor.queued is not None and (one.may_start or one.is_over(one.cursor.queued, turn.now))
    ]
    keys = {one.name: slot_key(one.name, slot) for one, slot in free if slot is not None}
    rows = await turn.state.storage.get_many(keys.values()) if keys else {}
    found: dict[str, Fire] = {}
    for one, slot in free:
        row = read_slot(turn, one, keys[one.name], rows)
        pieces = one.cursor.stands or ()
        one.move(queued=None, stands=None)
        if slot is not None and row is not None and row.state == "queued":
            found[one.name] = Fire(slot, False, row.first_slot, row.coalesced)
            if pieces:
                found[one.name].stand_for(pieces)
        else:  # its row was lost: no job stands for them
            record_pieces(turn, one, pieces, "skipped", "overlap")
    return found


def _see(turn: Turn, one: Schedule, held: Fire | None, used: Collection[int], share: Share) -> Looked:
    """Compute what a schedule owes; one that is paused, or cannot be computed, owes nothing."""
    owed: Owed | None = None
    if one.cursor.paused:
        one.move(rings_at=None)
    else:
        try:
            found = series.next_of(one.definition)
            found = series.unused(found, used) if used else found
            owed = slots.owed(one.definition, one.cursor, found, turn.now - one.jitter, share)
        except Exception as error:
            # A zone that is gone, a row edited by hand, a fault of the search: whatever it is, it is this schedule's.
            stop(turn, one, error)
    fires = [*([held] if held else []), *(owed.fires if owed is not None else [])]
    may_fire = [fire.slot for fire in fires]
    waits = one.cursor.queued
    return Looked(one, held, owed, may_fire, may_fire if waits is None else [waits, *may_fire])


def stop(turn: Turn, one: Schedule, error: Exception, *, again_ms: int = DAY_MS) -> None:
    """Stop a schedule, which says why, until it is put or resumed, or means something again: that is tried after
    `again_ms`, and at a start with other time zones."""
    why = error.message if isinstance(error, TocsinError) else f"its rule cannot be computed: {error!r:.200}"
    log.error("schedule %s stops: %s", one.name, why, exc_info=None if isinstance(error, TocsinError) else error)
    one.move(error=why, next_slot=None, rings_at=None if one.cursor.paused else turn.now + again_ms)


def _apply(turn: Turn, seen: Looked, known: Known) -> None:
    one, owed = seen.one, seen.owed
    if seen.held is not None:
        fire_slot(turn, one, seen.held, known, again=True)
    if owed is None:
        return
    for run in owed.runs:
        record_run(turn, one, run)
    for fire in owed.fires:
        fire_slot(turn, one, fire, known)
    decided = owed.cursor
    tick = turn.state.occurrences.tick
    tick.looked = True
    for slot in (*(run.first for run in owed.runs), *(fire.first_slot or fire.slot for fire in owed.fires)):
        tick.late_ms = max(tick.late_ms, turn.now - one.jitter - slot)
    one.move(
        last=decided.last,
        next_slot=decided.next_slot,
        error=None,
        skip_to=decided.skip_to,
        fire_to=decided.fire_to,
    )
    one.arm(more=owed.more)
