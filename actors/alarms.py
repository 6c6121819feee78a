"""When to ring which actor: a heap in memory, one timer on the loop, and the backoff of failing alarms.

What is stored (`wake_at`) travels with each actor's own batches; this heap is rebuilt from it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from random import Random

from tocsin.actors.clock import Clock
from tocsin.actors.ids import ActorId

log = logging.getLogger("tocsin.actors")

LONGEST_SLEEP_MS = 1_000
"""Wall clocks step and machines suspend: look again at least this often, so a step is noticed soon."""
RETRY_BASE_MS = 2_000
RINGS_PER_TICK = 1_000


class AlarmHeap:
    """Rings due actors through `ring`, one ring per actor at a time."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        ring: Callable[[ActorId], Awaitable[None]],
        start_soon: Callable[[Awaitable[None]], object],
        backoff_max_ms: Callable[[ActorId], int],
    ) -> None:
        self._clock, self._random = clock, random
        self._ring, self._start_soon, self._backoff_max_ms = ring, start_soon, backoff_max_ms
        self._heap: list[tuple[int, ActorId]] = []
        self._due: dict[ActorId, int] = {}  # the truth; heap entries that differ are stale
        self._failures: dict[ActorId, tuple[int, int]] = {}  # how often in a row, not before
        self._ringing: set[ActorId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None
        self._running = False

    def start(self) -> None:
        self._running = True
        self._tick()

    def stop(self) -> None:
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failures(self, actor: ActorId) -> int:
        """How many times in a row this actor's alarm has failed."""
        return self._failures.get(actor, (0, 0))[0]

    def set(self, actor: ActorId, due_ms: int | None) -> None:
        """Ring then, instead of whenever was set before; None: not at all."""
        if due_ms is None:
            self._due.pop(actor, None)
            return
        if self._due.get(actor) == due_ms:
            return
        self._due[actor] = due_ms
        if actor not in self._ringing:
            self._push(actor, due_ms)

    def _push(self, actor: ActorId, due_ms: int) -> None:
        due_ms = max(due_ms, self._failures.get(actor, (0, 0))[1])
        heapq.heappush(self._heap, (due_ms, actor))
        if self._running and (self._armed_ms is None or due_ms < self._armed_ms):
            self._arm(due_ms)

    def _arm(self, due_ms: int) -> None:
        now = self._clock.now_ms()
        wait_ms = min(max(due_ms - now, 0), LONGEST_SLEEP_MS)
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = now + wait_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        now = self._clock.now_ms()
        rung = 0
        while self._heap and self._heap[0][0] <= now and rung < RINGS_PER_TICK:
            _, actor = heapq.heappop(self._heap)
            due = self._due.get(actor)
            if due is None or actor in self._ringing:
                continue
            if max(due, self._failures.get(actor, (0, 0))[1]) > now:
                self._requeue(actor)
                continue
            del self._due[actor]
            self._ringing.add(actor)
            self._start_soon(self._attempt(actor))
            rung += 1
        self._arm(self._heap[0][0] if self._heap else now + LONGEST_SLEEP_MS)

    def _requeue(self, actor: ActorId) -> None:
        due = self._due.get(actor)
        if due is not None:
            heapq.heappush(self._heap, (max(due, self._failures.get(actor, (0, 0))[1]), actor))

    async def _attempt(self, actor: ActorId) -> None:
        try:
            await self._ring(actor)
            self._failures.pop(actor, None)
        except Exception as error:
            # At least once: whatever went wrong, the alarm rings again.
            self._failed(actor, error)
        finally:
            self._ringing.discard(actor)
            due = self._due.get(actor)
            if due is not None:
                self._push(actor, due)

    def _failed(self, actor: ActorId, error: Exception) -> None:
        count = self._failures.get(actor, (0, 0))[0] + 1
        delay = min(RETRY_BASE_MS << min(count - 1, 20), self._backoff_max_ms(actor))
        delay += self._random.randint(0, delay // 4)
        now = self._clock.now_ms()
        self._failures[actor] = (count, now + delay)
        self._due.setdefault(actor, now)
        log.warning("the alarm of %s failed %d times in a row, again in %d ms: %r", actor, count, delay, error)
