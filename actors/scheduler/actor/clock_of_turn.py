"""The test clock of an instance as its turns see it: when they are called again, and when time may go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tocsin.actors.scheduler.inflight.waiting_claims import WaitingClaims
from tocsin.actors.scheduler.state.job_queues import Outlook
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.clock import is_quiet, move

PATIENCE_S: Final = 10.0
"""So long, in real time, an advance waits for a worker to claim what is due in its queue; then it goes on without one,
until a worker is there again."""


class ClockOfTurn:
    """Decides when an advance goes on. A clock that is frozen needs no alarm, whatever is due later."""

    def __init__(self, claims: WaitingClaims, monotonic: Callable[[], float]) -> None:
        self._claims, self._monotonic = claims, monotonic
        self._waits_since: float | None = None

    def go_on(self, turn: Turn) -> Turn:
        """Let time go on to the next due instant, if it is to and may; return the turn at that instant."""
        clock = turn.state.clock
        if clock is None or not clock.target or self.wait_s(turn, turn.state.lines.outlook(turn.now)) != 0.0:
            return turn
        return move(turn)

    def wait_s(self, turn: Turn, outlook: Outlook) -> float | None:
        """Return the seconds until time may go on; 0: now. None: when something that goes on has ended."""
        if turn.state.pulled_by or self._claims.waiting:
            self._waits_since = None
        if not is_quiet(turn, outlook):
            return None
        if not any(True for _ in turn.state.lines.pulled.ready_queues(turn.now)):
            return 0.0
        now = self._monotonic()
        if self._waits_since is None:
            self._waits_since = now
        return max(self._waits_since + PATIENCE_S - now, 0.0)

    def alarms(
        self, turn: Turn, outlook: Outlook, end_at: int | None, renew_at: int | None, again: int, *, more: bool
    ) -> tuple[int | None, int | None]:
        """Return the instants to be called at, on the host's clock: the one to store, 0 for at once, and the one here.

        `end_at` is when the first lease ends, `renew_at` when this host looks at it, and `again` when it looks for
        `more` that may start.
        """
        clock, timer = turn.state.clock, turn.state.next_timer
        assert clock is not None, "a live clock needs none of this"
        rings_now = timer is not None and timer <= turn.now
        due = outlook.ready or bool(outlook.suspects or outlook.named) or bool(clock.target) or rings_now
        rings = [again] if more or rings_now else []
        if renew_at is not None:
            rings.append(renew_at)
        if clock.target and (wait := self.wait_s(turn, outlook)) is not None:
            rings.append(turn.wall + round(wait * 1000))
        return 0 if due else end_at, min(rings, default=None)
