"""The scheduler actor: what the turn of each event does. The end of every turn is in `end_of_turn`.

The work of an event is in the module named after it. Memory is read from rows at activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from logging import DEBUG
from typing import Any

from tocsin.actors.runtime.actor import ActorContext, EventActor
from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.events import Event, answer
from tocsin.actors.scheduler.actor import change_log
from tocsin.actors.scheduler.actor.away import check, is_sealed
from tocsin.actors.scheduler.actor.end_of_turn import EndOfTurn
from tocsin.actors.scheduler.actor.expiry import end_leases, return_unsent, run_timers
from tocsin.actors.scheduler.actor.operators import operate, operate_clock
from tocsin.actors.scheduler.actor.pull import give_back
from tocsin.actors.scheduler.actor.shared_turns import (
    READ_IN_STEPS,
    may_share,
    read_ahead,
    submits_from,
    takes_no_more,
)
from tocsin.actors.scheduler.inflight.deaths import DeadJob
from tocsin.actors.scheduler.inflight.inflight import Inflight
from tocsin.actors.scheduler.inflight.renderers import Renderers
from tocsin.actors.scheduler.model.moving import moved, moved_to
from tocsin.actors.scheduler.model.names import KIND
from tocsin.actors.scheduler.schedules.events import ScheduleChange, change_schedules
from tocsin.actors.scheduler.schedules.recompute import check_zones
from tocsin.actors.scheduler.state.occurrences import FailedSlots, Tick
from tocsin.actors.scheduler.state.rebuild import load
from tocsin.actors.scheduler.state.scheduler_state import Limits, SchedulerState
from tocsin.actors.scheduler.state.turn import Change, Turn
from tocsin.actors.scheduler.transitions import arrival, events
from tocsin.actors.scheduler.transitions.complete import complete, extend
from tocsin.actors.scheduler.transitions.following import follow_deaths
from tocsin.actors.scheduler.transitions.free_slot import free
from tocsin.actors.scheduler.transitions.idempotency import Once, submit_once
from tocsin.actors.scheduler.transitions.pools import (
    Erased,
    erase_page,
)
from tocsin.actors.scheduler.transitions.put_off import bring_later
from tocsin.actors.scheduler.transitions.settle import settle
from tocsin.actors.scheduler.transitions.submit import submit, submit_together
from tocsin.errors import ConflictError, StaleLeaseError, TurnError

ERASE_ALONE_MS = 5_000
"""A removal goes on by itself if its caller has not asked for the next page for this long."""

Ticked = Callable[[int, int], None]
"""Is called when a pass over schedules is durable, with the instant up to which all slots are decided and how late the
latest decision was, in ms."""


SchedulerEvent = events.ErasePage | events.CountPaths | events.OrdinaryEvent | events.Moving | ScheduleChange


class SchedulerActor(EventActor[SchedulerEvent]):
    """One instance: jobs, leases, pools and dead letters of one name."""

    kind = KIND
    alarm_backoff_max_ms = 5_000

    def __init__(
        self,
        ctx: ActorContext,
        inflight: Inflight,
        renderers: Renderers,
        owner: str,
        full: Callable[[], bool],
        limits: Limits,
        host_clock: Clock,
        died: Callable[[Sequence[DeadJob]], None],
        failed_slots: FailedSlots,
        ticked: Ticked | None = None,
    ) -> None:
        super().__init__(ctx)
        self._failed_slots = failed_slots
        self._ticked = ticked
        self._inflight = inflight
        self._renderers = renderers
        self._owner = owner
        self._full = full
        self._limits = limits
        self._clock = host_clock
        self._end = EndOfTurn(inflight, full, died)
        self._state = SchedulerState(ctx.storage, limits, failed_slots)

    async def on_start(self) -> None:
        await self._start(None)

    async def _start(self, note: Callable[[Turn], None] | None) -> None:
        await load(self._state)
        turn = self._turn()
        if note is not None:
            note(turn)
        if not (self._state.instance.erasing or is_sealed(self._state.instance)):
            await return_unsent(turn, self._inflight.lanes.is_live)
            await bring_later(turn)
            await check_zones(turn)
            await self._end.run_first(turn)
            self._note_clock()

    def pinned(self) -> bool:
        return self._inflight.lanes.busy or self._inflight.waiting_claims.busy

    def _turn(self) -> Turn:
        began, wall, own = self._clock.monotonic(), self._clock.now_ms(), self._state.clock
        if self._state.lines.meters is not None:
            self._state.lines.begin(wall if own is None else own.at, began if own is None else None)
        changes: list[Change] | None = None
        if change_log.log.isEnabledFor(DEBUG):  # asked once a turn, not for each job
            changes = []
            self.ctx.after_commit(change_log.write, self.ctx.id.name, changes)
        return Turn(self._state, wall if own is None else own.at, wall, self.ctx, self._owner, began, changes)

    # ---- Events ----------------------------------------------------------------------------------

    async def handle(self, event: SchedulerEvent) -> object:
        """Carry out one event, then what follows every turn."""
        if isinstance(event, events.ErasePage):
            return answer(event, await self._erase_page())
        instance = self._state.instance
        if instance.erasing or instance.moving is not None:
            check(instance, event, self.ctx.id.name)
            if is_sealed(instance) or instance.importing:
                return answer(event, await self._come_or_go(event))
        turn = self._turn()
        if isinstance(event, READ_IN_STEPS):
            await read_ahead(turn, (event,), self._inflight.completions.begin)
        answered = await self._carry_out(turn, event)
        await self._end.run(turn)
        return answer(event, self._state.paths.counting) if isinstance(event, events.CountPaths) else answered

    def may_share(self, event: Event[Any]) -> bool:
        """Return whether this event may share one turn with others that wait next to it."""
        return may_share(event) and not self._state.instance.erasing and self._state.instance.moving is None

    async def handle_many(self, sharing: Sequence[SchedulerEvent]) -> Sequence[object]:
        """Carry out several events, then what follows every turn. The rows they read are fetched together."""
        turn = self._turn()
        await read_ahead(turn, sharing, self._inflight.completions.begin)
        answers: list[object] = []
        while len(answers) < len(sharing) and not (answers and takes_no_more(turn)):
            if len(submits := submits_from(turn, sharing, len(answers))) > 1:
                answers.extend(await submit_together(turn, submits))
            else:
                answers.append(await self._carry_out(turn, sharing[len(answers)]))
        await self._end.run(turn)
        return answers

    async def _carry_out(self, turn: Turn, event: SchedulerEvent) -> object:
        """Do what the event asks for, and return its answer."""
        answered: object = None
        match event:
            case events.ClaimMore() | events.CountPaths():
                pass  # the end of the turn looks
            case events.SettleFinished():
                await self._settle(turn)
            case events.Submit(jobs):
                answered = answer(event, await submit(turn, jobs))
            case events.SubmitOnce(jobs, key, body, renderer):
                answered = answer(event, await submit_once(turn, jobs, Once(key, body, self._renderers.take(renderer))))
            case events.Complete(batch):
                await self._end_leases(turn)  # one that is over settles nothing, also if no alarm has come yet
                answered = answer(event, await complete(turn, self._inflight.completions.begin(batch)))
            case events.Extend():
                await self._end_leases(turn)
                answered = answer(event, await _extend(turn, event))
            case events.FreeSlot(job_id, by):
                await self._end_leases(turn)
                answered = answer(event, await free(turn, job_id, by, self._inflight.lanes.is_live))
            case events.GiveBack(leases):
                answered = answer(event, await give_back(turn, leases))
            case events.SetClock() | events.FreezeClock() | events.AdvanceClock():
                answered = await operate_clock(turn, event)
                if not isinstance(event, events.AdvanceClock):
                    self._note_clock()
            case events.BeginImport(token):
                answered = answer(event, await arrival.begin(turn, token))
            case events.Seal():
                answered = answer(event, self._seal(turn, event))
            case events.Unseal(move, by):
                answered = answer(event, arrival.unseal(turn, move, by))
            case events.ImportRows() | events.EndImport():
                answered = arrival.refused(turn, "")
            case events.ErasePage():
                raise TurnError("a page of a removal has a turn of its own")
            case (
                events.Cancel()
                | events.CancelMany()
                | events.DiscardMany()
                | events.StartUndo()
                | events.UndoPage()
                | events.Reschedule()
                | events.RetryDead()
                | events.CancelDead()
                | events.StartRedrive()
                | events.StopRedrive()
                | events.SetPool()
                | events.SetQueue()
                | events.DeletePool()
                | events.OpenGroup()
                | events.SealGroup()
                | events.StopGroup()
                | events.SetInstance()
            ):
                answered = await operate(turn, event)
            case _:
                answered = await change_schedules(turn, event)
        if self._state.following:  # before an event that shares the turn changes what is read for it
            await follow_deaths(turn)
        if turn.state.later is not None:
            await bring_later(turn)
        if turn.changes is not None:
            turn.changes.append((None, event, answered))
        return answered

    async def _come_or_go(self, event: SchedulerEvent) -> Any:
        """Carry out an event of an instance that is being imported, or has left: nothing else follows."""
        turn = self._turn()
        match event:
            case events.BeginImport(token):
                return await arrival.begin(turn, token)
            case events.ImportRows(token, rows):
                return arrival.take(turn, token, rows)
            case events.EndImport(token, instance, origin, epoch, by, jobs):
                if (refusal := arrival.end(turn, token, instance, origin)) is None:
                    self.ctx.rise_above(epoch)
                    await self._begin_anew(partial(arrival.note_import, by=by, origin=origin, jobs=jobs))
                return refusal
            case events.Seal():
                return self._seal(turn, event)
            case events.Unseal(move, by):
                if stays := arrival.unseal(turn, move, by):
                    await self._begin_anew()
                return stays
            case events.ClaimMore():
                self._refuse_claims()
            case events.SettleFinished():  # their leases have left with their jobs
                self.ctx.after_commit(self._inflight.lanes.settled, self._inflight.lanes.take_finished())
            case events.GiveBack():
                return ()
        return None

    def _seal(self, turn: Turn, asked: events.Seal) -> ConflictError | None:
        """Begin to leave, or leave: workers whose claims wait are told where the instance is then."""
        refusal = arrival.seal(turn, asked.move, asked.to, asked.by, closed=asked.closed)
        if is_sealed(turn.state.instance):
            self._refuse_claims()
        return refusal

    def _refuse_claims(self) -> None:
        to = moved_to(self._state.instance) or ""
        self.ctx.after_commit(self._inflight.waiting_claims.refuse, moved(self.ctx.id.name, to))

    async def _begin_anew(self, note: Callable[[Turn], None] | None = None) -> None:
        """Read everything from rows, as at an activation; then note what was done."""
        self._state = SchedulerState(self.ctx.storage, self._limits, self._failed_slots)
        await self._start(note)

    def _note_clock(self) -> None:
        """Let the host know where the test clock stands, once that is durable."""
        if self._state.clock is not None:
            self.ctx.after_commit(self._inflight.note_clock, self._state.clock)

    async def _erase_page(self) -> Erased:
        """Begin the removal of the instance, or go on with it: one page."""
        turn = self._turn()
        erased = await erase_page(turn)
        if turn.changes is not None and not erased.more:
            turn.changes.append((None, events.ErasePage(), None))
        self.ctx.after_commit(self._inflight.result_waiters.tell_all)
        self.ctx.after_commit(self._inflight.activities.erased, self.ctx.id.name, erased.jobs)
        self.ctx.after_commit(self._inflight.note_clock, None)
        self._state = SchedulerState(self.ctx.storage, self._limits, self._failed_slots)
        if erased.more:
            self._state.instance = turn.state.instance
            self.ctx.set_alarm(turn.wall + ERASE_ALONE_MS)
        else:
            self.ctx.set_alarm(None)
            if self._inflight.feed is not None:
                self.ctx.after_commit(self._inflight.feed.end)
        return erased

    async def _settle(self, turn: Turn) -> None:
        """Settle attempts that have ended; their lanes take the next jobs."""
        lanes = self._inflight.lanes
        finished = lanes.take_finished()
        self.ctx.if_lost(lanes.not_settled, finished)
        settled = await settle(turn, finished)
        if turn.state.to_cool:
            self.ctx.after_commit(lanes.cool, turn.state.to_cool)
            turn.state.to_cool = ()
        self.ctx.after_commit(lanes.settled, finished[:settled])
        if settled < len(finished):
            self.ctx.after_commit(lanes.not_settled, finished[settled:])

    async def alarm(self) -> None:
        """Do what is due: a job, a timer, or the end of a lease."""
        state = self._state
        if state.instance.erasing:
            if (await self._erase_page()).more:
                self.ctx.set_alarm(self.ctx.now_ms())
            return
        if state.instance.moving is not None and is_sealed(state.instance):
            return
        turn = self._turn() if state.clock is None else self._end.clock().go_on(self._turn())
        if state.leases:
            await self._end_leases(turn)
        state.occurrences.tick.rest = False
        if state.next_timer is not None and state.next_timer <= turn.now:
            await run_timers(turn, full=self._full())
        if state.later is not None:
            await bring_later(turn)
        await self._end.run(turn)
        if state.clock is not None:
            self._note_clock()
        if state.occurrences.tick.looked and not state.occurrences.tick.rest:
            self._tell_of_pass(turn, state.occurrences.tick)

    def _tell_of_pass(self, turn: Turn, tick: Tick) -> None:
        """Tell of the pass over schedules that has ended, once this turn is durable, unless something failed in it."""
        self._state.occurrences.tick = Tick()
        if self._ticked is not None and not tick.failed:
            self.ctx.after_commit(self._ticked, turn.now, tick.late_ms)

    async def _end_leases(self, turn: Turn) -> None:
        await end_leases(turn, self._inflight.lanes.is_live, self._inflight.waiting_claims.undelivered)


async def _extend(turn: Turn, asked: events.Extend) -> int | StaleLeaseError:
    try:
        return await extend(turn, asked.job_id, asked.lease, asked.lease_ms)
    except StaleLeaseError as refusal:
        return refusal
