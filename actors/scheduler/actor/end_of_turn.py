"""End every turn: do what its event left to do, each part only if something marked it; then set the alarm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tocsin.actors.scheduler.actor.clock_of_turn import ClockOfTurn
from tocsin.actors.scheduler.actor.expiry import RENEW_BEFORE_MS
from tocsin.actors.scheduler.actor.pull import Given, any_to_give, pull
from tocsin.actors.scheduler.actor.watched import note_changes
from tocsin.actors.scheduler.inflight.activity import MOST_NOTED
from tocsin.actors.scheduler.inflight.deaths import DeadJob, dead_jobs
from tocsin.actors.scheduler.inflight.inflight import Inflight
from tocsin.actors.scheduler.inflight.lanes_to import LanesTo
from tocsin.actors.scheduler.model.counters import levels
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, LEVELS, SOME
from tocsin.actors.scheduler.schedules.apply_ends import apply_ends
from tocsin.actors.scheduler.schedules.recompute import check_clock
from tocsin.actors.scheduler.state.job_queues import Outlook
from tocsin.actors.scheduler.state.tally import Tally
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.claim import claim, claim_suspects
from tocsin.actors.scheduler.transitions.groups import follow
from tocsin.actors.scheduler.transitions.line_up import is_to_line_up, line_up

FULL_RETRY_MS = 1_000
"""A store without space claims nothing; so often it is asked whether there is space again."""
OVERDUE = 0
"""The stored wake time while a due job may start: now, whenever that is read."""
CLAIM_ROUNDS = 4
CLAIMS_PER_TURN = 512
"""With what else a turn may write it stays inside one commit of the store."""


class EndOfTurn:
    """The end of turns of one scheduler. `full()` says whether the store takes no new work; `died` is told of jobs that
    died."""

    _clock: ClockOfTurn | None = None

    def __init__(self, inflight: Inflight, full: Callable[[], bool], died: Callable[[Sequence[DeadJob]], None]) -> None:
        self._inflight = inflight
        self._lanes, self._claims = inflight.lanes, inflight.waiting_claims
        self._waiters, self._activities = inflight.result_waiters, inflight.activities
        self._full, self._died = full, died

    async def run(self, turn: Turn) -> None:
        """Start what may start, write what changed and set the alarm."""
        state, seen = turn.state, turn.state.occurrences
        if state.instance.erasing:
            if not state.instance.importing:
                turn.ctx.set_alarm(turn.wall)
            return
        if seen.latest_slot > turn.now or seen.lost_jobs:
            check_clock(turn)
        if seen.ended:
            await apply_ends(turn)
        if state.following or state.groups is not None:
            await follow(turn)
        full = self._full()
        if state.lines.rotas is not None and not full:
            await line_up(turn)
        given: Given = []
        more_to_pull = False
        if waits := self._claims.waiting:
            self._register(turn, given)
            more_to_pull = await self._serve(turn, given, full, in_order=True)
        outlook = state.lines.outlook(turn.now)
        fires = bool(outlook.ready or outlook.suspects or self._lanes.places)
        if outlook.named or self._lanes.named:
            fires = await self._fire_in_turn(turn, full)
        elif fires:
            await self._fire(turn, outlook, full)
        if self._claims.waiting and (fires or more_to_pull or not waits):
            # Pools may have slots that callbacks have left.
            if not waits:
                self._register(turn, given)
            more_to_pull = await self._serve(turn, given, full, in_order=False)
        if seen.ended:  # jobs that had expired when they were to be claimed
            await apply_ends(turn)
        if state.following or state.groups is not None:  # jobs were damaged, or had expired, when they were claimed
            more_to_pull = await follow(turn) or more_to_pull
            if state.groups is not None:
                state.groups.end_turn()
        await state.close()
        if state.to_tell:
            ended, state.to_tell = state.to_tell, []
            turn.ctx.after_commit(self._waiters.tell, ended)
        if state.deaths:
            deaths, state.deaths = state.deaths, []
            turn.ctx.after_commit(self._died, dead_jobs(turn.ctx.id.name, deaths))
            state.tally.reasons = [dead.reason for _, dead in deaths]
        # For those who watch this host or this scheduler: what the turn did is noted once it is durable.
        done, activities = state.tally, self._activities
        done.after = levels(state.counters)
        if done.after != done.before or done.attempts or done.expired:
            turn.ctx.after_commit(activities.note, (turn.ctx.id.name, turn.began, done))
            state.tally = Tally(done.after)
            if len(activities.noted) >= MOST_NOTED:
                activities.count()
        if activities.touched is not None:
            turn.ctx.after_commit(activities.touched.add, turn.ctx.id.name)
        if self._inflight.feed is not None:
            note_changes(turn, self._inflight)
        self._set_alarm(turn, state.lines.outlook(turn.now), full, more_to_pull)

    def clock(self) -> ClockOfTurn:
        """Return what decides when the test clock of this instance goes on. Few instances have one."""
        if self._clock is None:
            self._clock = ClockOfTurn(self._claims, self._lanes.now)
        return self._clock

    async def run_first(self, turn: Turn) -> None:
        """End the activation: start nothing, but let the alarm ring for what the next turn might start."""
        await apply_ends(turn)
        if turn.state.groups is not None:
            await follow(turn)
        more_to_pull = any_to_give(turn, self._claims)
        await turn.state.close()  # the event that follows may find that it has nothing to do
        if self._inflight.feed is not None:
            note_changes(turn, self._inflight)
        self._set_alarm(turn, turn.state.lines.outlook(turn.now), self._full(), more_to_pull)

    # ---- Claims that wait ------------------------------------------------------------------------

    def _register(self, turn: Turn, given: Given) -> None:
        """Deliver what is given once it is durable. A turn that is lost, also one that gave nothing, wakes the claims
        that wait."""
        turn.ctx.if_lost(self._claims.lost, given)
        turn.ctx.after_commit(self._claims.deliver, given, turn.began)

    async def _serve(self, turn: Turn, given: Given, full: bool, *, in_order: bool) -> bool:
        """Give claims what is due; with `in_order` only what stands in front of the callbacks. True if there may be
        more to give."""
        if full:
            return False
        more = await pull(turn, self._claims, given, in_order=in_order)
        if given:
            self._claims.mark_claimed(given)
        return more

    # ---- Callbacks -------------------------------------------------------------------------------

    async def _fire_in_turn(self, turn: Turn, full: bool) -> bool:
        """Claim callbacks to each origin that has some, or to which some stand in line; return whether one does."""
        fired = False
        for origin in turn.state.lines.in_turn(turn.now, self._lanes.named):
            outlook = turn.state.lines.outlook(turn.now, origin)
            if outlook.ready or outlook.suspects or self._lanes.to(origin).places:
                await self._fire(turn, outlook, full, origin)
                fired = True
        return fired

    async def _fire(self, turn: Turn, outlook: Outlook, full: bool, origin: str = "") -> None:
        """Claim as many callbacks as may start; if some cannot, stand in line for a permit. Suspects come first: they
        have a bounded share, and in a pool they would never find a slot that others leave."""
        lanes = self._lanes.to(origin) if origin else self._lanes
        if full:  # the alarm looks again; nobody who stands in line needs to be woken
            lanes.leave(0, *LEVELS)
            return
        ready = outlook.ready
        if outlook.suspects:
            await self._start_suspects(turn, lanes, origin)
            ready = turn.state.lines.outlook(turn.now, origin).ready
        elif lanes.places:
            lanes.leave(ALONE, SOME)
        if ready:
            with lanes.take(CLAIMS_PER_TURN) as permits:
                turn.ctx.if_lost(self._lanes.lost, permits.claims)
                for n in range(CLAIM_ROUNDS):
                    if not permits.unused or not ready or (n and turn.is_full):  # at first, `claim` itself looks
                        break
                    permits.use(await claim(turn, permits.unused, origin))
                    ready = turn.state.lines.outlook(turn.now, origin).ready
            turn.ctx.after_commit(self._lanes.launch, permits.claims, turn.began)
        if lanes.places and not ready:
            lanes.leave(0)

    async def _start_suspects(self, turn: Turn, lanes: LanesTo, origin: str) -> None:
        lines = turn.state.lines
        for level in LEVELS:
            if turn.is_full:
                break
            if level == SOME and lanes.waits_for_room:
                continue
            if waiting := sum(bucket.count for bucket in lines.suspects_ready(turn.now, level, origin)):
                with lanes.take(min(waiting, CLAIMS_PER_TURN), level) as permits:
                    turn.ctx.if_lost(self._lanes.lost, permits.claims)
                    if permits.unused:
                        permits.use(await claim_suspects(turn, level, permits.unused, origin))
                turn.ctx.after_commit(self._lanes.launch, permits.claims, turn.began)
        ready = lines.outlook(turn.now, origin).suspects
        if ALONE not in ready:
            lanes.leave(ALONE)
        if not ready & {FEW, SOME}:
            lanes.leave(SOME)

    # ---- The alarm -------------------------------------------------------------------------------

    def _set_alarm(self, turn: Turn, outlook: Outlook, full: bool, more_to_pull: bool) -> None:
        """Set the alarm. The stored instant covers all that may have to happen; the one in memory leaves out what other
        events will wake."""
        state, now, lanes = turn.state, turn.wall, self._lanes
        end = state.first_end() if state.leases else None
        end_at = state.stored_end(end[0]) if end else None
        # A live attempt's lease is renewed a little before it ends.
        renew_at = end[0] - RENEW_BEFORE_MS if end and end[1] in lanes.live else end and end[0]
        again = now + FULL_RETRY_MS if full else now
        due = outlook.ready or bool(outlook.suspects or outlook.named)
        more = more_to_pull or state.paths.counting or state.labels.next_to_fill is not None
        more = more or (due and self._could_start(outlook))
        if state.lines.rotas is not None and is_to_line_up(state):
            due = more = True
        if state.clock is not None:
            stored, ring_at = self.clock().alarms(turn, outlook, end_at, renew_at, again, more=more)
            turn.ctx.set_alarm(stored, ring_at_ms=ring_at)
            return
        timer = max(state.next_timer, again) if full and state.next_timer is not None else state.next_timer
        # Nothing of a queue is stored as a reason to wake: who waits for it is here, or asks when it comes.
        pulled = None
        if self._claims.waiting:
            pulled = again if full else state.lines.pulled.next_due(now)
        overdue = OVERDUE if due else None
        stored_at = (overdue, outlook.next_due, state.next_timer, end_at)
        rings_at = (again if more else None, outlook.next_due, pulled, timer, renew_at)
        turn.ctx.set_alarm(
            min([instant for instant in stored_at if instant is not None], default=None),
            ring_at_ms=min([instant for instant in rings_at if instant is not None], default=None),
        )

    def _could_start(self, outlook: Outlook) -> bool:
        """Return whether callbacks are left that another turn might start: nothing else will wake the scheduler for
        them."""
        lanes = self._lanes
        if outlook.ready and lanes.could_take():
            return True
        if any(lanes.could_take(level) for level in outlook.suspects):
            return True
        return any(lanes.to(name).could_take(level) for name, levels in outlook.named.items() for level in levels)
