"""When to ring which actor: a heap in memory, one timer on the loop, and the backoff of failing alarms.

What is stored (`wake_at`) travels with each actor's own batches; this heap is rebuilt from it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.runtime.loop_lag import MOST_TIMERS, WORTH_S, LoopLag
from tocsin.errors import StoreLocked, TocsinError

log = logging.getLogger("tocsin.actors")

RETRY_BASE_MS = 2_000
RINGS_PER_TICK = 1_000
STEP_MS = 10_000
"""A step back of the clock by more than this is noticed; drift and small corrections are not."""


@dataclass(frozen=True, slots=True)
class Failure:
    """How an alarm fails: how often in a row, since when (epoch ms), and why. It does not ring before `muted_until`,
    which is monotonic: a step of the wall clock mutes nobody."""

    count: int
    muted_until: float
    since: int
    error: str


class AlarmHeap:
    """Rings due actors, one ring per actor at a time. The future that `ring` returns ends with its ring.

    While `held()`, if there is such, nothing rings: it is asked again at each look.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        ring: Callable[[ActorId], asyncio.Future[None]],
        backoff_max_ms: Callable[[ActorId], int],
        stepped_back: Callable[[], None] = lambda: None,
        held: Callable[[], bool] | None = None,
    ) -> None:
        self._clock, self._random = clock, random
        self._ring, self._backoff_max_ms = ring, backoff_max_ms
        self.due: dict[ActorId, int] = {}
        """When each actor rings. Entries of the heap that differ are stale."""
        self.failing: dict[ActorId, Failure] = {}
        """Actors whose last ring failed."""
        self._heap: list[tuple[int, ActorId]] = []
        self._ringing: set[ActorId] = set()
        self._compact_at = 1_000
        self._look_again_ms = int(clock.look_again_s * 1000)
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._rings_at = 0.0  # monotonic
        self.lag = LoopLag(clock.monotonic)
        self._running = False
        self._stepped_back = stepped_back
        self._held = held
        self._seen = (0, 0.0)  # wall and monotonic time at the last look

    def start(self) -> None:
        self._running = True
        self._seen = (self._clock.now_ms(), self._clock.monotonic())
        self._tick()

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failures(self, actor: ActorId) -> int:
        """Return how many times in a row this actor's alarm has failed."""
        failure = self.failing.get(actor)
        return 0 if failure is None else failure.count

    def worked(self, actor: ActorId) -> None:
        """Forget that this actor's alarm failed, after a durable turn that left nothing due. Its next alarm does not
        wait for the end of the backoff."""
        failed = self.failing.pop(actor, None)
        if failed is not None and actor not in self._ringing and (due := self.due.get(actor)) is not None:
            self._push(actor, due)

    @property
    def failing_since(self) -> int | None:
        """Since when the first of the failing alarms fails, epoch ms."""
        return min((failure.since for failure in self.failing.values()), default=None)

    def later_than(self, instant_ms: int) -> list[ActorId]:
        """Return the actors that ring only after that instant."""
        return [actor for actor, due in self.due.items() if due > instant_ms]

    def look(self) -> bool:
        """Ring what is due now, without waiting for the timer. Return whether any alarm rings."""
        if self._running:
            self._tick()
        return bool(self._ringing)

    def next_ring(self) -> int | None:
        """Return when the next alarm rings, epoch ms; one that backs off rings at the end of that."""
        return min((self._place(actor, due) for actor, due in self.due.items()), default=None)

    def set(self, actor: ActorId, due_ms: int | None) -> None:
        """Ring this actor at `due_ms` instead of any instant set before; None: do not ring it."""
        if due_ms is None:
            self.due.pop(actor, None)
            return
        self.due[actor] = due_ms
        if actor not in self._ringing:
            self._push(actor, due_ms)

    def _push(self, actor: ActorId, due_ms: int) -> None:
        due_ms = self._place(actor, due_ms)
        heapq.heappush(self._heap, (due_ms, actor))
        if len(self._heap) > self._compact_at:
            self._compact()
        if self._running and (self._armed_ms is None or due_ms < self._armed_ms):
            self._arm(due_ms, self._clock.now_ms())

    def _arm(self, due_ms: int, now: int) -> None:
        # Wall clocks step and machines suspend: look again at least so often, and a step is noticed soon.
        wait_ms = min(max(due_ms - now, 0), self._look_again_ms)
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = now + wait_ms
        self._rings_at = self._clock.monotonic() + wait_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._timed)

    def _timed(self) -> None:
        late_s = self._clock.monotonic() - self._rings_at
        self.lag.timers.append(late_s)
        if late_s >= WORTH_S or len(self.lag.timers) >= MOST_TIMERS:
            self.lag.note(late_s)
        self._tick()

    def _tick(self) -> None:
        now, monotonic = self._clock.now_ms(), self._clock.monotonic()
        self._watch_clock(now, monotonic)
        if self._held is not None and self._held():
            self._arm(now + self._look_again_ms, now)
            return
        if self.failing:
            self._recall_failed(now)
        to_ring: list[tuple[ActorId, int]] = []
        while self._heap and self._heap[0][0] <= now and len(to_ring) < RINGS_PER_TICK:
            _, actor = heapq.heappop(self._heap)
            due = self.due.get(actor)
            if due is None or actor in self._ringing:
                continue
            if due > now or self._muted_ms(actor):
                self._requeue(actor, due)
                continue
            del self.due[actor]
            self._ringing.add(actor)
            to_ring.append((actor, due))
        self._arm(self._heap[0][0] if self._heap else now + self._look_again_ms, now)
        for actor, due in to_ring:
            self._ring(actor).add_done_callback(partial(self._rang, actor, due))

    def _watch_clock(self, now: int, monotonic: float) -> None:
        """Notice a step back of the wall clock: alarms are instants of it, and may then be a lifetime away."""
        (wall, before), self._seen = self._seen, (now, monotonic)
        back_ms = wall + (monotonic - before) * 1000 - now
        if back_ms > STEP_MS:
            log.warning("the clock was stepped back by %.0f s", back_ms / 1000)
            self._compact()  # those that back off stand in the heap at an instant of the old clock
            self._stepped_back()

    def _requeue(self, actor: ActorId, due: int) -> None:
        heapq.heappush(self._heap, (self._place(actor, due), actor))

    def _place(self, actor: ActorId, due: int) -> int:
        """Return the instant under which the heap keeps an alarm. An overdue alarm keeps its own instant: the clock may
        be ahead just now, and once it has stepped back "now" would be far in the future."""
        muted = self._muted_ms(actor)
        return max(due, self._clock.now_ms() + muted) if muted else due

    def _recall_failed(self, now: int) -> None:
        """Make due the alarms whose backoff is over. The heap has the end of a backoff as an instant of the wall clock,
        which may have stepped since."""
        for actor in self.failing:
            due = self.due.get(actor)
            if due is not None and due <= now and actor not in self._ringing and not self._muted_ms(actor):
                heapq.heappush(self._heap, (due, actor))

    def _muted_ms(self, actor: ActorId) -> int:
        """Return how much longer a failing alarm backs off."""
        failure = self.failing.get(actor)
        return 0 if failure is None else max(math.ceil((failure.muted_until - self._clock.monotonic()) * 1000), 0)

    def _compact(self) -> None:
        """Drop the stale entries that moved and removed alarms have left, before they outnumber the others."""
        self._heap = [(self._place(actor, due), actor) for actor, due in self.due.items() if actor not in self._ringing]
        heapq.heapify(self._heap)
        self._compact_at = 2 * len(self._heap) + 1_000

    def _rang(self, actor: ActorId, due: int, answer: asyncio.Future[None]) -> None:
        error = answer.exception()
        if error is None:
            self.failing.pop(actor, None)
        elif isinstance(error, StoreLocked):
            self.failing.pop(actor, None)  # it is with another host, which rings it
        elif self._running:
            # At least once: whatever went wrong, the alarm rings again.
            self._failed(actor, error, due)
        self._ringing.discard(actor)
        if (next_due := self.due.get(actor)) is not None:
            self._push(actor, next_due)

    def _failed(self, actor: ActorId, error: BaseException, rang: int) -> None:
        count = self.failures(actor) + 1
        delay = min(RETRY_BASE_MS << min(count - 1, 20), self._backoff_max_ms(actor))
        delay += self._random.randint(0, delay // 4)
        before = self.failing.get(actor)
        since = self._clock.now_ms() if before is None else before.since
        self.failing[actor] = failure = Failure(count, self._clock.monotonic() + delay / 1000, since, _in_words(error))
        self.due.setdefault(actor, rang)  # not the present: after a step back that may be an hour in the future
        if before is None or before.error != failure.error:
            cause = "" if error.__cause__ is None else f" ({error.__cause__!r:.300})"
            log.warning(
                "the alarm of %s failed %d times in a row, again in %d ms: %r%s", actor, count, delay, error, cause
            )
        elif not count & (count - 1):  # the same error again is logged ever more rarely
            log.warning("the alarm of %s failed %d times in a row, for the same reason", actor, count)


def _in_words(error: BaseException) -> str:
    """Word an error for people who may not see the log. The text of a foreign error may hold anything, so only its type
    is named."""
    return str(error) if isinstance(error, TocsinError) else type(error).__name__
