"""Events and timers of schedules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, assert_never

from tocsin.actors.runtime.events import Event, answer
from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.backfill_rows import BACKFILL, BackfillRow
from tocsin.actors.scheduler.model.schedule_rows import FORGET, RECHECK, TIMER
from tocsin.actors.scheduler.schedules import backfill_asked, change
from tocsin.actors.scheduler.schedules.backfill import go_on
from tocsin.actors.scheduler.schedules.change import NewSchedule, Triggered
from tocsin.actors.scheduler.schedules.process_due import on_timer
from tocsin.actors.scheduler.schedules.purge import purge
from tocsin.actors.scheduler.schedules.recompute import recompute
from tocsin.actors.scheduler.schedules.register import leave, register
from tocsin.actors.scheduler.schedules.schedule import Schedule
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.errors import RequestError


class PutSchedules(Event[list[Schedule] | RequestError], frozen=True):
    news: Sequence[NewSchedule]
    by: AskedBy | None = None


class SetSchedulePaused(Event[Schedule | RequestError], frozen=True):
    name: str
    paused: bool
    revision: int | None
    by: AskedBy | None = None


class DeleteSchedule(Event[Schedule | RequestError], frozen=True):
    name: str
    revision: int | None
    by: AskedBy | None = None


class TriggerSchedule(Event[Triggered | RequestError], frozen=True):
    name: str
    request: str
    by: AskedBy | None = None


class RegisterSchedules(Event[tuple[list[Schedule], str] | RequestError], frozen=True):
    owner: str
    news: Sequence[NewSchedule]
    by: AskedBy | None = None


class LeaveSchedules(Event[tuple[list[str], str | None] | RequestError], frozen=True):
    owner: str
    names: frozenset[str]
    token: str
    prune: bool
    start: str | None
    by: AskedBy | None = None


class StartBackfill(Event[BackfillRow | RequestError], frozen=True):
    """Run the slots from `first` to `last`, both included. Answered with the backfill as it begins."""

    name: str
    backfill_id: str
    first: int
    last: int
    rate: int
    matched: int
    by: AskedBy | None = None


class StopBackfill(Event[bool | RequestError], frozen=True):
    name: str
    backfill_id: str
    by: AskedBy | None = None


ScheduleChange = (
    PutSchedules
    | SetSchedulePaused
    | DeleteSchedule
    | TriggerSchedule
    | RegisterSchedules
    | LeaveSchedules
    | StartBackfill
    | StopBackfill
)


async def change_schedules(turn: Turn, event: ScheduleChange) -> object:
    """Carry out a change. A refusal is answered: it is raised before anything was changed, but for rows that could not
    be read."""
    try:
        match event:
            case PutSchedules(news, by):
                made, changed = await change.put(turn, news)
                for one in changed:
                    audit.note(turn, by, "schedules.put", one.name, change.shown(one))
                return answer(event, made)
            case SetSchedulePaused(name, paused, revision, by):
                return answer(event, await change.set_paused(turn, name, paused, revision, by))
            case DeleteSchedule(name, revision, by):
                gone = await change.delete(turn, name, revision)
                audit.note(turn, by, "schedules.delete", name)
                return answer(event, gone)
            case TriggerSchedule(name, request, by):
                run = await change.trigger(turn, name, request)
                audit.note(turn, by, "schedules.trigger", name, {"id": run.job_id}, run.created)
                return answer(event, run)
            case RegisterSchedules(owner, news, by):
                return answer(event, await register(turn, owner, news, by))
            case LeaveSchedules(owner, names, token, prune, start, by):
                return answer(event, await leave(turn, owner, names, token, prune, start, by))
            case StartBackfill(name, backfill_id, first, last, rate, matched, by):
                begun = await backfill_asked.start(turn, name, backfill_id, first, last, rate, matched, by)
                return answer(event, begun)
            case StopBackfill(name, backfill_id, by):
                return answer(event, await backfill_asked.stop(turn, name, backfill_id, by))
            case _:
                assert_never(event)
    except RequestError as refusal:
        return refusal


RINGS: Final[Mapping[str, Callable[[Turn, Sequence[tuple[int, str]]], Awaitable[None]]]] = {
    TIMER: on_timer,
    FORGET: purge,
    RECHECK: recompute,
    BACKFILL: go_on,
}
"""Each deletes the rows of the timers that it has served: what is too much for one turn is still due."""
NEW_WORK: Final = ([TIMER.encode()], [RECHECK.encode()], [BACKFILL.encode()])
"""The kinds, as they stand in a key, of those that wait while the store is full."""
