"""The scheduler actor: its events, and what ends every turn: claim what may start, close the book, set the alarm.

The work of each event is in the module named after it; memory is rebuilt from rows at activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tocsin.actors.actor import Actor, ActorContext
from tocsin.actors.scheduler.book import Book
from tocsin.actors.scheduler.claim import Claim, claim
from tocsin.actors.scheduler.lanes import Lanes
from tocsin.actors.scheduler.records import Cancelled, DeadRetried
from tocsin.actors.scheduler.settle import RENEW_BEFORE_MS, end_leases, return_unsent, run_timers, settle
from tocsin.actors.scheduler.submit import Answer, cancel, cancel_dead, retry_dead, submit
from tocsin.actors.scheduler.turn import NewJob, Turn

CLAIM_ROUNDS = 4
FULL_RETRY_MS = 1_000
"""A store without space claims nothing; so often it looks whether there is space again."""
OVERDUE = 0
"""The stored wake time while a due job may start: now, whenever that is read."""


class SchedulerActor(Actor):
    """One instance: jobs, leases, pools and dead letters of one name."""

    kind = "scheduler"
    alarm_backoff_max_ms = 5_000

    def __init__(self, ctx: ActorContext, lanes: Lanes, owner: str, full: Callable[[], bool]) -> None:
        super().__init__(ctx)
        self._lanes = lanes
        self._owner = owner
        self._full = full
        self._book = Book(ctx.storage)

    async def on_start(self) -> None:
        await self._book.load()
        await return_unsent(self._turn(), self._lanes.is_live)

    def pinned(self) -> bool:
        return self._lanes.busy

    def _turn(self) -> Turn:
        return Turn(self._book, self.ctx.now_ms(), self.ctx, self._owner)

    # ---- Events ----------------------------------------------------------------------------------

    async def submit(self, jobs: Sequence[NewJob]) -> list[Answer]:
        turn = self._turn()
        answers = await submit(turn, jobs)
        await self._finish(turn)
        return answers

    async def cancel(self, job_id: str) -> Cancelled:
        turn = self._turn()
        answer = await cancel(turn, job_id)
        await self._finish(turn)
        return answer

    async def dead_retry(self, job_id: str) -> DeadRetried:
        turn = self._turn()
        scheduled_for = await retry_dead(turn, job_id)
        await self._finish(turn)
        return DeadRetried(False) if scheduled_for is None else DeadRetried(True, job_id, scheduled_for)

    async def dead_cancel(self, job_id: str) -> bool:
        turn = self._turn()
        removed = await cancel_dead(turn, job_id)
        await self._finish(turn)
        return removed

    async def settle(self) -> None:
        """Attempts have ended: book them, and let their lanes take the next jobs."""
        finished = self._lanes.take_finished()
        self.ctx.if_lost(self._lanes.not_settled, finished)
        self.ctx.after_commit(self._lanes.settled, finished)
        turn = self._turn()
        await settle(turn, finished)
        await self._finish(turn)

    async def claim_more(self) -> None:
        """A permit is at hand."""
        await self._finish(self._turn())

    async def alarm(self) -> None:
        """A head is due, a timer rings, or a lease ends."""
        turn = self._turn()
        await end_leases(turn, self._lanes.is_live)
        await run_timers(turn)
        await self._finish(turn)

    # ---- The end of every turn -------------------------------------------------------------------

    async def _finish(self, turn: Turn) -> None:
        await self._claim(turn)
        await self._book.close()
        self._set_alarm(turn.now)

    async def _claim(self, turn: Turn) -> None:
        lines = self._book.lines
        if not self._full() and lines.any_ready(turn.now) and (permits := self._lanes.take()):
            grant = _Grant(self._lanes, permits)
            self.ctx.if_lost(grant.lose)
            for _ in range(CLAIM_ROUNDS):
                if not grant.unused or not lines.any_ready(turn.now):
                    break
                grant.use(await claim(turn, grant.unused))
            grant.return_unused()
            self.ctx.after_commit(self._lanes.launch, grant.claims, self._lanes.now)
        if not lines.any_ready(turn.now):
            self._lanes.no_more_work()

    def _set_alarm(self, now: int) -> None:
        """Stored: everything that may have to happen. In memory: without what other events will wake."""
        book = self._book
        ready = book.lines.any_ready(now)
        head = book.lines.next_due(now)
        end = book.first_end()
        end_at = end[0] if end else None
        # A live attempt's lease is renewed a little before it ends.
        renew_at = end_at - RENEW_BEFORE_MS if end and end_at and self._lanes.is_live(end[1]) else end_at
        stored = _earliest(OVERDUE if ready else None, head, book.next_timer, end_at)
        again = now + FULL_RETRY_MS if self._full() else now
        ring_at = _earliest(again if ready and self._lanes.could_take else None, head, book.next_timer, renew_at)
        self.ctx.set_alarm(stored, ring_at_ms=ring_at)


class _Grant:
    """Permits taken in this turn, and the claims they were used for."""

    def __init__(self, lanes: Lanes, permits: int) -> None:
        self.unused = permits
        self.claims: list[Claim] = []
        self._lanes = lanes

    def use(self, claims: Sequence[Claim]) -> None:
        self._lanes.sealed(claims)
        self.claims.extend(claims)
        self.unused -= len(claims)

    def return_unused(self) -> None:
        unused, self.unused = self.unused, 0
        self._lanes.give_back(unused)

    def lose(self) -> None:
        self._lanes.lost(self.claims)
        self.return_unused()


def _earliest(*instants: int | None) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)
