"""This host among the hosts of a store: its lease, its signs of life, and how sure it may be of its own memory.

All comparisons of instants are of this host's own monotonic clock with itself. What counts for others is the lease in
the store, on the store's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tocsin.errors import StoreError, StoreUnavailable
from tocsin.storage.ownership.engine import Beat, HostRow, HostState, SharedEngine
from tocsin.storage.ownership.timing import Timing, slept_s
from tocsin.storage.shared import SharedCounts

log = logging.getLogger("tocsin.storage")

RETRY_S = 0.25
FRESH_S = 1.0
NEVER = float("-inf")
DRIFT: Final = 0.001
"""Seconds that two clocks may drift apart in a second: far more than they do."""


@dataclass(frozen=True, slots=True)
class Announced:
    """The name, address and weight under which a host is known to others."""

    name: str
    url: str | None = None
    weight: int = 1


class Membership:
    """One start of this host, and the next one if it is declared dead.

    `died(host)` is called at once when the host of that id has come to its end, before it is entered anew.
    `check_again()` raises StoreError while it must not be: what was so at the start may have changed while it was dead.
    """

    def __init__(
        self,
        engine: SharedEngine,
        timing: Timing,
        random: Random,
        counts: SharedCounts,
        *,
        died: Callable[[str], None],
        changed: Callable[[], None],
        check_again: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine, self._timing, self._random = engine, timing, random
        self._counts, self._died, self._changed, self._check_again = counts, died, changed, check_again
        self.announced = Announced("")
        self.slept = slept_s
        self.host = ""
        self.draining = False
        """This host is to let go of everything, and is given nothing."""
        self._deadline = NEVER  # until then nobody else has what this host owns; by a clock that runs in suspense too
        self._beaten_at = NEVER
        self._known_alive_at = NEVER  # nobody had declared this host dead then
        self._connected_since: float | None = None
        self._answered_at = NEVER
        self._was_interrupted = False
        self._store_offset_s: float | None = None  # the store's clock minus the loop's
        self._offset_error_s = self._offset_at = 0.0  # by how much that may be wrong, and when it was measured
        self._history = ""  # of the store
        self._entering: HostRow | None = None
        self._wanted = asyncio.Event()
        self._beating = asyncio.Lock()

    # ---- What is known ---------------------------------------------------------------------------

    @property
    def lease_runs(self) -> bool:
        """Return whether the lease has not ended, as far as this host knows."""
        return self._awake_or_not() < self._deadline

    def _awake_or_not(self) -> float:
        return asyncio.get_running_loop().time() + self.slept()

    @property
    def sure(self) -> bool:
        """Return whether nobody else can own what this host owns as far as it knows."""
        # How long others have seen that the session is gone is not known here: this process may have been busy since.
        # Once it is there again, only the answer to a later sign of life tells that none of them acted on it.
        session = self._engine.session_lost_at is None and self._known_alive_at >= self._engine.session_held_at
        return self.lease_runs and session

    @property
    def beat_ms(self) -> int:
        """Return the time since the last accepted sign of life."""
        since = asyncio.get_running_loop().time() - self._beaten_at
        return 0 if since == float("inf") else int(since * 1000)

    @property
    def store_ms(self) -> int | None:
        """Return the time of the store's clock, as that beat tells which took the shortest way lately."""
        offset = self._store_offset_s
        return None if offset is None else round((asyncio.get_running_loop().time() + offset) * 1000)

    def connected_for(self, seconds: float) -> bool:
        """Return whether the store has answered without a break for so long. Whoever was cut off for less may not judge
        others: all of them may have been."""
        since = self._connected_since
        return since is not None and asyncio.get_running_loop().time() - since >= seconds

    @property
    def may_judge_sessions(self) -> bool:
        """Return whether a session that is gone says that its host is. After an outage of the store the others may take
        a beat longer to connect again; a host that has just started has seen no outage."""
        wait = self._timing.beat_s if self._was_interrupted else min(self._timing.beat_s, FRESH_S)
        return self.connected_for(wait)

    def answered(self) -> None:
        """Note that the store has answered just now."""
        now = asyncio.get_running_loop().time()
        # A long silence is a break as well: this process stood still, and perhaps all of them did.
        if self._connected_since is None or now - self._answered_at > self._timing.ttl_s / 2:
            self._was_interrupted = self._was_interrupted or self._connected_since is not None
            self._connected_since = now
        self._answered_at = now

    def interrupted(self) -> None:
        """Note that the store did not answer."""
        self._connected_since = None
        self._was_interrupted = True

    # ---- Life ------------------------------------------------------------------------------------

    async def enter(self) -> None:
        """Enter this host under a new id, and learn what time it is. If the answer is lost, the next call asks whether
        that one was entered."""
        self._entering = row = self._entering or self._new_row()
        await self._engine.register(row, self._timing.ttl_s)
        sent, slept = asyncio.get_running_loop().time(), self.slept()
        beat = await self._engine.beat(row.host, self._timing.ttl_s)
        self._entering = None
        if beat is None:  # it was entered an earlier time, and declared dead since
            raise StoreUnavailable(f"{self._engine.place} answered too late: this host was declared dead meanwhile")
        self.host = row.host
        self._accepted(sent, beat, slept)

    def _new_row(self) -> HostRow:
        # Without a connection that can hold a lock, others go by the lease alone.
        session = 0 if self._engine.session_lost_at is not None else self._random.getrandbits(62) | 1
        said = self.announced
        return HostRow(f"{self._random.getrandbits(128):032x}", said.name, said.url, said.weight, session=session)

    def start(self) -> None:
        """Forget what was before, at the start of the provider."""
        self._deadline = self._beaten_at = self._known_alive_at = self._answered_at = NEVER
        self._connected_since = self._store_offset_s = None
        self._was_interrupted = False
        self.draining, self.host, self._entering = False, "", None
        self._wanted, self._beating = asyncio.Event(), asyncio.Lock()

    def end(self) -> None:
        """Trust nothing any more: this host has let go of everything."""
        self._deadline = NEVER

    def hurry(self) -> None:
        """Give a sign of life now, to learn how things are."""
        self._wanted.set()

    async def beat_for_ever(self) -> None:
        """Give signs of life. One that fails is followed by the next soon."""
        loop = asyncio.get_running_loop()
        troubled = False
        while True:
            sent = loop.time()
            wait = self._timing.beat_s
            try:
                await self.beat()
                troubled = False
            except StoreError as error:
                if not troubled:
                    log.error("%s: this host cannot say that it lives: %s", self._engine.place, error)
                troubled, wait = True, min(RETRY_S, wait)
            self._wanted.clear()
            await either(self._wanted, sent + wait - loop.time())

    async def beat(self) -> None:
        """Give one sign of life; enter anew if this host was declared dead. StoreUnavailable."""
        async with self._beating:
            loop = asyncio.get_running_loop()
            sent, slept, host = loop.time(), self.slept(), self.host
            beat: Beat | None = None
            try:
                async with asyncio.timeout(self._timing.answer_s):
                    if host:
                        beat = await self._engine.beat(host, self._timing.ttl_s)
                if beat is None or self._session_is_gone_for_long():
                    await self._begin_anew(host)
                    return
            except (StoreError, TimeoutError) as error:
                self.interrupted()
                if isinstance(error, StoreError):
                    raise
                raise StoreUnavailable(f"{self._engine.place} did not answer in time") from error
            self._accepted(sent, beat, slept)
            await self._stay_draining(beat.state)

    def _session_is_gone_for_long(self) -> bool:
        """Return whether this host is connected all the time, and cannot have its session again: it does without one
        then, as a new host."""
        lost_at, ttl_s = self._engine.session_lost_at, self._timing.ttl_s
        return lost_at is not None and asyncio.get_running_loop().time() - lost_at > ttl_s and self.connected_for(ttl_s)

    async def _begin_anew(self, host: str) -> None:
        """End as this host, and enter as another one. Each step has a time of its own: a store may be slow."""
        if host:
            self._counts.died += 1
            log.error("%s: this host was declared dead, or cannot be told from a dead one. It begins anew", host)
            self._deadline, self.host = NEVER, ""
            self._died(host)
        async with asyncio.timeout(self._timing.answer_s):
            await self._check_again()
        async with asyncio.timeout(self._timing.answer_s):
            await self.enter()
        try:
            async with asyncio.timeout(self._timing.answer_s):
                await self._check_again()  # what came before that has seen this host, or is seen by it
        except BaseException:
            entered, self.host, self._deadline = self.host, "", NEVER
            self._died(entered)
            await self._engine.forget(entered)
            raise
        self._changed()
        await self._stay_draining(HostState.UP)

    async def _stay_draining(self, state: HostState) -> None:
        """Say again that this host takes nothing, if the store does not know: by an error, by a store that was rolled
        back, or because it has entered anew. Else the others would leave its share of the slots to it for ever."""
        if self.draining and state is HostState.UP:
            await self._engine.drain(self.host)

    def _measured(self, offset: float, error: float) -> float | None:
        """Note by how much the store's clock is ahead, which half of the way there and back may be wrong; return what
        was known before. Hosts whose beats take long would else differ in what time it is, and in when a lease ends. A
        measurement gives way to a worse one as clocks drift, or if both cannot be true."""
        now, before = asyncio.get_running_loop().time(), self._store_offset_s
        known = self._offset_error_s + (now - self._offset_at) * DRIFT
        if before is None or error <= known or abs(offset - before) > error + known:
            self._store_offset_s, self._offset_error_s, self._offset_at = offset, error, now
        return before

    def _accepted(self, sent: float, beat: Beat, slept: float = 0.0) -> None:
        loop = asyncio.get_running_loop()
        middle = (sent + loop.time()) / 2
        offset = beat.now_ms / 1000 - middle
        self._beaten(sent, slept)
        self.answered()
        before = self._measured(offset, (loop.time() - sent) / 2)
        if before is not None and abs(offset - before) > self._timing.ttl_s / 2:
            log.warning("%s: the clock of the store jumped by %.1f s", self._engine.place, offset - before)
            self._connected_since = loop.time()  # leases that it ended say nothing of their hosts
        if beat.history != self._history:
            if self._history:
                log.warning("%s goes on from a copy: its last commits may be lost", self._engine.place)
            self._history = beat.history
            self._changed()
        if beat.state is HostState.DRAINING and not self.draining:
            log.warning("%s: this host was told to let go of all that it owns", self.host)
            self.draining = True
            self._changed()

    def _beaten(self, sent: float, slept: float) -> None:
        self._beaten_at = max(self._beaten_at, sent)
        self._known_alive_at = max(self._known_alive_at, sent)
        self._deadline = max(self._deadline, sent + slept + self._timing.ttl_s - self._timing.margin_s)


async def either(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, or so long."""
    try:
        async with asyncio.timeout(max(seconds, 0.0)):
            await event.wait()
    except TimeoutError:
        return
