"""Lanes: the callbacks in flight. They belong to the host and outlive any activation of their scheduler.

A token is *live* from its claim until the batch of that claim has failed, or the settlement is durable. The lease of a
live attempt is renewed, and its job is not claimed again on this host, whatever the clock does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.inflight.activity import CALLBACK, Activities, Attempts
from tocsin.actors.scheduler.inflight.lanes_to import LanesTo, LanesToNamed
from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.model.suspects import LEVELS
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.events import ClaimMore, SettleFinished
from tocsin.actors.scheduler.transitions.settle import AttemptResult
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.errors import HostClosedError, StoreLocked

log = logging.getLogger("tocsin.scheduler")

Send = Callable[[Claim, str], Awaitable[AttemptOutcome]]
"""Sends one attempt of a job of the named instance, and returns how it ended."""
SETTLE_AT_ONCE = 256
SETTLE_RETRY_S = (0.05, 5.0)
WAKE_RETRY_S = 1.0
LAUNCH_WITHIN_S = 10.0
"""A claim that is durable only later than this is not sent: its deadline could outlast its lease, which is 15 s longer.
"""
UNSENT = Verdict.BLOCKED, Verdict.UNREACHABLE, Verdict.STOPPED
"""Verdicts on attempts of which nobody knows how long they take."""
NOT_SENT = AttemptOutcome(Verdict.UNREACHABLE, f"not sent: the claim was not durable within {LAUNCH_WITHIN_S:.0f} s")


class Owner(Protocol):
    """The owner of lanes. They hold a reference, so that it lives as long as an attempt, or a place in a line."""

    def post(self, event: Event[None]) -> asyncio.Future[None]:
        """Send an event to the scheduler. StoreLocked if another host has it by now."""
        ...

    async def send_on(self, ends: Sequence[AttemptResult]) -> None:
        """Have attempts settled by the host that has the scheduler; they are, durably, when this returns."""
        ...


NONE_NAMED: Final[Mapping[str, LanesToNamed]] = {}


class Lanes(LanesTo):
    """The lanes of one scheduler on this host: those to the host's own origin, and to each one with a name."""

    named: Mapping[str, LanesToNamed] = NONE_NAMED
    """By the name of the origin, once they were needed."""

    def __init__(
        self,
        owner: Owner,
        instance: str,
        limit: int,
        permits: Permits,
        send: Send,
        start_soon: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        monotonic: Callable[[], float],
        activities: Activities,
    ) -> None:
        self.instance = instance
        self.limit = limit
        self.in_flight = 0
        self.places = 0
        self.stopping = False
        self.launched = float("-inf")
        self.now = monotonic
        self.live: set[str] = set()
        """Tokens of attempts that are on their way on this host, or whose settlement is not durable yet."""
        self._owner, self.permits, self._send, self._start_soon = owner, permits, send, start_soon
        self._activities, self._took = activities, list[float]()
        self._running: dict[str, asyncio.Task[None]] = {}  # by token
        self._finished: list[AttemptResult] = []
        self._settling = False
        self._settle_failures = 0
        self._waking = False
        self._all_settled: asyncio.Event | None = None  # while somebody waits for it
        self._of_others: dict[str, asyncio.Future[None]] = {}  # by token, who waits for ends from another host

    # ---- For the scheduler's turns ---------------------------------------------------------------

    def is_live(self, token: str) -> bool:
        """Return whether the attempt of this token is live here."""
        return token in self.live

    @property
    def busy(self) -> bool:
        """Return whether this scheduler is needed for attempts: those that are live, and those it stands in line
        for."""
        if self.live or self._finished or self._waking or self.places:
            return True
        return bool(self.named) and self.stands_in_line

    @property
    def stands_in_line(self) -> bool:
        """Return whether this scheduler stands in line for permits of any origin."""
        return self.places > 0 or any(one.places for one in self.named.values())

    def to(self, origin: str) -> LanesTo:
        """Return the lanes to an origin; "" is the host's own."""
        if not origin:
            return self
        found = self.named.get(origin)
        if found is None:
            permits = self.permits.company.of(origin)
            found = LanesToNamed(permits, self.limit, self.live, self.wake, stopping=self.stopping)
            self.named = {**self.named, origin: found}
        return found

    def leave_all(self) -> None:
        """Stand in line no more, whatever is ready."""
        for one in (self, *self.named.values()):
            one.leave(0, *LEVELS)

    def cool(self, origins: Sequence[tuple[str, int]]) -> None:
        """Start nothing that goes to these origins, each for so many ms: they asked for that."""
        for name, ms in origins:
            self.to(name).cool_for(ms)

    def lost(self, claims: Sequence[Claim]) -> None:
        """Forget claims whose turn or batch failed: nothing was sent, and their permits are free."""
        self.live.difference_update(claim.token for claim in claims)
        for claim in claims:
            self.to(claim.lease.origin).lost_one(claim.level)
        self._tell_all_settled()

    def launch(self, claims: Sequence[Claim], claimed: float) -> None:
        """Send these claims, made at `claimed`, which are durable."""
        if claims:
            late = [claim.lease.started - claim.lease.at.next_at for claim in claims]
            self._activities.note((self.instance, self.now(), Attempts(CALLBACK, late, claimed)))
        for claim in claims:
            lanes = self.to(origin) if (origin := claim.lease.origin) else self
            lanes.launched = claimed
            task = self._start_soon(self._attempt(claim, claimed))
            if not task.done():  # where the app's event loop starts tasks eagerly, one may have ended
                self._running[claim.token] = task

    def take_finished(self) -> list[AttemptResult]:
        """Hand attempts that have ended to a turn: as many as one can settle."""
        taken = self._finished[:SETTLE_AT_ONCE]
        del self._finished[:SETTLE_AT_ONCE]
        if self._took:
            self._activities.note((self.instance, self.now(), Attempts(CALLBACK, took=self._took)))
            self._took = []
        return taken

    def not_settled(self, finished: Sequence[AttemptResult]) -> None:
        """Keep attempts whose turn or batch failed: they are settled in another one, and live until then."""
        self._finished[:0] = finished

    def settled(self, finished: Sequence[AttemptResult]) -> None:
        """Forget attempts whose settlement is durable."""
        self.live.difference_update([end.token for end in finished])
        for end in finished if self._of_others else ():
            if (waiting := self._of_others.pop(end.token, None)) is not None and not waiting.done():
                waiting.set_result(None)
        self._tell_all_settled()

    async def wait_settled(self) -> None:
        """Wait until no attempt is live: all have ended, and how they ended is on disk."""
        while self.live:
            self._all_settled = self._all_settled or asyncio.Event()
            await self._all_settled.wait()

    def _tell_all_settled(self) -> None:
        if self._all_settled is not None and not self.live:
            self._all_settled.set()
            self._all_settled = None

    # ---- The attempt -----------------------------------------------------------------------------

    async def _attempt(self, claim: Claim, claimed: float) -> None:
        began = self.now()
        late = began - claimed > LAUNCH_WITHIN_S  # the process may have stood still even since the launch
        try:
            outcome = NOT_SENT if late else await self._send(claim, self.instance)
        except asyncio.CancelledError:
            # Only a stop cancels an attempt, and a stop still settles it: this task ends the normal way.
            outcome = AttemptOutcome(Verdict.STOPPED, "the host was stopped while the attempt ran")
        except Exception as error:
            log.exception(
                "an attempt of %s/%s failed inside tocsin", self.instance, claim.job.id,
                extra={"instance": self.instance, "id": claim.job.id},
            )  # fmt: skip
            outcome = AttemptOutcome(Verdict.FAILED, f"internal error: {type(error).__name__}")
        if outcome.verdict not in UNSENT:
            self._took.append((self.now() - began) * 1000)
        self._running.pop(claim.token, None)
        lanes = self.to(origin) if (origin := claim.lease.origin) else self
        lanes.in_flight -= 1
        self._finished.append(AttemptResult(claim.job, claim.token, outcome))
        if not self._settling:
            self._settle_soon()
        if outcome.retry_after_ms and not claim.job.pool:
            lanes.note_busy(outcome)
        if late:
            lanes.permits.give(1, claim.level)  # nothing was tried that would tell of the origin
        else:
            lanes.permits.ended(outcome, claim.level)

    def end(self, finished: AttemptResult) -> None:
        """Settle an attempt that had no lane: a worker was to get it, and may not."""
        self.live.add(finished.token)
        self._finished.append(finished)
        self._settle_soon()

    async def settle_for(self, ends: Sequence[AttemptResult]) -> None:
        """Settle attempts that ran in another host, from which this one has the scheduler; return once that is on disk.
        StoreLocked if it has it no more."""
        waiting = [self._wait_for(end) for end in ends]
        for end in ends:
            self.end(end)
        for done in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(done, BaseException):
                raise done

    def _wait_for(self, end: AttemptResult) -> asyncio.Future[None]:
        done = self._of_others.get(end.token)
        if done is None or done.done():
            done = self._of_others[end.token] = asyncio.get_running_loop().create_future()
        return done

    def _settle_soon(self) -> None:
        if not self._settling and self._finished:
            self._settling = True
            self._owner.post(SettleFinished()).add_done_callback(self._settle_done)

    def _settle_done(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None and not done.cancelled():
            self._settle_failures = 0
            self._settle_again()
            return
        if isinstance(error, HostClosedError):
            return  # nobody can settle it any more: its lease ends, and the next host claims the job again
        if isinstance(error, StoreLocked):
            self._start_soon(self._send_on(error))
            return
        self._settle_later(error)

    async def _send_on(self, why: StoreLocked) -> None:
        """Send ends to the host that has the scheduler by now. Those that came here from another host go back there:
        it asks anew where the scheduler is."""
        sent = list[AttemptResult]()
        for end in self.take_finished():
            if (waiting := self._of_others.pop(end.token, None)) is None:
                sent.append(end)
            else:
                self.live.discard(end.token)
                if not waiting.done():
                    waiting.set_exception(why)
        self._settling = False  # the scheduler may be here again, and then what is sent on comes back to be settled
        try:
            if sent:
                await self._owner.send_on(sent)
        except HostClosedError:
            return  # as above
        except Exception as error:  # whatever it is, these attempts have ended, and somebody must hear of it
            self.not_settled(sent)
            self._settle_later(error)
        else:
            self._settle_failures = 0
            self.settled(sent)
            self._settle_again()

    def _settle_later(self, error: BaseException | None) -> None:
        self._settle_failures += 1
        least, most = SETTLE_RETRY_S
        delay = min(least * 2 ** min(self._settle_failures, 20), most)
        log.warning(
            "settlements of %s failed, again in %.2f s: %r", self.instance, delay, error,
            extra={"instance": self.instance},
        )  # fmt: skip
        asyncio.get_running_loop().call_later(delay, self._settle_again)

    def _settle_again(self) -> None:
        self._settling = False
        self._settle_soon()

    def wake(self) -> None:
        if not self._waking:
            self._waking = True
            self._owner.post(ClaimMore()).add_done_callback(self._woken)

    def _woken(self, done: asyncio.Future[None]) -> None:
        self._waking = False
        if not done.cancelled() and (error := done.exception()) is not None:
            self.leave_all()  # or others would wait behind a scheduler that does not take its turn
            if isinstance(error, (HostClosedError, StoreLocked)):
                return  # another host claims its jobs
            asyncio.get_running_loop().call_later(WAKE_RETRY_S, self.wake)

    # ---- Stopping --------------------------------------------------------------------------------

    def stop_claiming(self) -> None:
        """Claim nothing more."""
        for one in (self, *self.named.values()):
            one.stopping = True
        self.leave_all()

    def running(self) -> list[asyncio.Task[None]]:
        """List the tasks of attempts that are under way."""
        return list(self._running.values())
