"""The end of every turn: phases in order, each skipped when nothing marked it; then the alarm."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tocsin.actors.scheduler.actor.expiry import RENEW_BEFORE_MS
from tocsin.actors.scheduler.actor.pull import Given, any_to_give, pull
from tocsin.actors.scheduler.actor.starting import could_start, start, start_nothing
from tocsin.actors.scheduler.inflight.deaths import DeadJob, dead_jobs
from tocsin.actors.scheduler.inflight.inflight import Inflight
from tocsin.actors.scheduler.schedules.apply_ends import settle_ends
from tocsin.actors.scheduler.schedules.recompute import check_clock
from tocsin.actors.scheduler.state.turn import Turn

FULL_RETRY_MS = 1_000
"""A store without space claims nothing; so often it looks whether there is space again."""
OVERDUE = 0
"""The stored wake time while a due job may start: now, whenever that is read."""


class EndOfTurn:
    """Of one turn. `full()` says whether the store is without space, `died` hears of jobs that are dead."""

    def __init__(
        self,
        turn: Turn,
        began: float,
        inflight: Inflight,
        full: Callable[[], bool],
        died: Callable[[Sequence[DeadJob]], None],
    ) -> None:
        self._turn, self._state, self._ctx = turn, turn.state, turn.ctx
        self._began = began
        self._lanes, self._pulls = inflight.lanes, inflight.waiting_claims
        self._watches = inflight.result_waiters
        self._full, self._died = full, died
        self._given: Given = []
        self._may_give = False
        self._more_to_pull = False

    async def run(self) -> None:
        check_clock(self._turn)
        for is_marked, run in PHASES:
            if is_marked(self):
                await run(self)
        self.set_alarm()

    def look_for_claims(self) -> None:
        """At activation nothing is given: note whether the next turn might."""
        self._more_to_pull = any_to_give(self._turn, self._pulls)

    # ---- Occurrences that ended ------------------------------------------------------------------

    def any_ended(self) -> bool:
        return bool(self._state.occurrences.ended)

    async def apply_ends(self) -> None:
        await settle_ends(self._turn)

    # ---- Claims that wait ------------------------------------------------------------------------

    def any_waits(self) -> bool:
        return self._pulls.waiting

    async def serve_in_order(self) -> None:
        """Give claims what is due and stands in front of the callbacks."""
        await self._serve(in_order=True)

    async def serve(self) -> None:
        """Give claims what is due, and the slots of pools that callbacks have left."""
        await self._serve(in_order=False)

    async def _serve(self, *, in_order: bool) -> None:
        if not self._may_give:
            # Registered though nothing is given as yet: a turn that is lost has woken nobody.
            self._may_give = True
            self._ctx.if_lost(self._pulls.lost, self._given)
            self._ctx.after_commit(self._pulls.deliver, self._given, self._began)
        self._more_to_pull = False
        if not self._full():
            self._more_to_pull = await pull(self._turn, self._pulls, self._given, in_order=in_order)
            self._pulls.sealed(self._given)

    # ---- Callbacks -------------------------------------------------------------------------------

    def may_fire(self) -> bool:
        """Whether a callback is due, or this scheduler stands in line for permits that it may not need any more."""
        lines, now = self._state.lines, self._turn.now
        return lines.any_ready(now) or bool(lines.suspects_ready(now)) or self._lanes.places > 0

    async def fire(self) -> None:
        if self._full():
            start_nothing(self._lanes)
        else:
            await start(self._turn, self._lanes, self._began)

    # ---- What is left ----------------------------------------------------------------------------

    async def close(self) -> None:
        await self._state.close()

    def any_to_tell(self) -> bool:
        return bool(self._state.to_tell)

    async def tell_of_ends(self) -> None:
        ended, self._state.to_tell = self._state.to_tell, []
        self._ctx.after_commit(self._watches.tell, ended)

    def any_died(self) -> bool:
        return bool(self._state.deaths)

    async def tell_of_deaths(self) -> None:
        deaths, self._state.deaths = self._state.deaths, []
        self._ctx.after_commit(self._died, dead_jobs(self._ctx.id.name, deaths))

    def set_alarm(self) -> None:
        """Stored: everything that may have to happen. In memory: without what other events will wake."""
        state, now = self._state, self._turn.now
        ready = state.lines.any_ready(now)
        head = _earliest(state.lines.next_due(now), state.lines.suspects_due(now))
        alone = bool(state.lines.suspects_ready(now))
        end = state.first_end()
        end_at = end[0] if end else None
        # A live attempt's lease is renewed a little before it ends.
        renew_at = end_at - RENEW_BEFORE_MS if end and end_at and end[1] in self._lanes.live else end_at
        stored = _earliest(OVERDUE if ready or alone else None, head, state.next_timer, end_at)
        full = self._full()
        again = now + FULL_RETRY_MS if full else now
        waiting = could_start(state.lines, now, self._lanes) or self._more_to_pull
        timer = max(state.next_timer, again) if full and state.next_timer is not None else state.next_timer
        # Nothing of a queue is stored as a reason to wake: who waits for it is here, or asks when it comes.
        pulled = state.lines.pulled.next_due(now) if self._pulls.waiting else None
        if self._pulls.waiting and full:
            pulled = again
        more = waiting or state.paths.counting or state.labels.filling
        ring_at = _earliest(again if more else None, head, pulled, timer, renew_at)
        self._ctx.set_alarm(stored, ring_at_ms=ring_at)


def _always(end: EndOfTurn) -> bool:
    return True


PHASES: Final[tuple[tuple[Callable[[EndOfTurn], bool], Callable[[EndOfTurn], Awaitable[None]]], ...]] = (
    (EndOfTurn.any_ended, EndOfTurn.apply_ends),
    (EndOfTurn.any_waits, EndOfTurn.serve_in_order),
    (EndOfTurn.may_fire, EndOfTurn.fire),
    (EndOfTurn.any_waits, EndOfTurn.serve),
    (EndOfTurn.any_ended, EndOfTurn.apply_ends),  # of those that had expired when they were to be claimed
    (_always, EndOfTurn.close),
    (EndOfTurn.any_to_tell, EndOfTurn.tell_of_ends),
    (EndOfTurn.any_died, EndOfTurn.tell_of_deaths),
)
"""What marks a phase, and the phase."""


def _earliest(*instants: int | None) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)
