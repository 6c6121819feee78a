"""Carry out what operators ask for: of jobs, dead letters, pools and the instance. Each is noted in the audit log if
its event says who asks."""

from __future__ import annotations

from tocsin.actors.runtime.events import answer
from tocsin.actors.scheduler.model.records import DeadRetried
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit, clock, events, groups, pools, redrive, stopping, undo
from tocsin.actors.scheduler.transitions.discard import discard_many
from tocsin.actors.scheduler.transitions.set_queue import set_queue
from tocsin.actors.scheduler.transitions.submit import cancel, cancel_dead, retry_dead
from tocsin.errors import ConflictError, TocsinError

Operated = (
    events.Cancel
    | events.CancelMany
    | events.DiscardMany
    | events.StartUndo
    | events.UndoPage
    | events.Reschedule
    | events.RetryDead
    | events.CancelDead
    | events.StartRedrive
    | events.StopRedrive
    | events.SetPool
    | events.SetQueue
    | events.DeletePool
    | events.OpenGroup
    | events.SealGroup
    | events.StopGroup
    | events.SetInstance
)
OperatedClock = events.SetClock | events.AdvanceClock | events.FreezeClock


async def operate(turn: Turn, event: Operated) -> object:
    """Do what the event asks for, and return its answer."""
    match event:
        case events.Cancel(job_id, by):
            cancelled = await cancel(turn, job_id)
            audit.note(turn, by, "cancel", job_id, changed=cancelled.cancelled)
            return answer(event, cancelled)
        case events.CancelMany(page, act):
            return answer(event, await pools.cancel_many(turn, page, act))
        case events.DiscardMany(letters, act):
            return answer(event, await discard_many(turn, letters, act))
        case events.StartUndo(undo_id, action_id, by):
            return answer(event, await undo.start(turn, undo_id, action_id, by))
        case events.UndoPage(undo_id):
            return answer(event, await undo.page(turn, undo_id))
        case events.Reschedule(job_id, due, by):
            moved = await pools.reschedule(turn, job_id, due)
            if not isinstance(moved, int):
                audit.note(turn, by, "reschedule", job_id, {"scheduledFor": due}, moved.rescheduled)
            return answer(event, moved)
        case events.RetryDead(job_id, by):
            due_of_old = await retry_dead(turn, job_id)
            audit.note(turn, by, "dead_retry", job_id, changed=due_of_old is not None)
            retried = DeadRetried(False) if due_of_old is None else DeadRetried(True, job_id, due_of_old)
            return answer(event, retried)
        case events.CancelDead(job_id, by):
            removed = await cancel_dead(turn, job_id)
            audit.note(turn, by, "dead_cancel", job_id, changed=removed)
            return answer(event, removed)
        case events.StartRedrive(redrive_id, row, known, by):
            return answer(event, await redrive.start(turn, redrive_id, row, known, by))
        case events.StopRedrive(redrive_id, by):
            stopped = await redrive.stop(turn, redrive_id)
            audit.note(turn, by, "redrive_stop", redrive_id, changed=stopped)
            return answer(event, stopped)
        case events.OpenGroup(new):
            return answer(event, await groups.open_group(turn, new))
        case events.SealGroup(name):
            return answer(event, await groups.seal(turn, name))
        case events.StopGroup(name, by):
            return answer(event, await stopping.stop(turn, name, by))
        case _:
            return await _operate_limits(turn, event)


async def _operate_limits(
    turn: Turn, event: events.SetPool | events.SetQueue | events.DeletePool | events.SetInstance
) -> object:
    match event:
        case events.SetPool(name, settings, by):
            return answer(event, await pools.set_pool(turn, name, settings, by))
        case events.SetQueue(name, taken, by):
            return answer(event, set_queue(turn, name, taken, by))
        case events.DeletePool(name, by):
            try:
                deleted = await pools.delete_pool(turn, name)
            except ConflictError as refusal:  # raised before anything was changed
                return answer(event, refusal)
            audit.note(turn, by, "delete_pool", name, changed=deleted)
            return answer(event, deleted)
        case events.SetInstance(paused, timeout_ms, by):
            instance = await pools.set_instance(turn, paused, timeout_ms, by)
            return answer(event, instance)


async def operate_clock(turn: Turn, event: OperatedClock) -> object:
    """Do what is asked of the test clock, and return the answer."""
    before = turn.state.clock
    match event:
        case events.SetClock(at, by):
            answered = answer(event, await clock.create(turn, at))
            action, said = "clock.create", {"at": at}
        case events.AdvanceClock(to, by_ms, by):
            answered = answer(event, clock.advance(turn, to, by_ms))
            action, said = "clock.advance", {"byMs": by_ms} if to is None else {"to": to}
        case events.FreezeClock(by):
            answered = answer(event, clock.freeze(turn))
            action, said = "clock.freeze", {}
    changed = not isinstance(answered, TocsinError) and turn.state.clock != before
    audit.note(turn, by, action, said=said, changed=changed)
    return answered
