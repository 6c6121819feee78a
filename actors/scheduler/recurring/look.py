"""A look at schedules whose timers have rung: the slots that have come are decided, each with its row, in the commit
that moves the cursor. What is wrong with one stops no other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.actors.scheduler.recurring import slots
from tocsin.actors.scheduler.recurring.fire import Known, fire_slot, know, record_run
from tocsin.actors.scheduler.recurring.schedule import Schedule, load, trim
from tocsin.actors.scheduler.recurring.slots import Come, Fire, Plan
from tocsin.actors.scheduler.turn import Turn
from tocsin.errors import RequestError

log = logging.getLogger("tocsin.scheduler")


@dataclass(frozen=True, slots=True)
class Looked:
    """One schedule, what has come of it, and what becomes of that."""

    one: Schedule
    found: Come
    plan: Plan

    @property
    def slots(self) -> list[int]:
        return [fire.slot for fire in self.plan.fires]


async def ring(turn: Turn, due: Sequence[tuple[int, str]]) -> None:
    """Timers of schedules have rung, and their rows are gone."""
    found = await load(turn, [name for _, name in due])
    rung = [found[name] for ms, name in due if name in found and found[name].cursor.rings_at == ms]
    for one in rung:
        one.rung()
    await look(turn, rung)
    for one in rung:
        one.save(turn)


async def look(turn: Turn, schedules: Sequence[Schedule]) -> None:
    """Decide what has come, and set each timer anew. The caller saves them."""
    looked = [seen for one in schedules if (seen := _see(turn, one)) is not None]
    known = await know(turn, [(seen.one, seen.slots, ()) for seen in looked])
    for seen in looked:
        _apply(turn, seen, known)
        await trim(turn, seen.one)


def _see(turn: Turn, one: Schedule) -> Looked | None:
    if one.cursor.paused:
        one.move(rings_at=None)
        return None
    try:
        following = slots.next_of(one.definition)
        found = slots.come(following, one.cursor, turn.now - one.jitter, slots.wanted(one.definition))
        next_slot = following(found.last)
    except RequestError as error:
        stop(one, error)
        return None
    plan = _plan(turn, one, found)
    one.set_next(next_slot, found.last, at_once=None if found.reached else turn.now)
    return Looked(one, found, plan)


def stop(one: Schedule, error: RequestError) -> None:
    """A zone that is gone, a row edited by hand: it stops and says why, until it is put or resumed."""
    log.error("schedule %s stops: %s", one.name, error.message)
    one.move(error=error.message, next_slot=None, rings_at=None)


def _plan(turn: Turn, one: Schedule, found: Come) -> Plan:
    if found.reached:
        return slots.decide(one.definition, found, turn.now, one.jitter)
    on_time_from = turn.now - one.jitter - one.definition.grace_ms
    return Plan(fires=[Fire(slot, slot < on_time_from) for slot in found.slots])


def _apply(turn: Turn, seen: Looked, known: Known) -> None:
    one = seen.one
    for run in seen.plan.runs:
        record_run(turn, one, run)
    for fire in seen.plan.fires:
        fire_slot(turn, one, fire, known)
    if seen.found.reached:
        one.move(missed_from=None, missed=0)
    else:
        one.move(missed_from=seen.found.missed_from, missed=seen.found.missed or 0)
    if seen.plan.runs or seen.plan.fires:
        turn.book.occurrences.see(seen.found.last)
