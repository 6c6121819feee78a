"""A store that several hosts share, as this host sees it: its hosts, what has no owner, and what waits by mail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from tocsin.actors.runtime.clock import Clock
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.runtime.store_clock import StoreClock
from tocsin.actors.scheduler.model import health
from tocsin.actors.scheduler.model.cluster import ClusterStatus, StoreHost
from tocsin.dispatch.durations import span
from tocsin.errors import StoreError
from tocsin.storage.ownership.engine import slot_of
from tocsin.storage.shared import SharedProvider, StoreFacts

FRESH_S: Final = 1.0
"""Facts that were read so long ago are told again: many may ask at once."""
LASTS_S: Final = 30.0
"""For so long health goes by what was read last."""
FORGOTTEN_S: Final = 120.0
"""After so long without a look it is not known how long slots have had no owner; whoever asks at all asks sooner."""
CLOCK_OFF_MS: Final = 1_000
MAIL_LATE_MS: Final = 10_000
UNOWNED_S: Final = 5.0
"""Slots that have no owner for so long are more than a hand-over."""


class StoreWatch:
    """Reads the store's tables of hosts, slots and mail, when somebody asks."""

    def __init__(self, provider: SharedProvider, clock: Clock) -> None:
        self._provider, self._clock = provider, clock
        self._lock = asyncio.Lock()
        self.facts: StoreFacts | None = None
        """The facts as they were read last."""
        self._read_at = float("-inf")
        self._unowned_since: float | None = None

    def begin(self) -> None:
        """Forget what was, at the start of the host."""
        self._lock, self.facts, self._read_at, self._unowned_since = asyncio.Lock(), None, float("-inf"), None

    async def look(self) -> StoreFacts:
        """Return the facts of just now. StoreUnavailable if the store does not tell them."""
        async with self._lock:
            if self.facts is None or self._clock.monotonic() - self._read_at >= FRESH_S:
                found = await self._provider.facts()
                if self._clock.monotonic() - self._read_at > FORGOTTEN_S:
                    self._unowned_since = None  # nobody looked meanwhile: they may have had owners
                self.facts, self._read_at = found, self._clock.monotonic()
                if not found.unowned:
                    self._unowned_since = None
                elif self._unowned_since is None:
                    self._unowned_since = self._read_at
            return self.facts

    @property
    def clock_ahead_ms(self) -> int:
        """Return by how much this computer's clock is ahead of the store's."""
        return self._clock.measured_ms if isinstance(self._clock, StoreClock) else 0

    @property
    def slots_here(self) -> int:
        """Return how many slots this host had when that was read last."""
        return sum(one.slots for one in self.facts.hosts if one.host == self._provider.owner) if self.facts else 0

    def causes(self) -> Iterator[health.Cause]:
        """Say what is wrong with the store's hosts, as far as it was looked at lately."""
        if abs(ahead := self.clock_ahead_ms) >= CLOCK_OFF_MS:
            way = "ahead of" if ahead > 0 else "behind"
            said = f"the clock of this computer is {span(abs(ahead))} {way} the store's, by which jobs are due"
            yield health.Cause(health.CLOCK_OFF, f"{said}: set it right (NTP)")
        now = self._clock.monotonic()
        if (facts := self.facts) is None or now - self._read_at > LASTS_S:
            return
        if self._unowned_since is not None and self._read_at - self._unowned_since >= UNOWNED_S:
            said = f"{facts.unowned:,} slots of the store have no owner, and nothing of them starts"
            yield health.Cause(health.SLOTS_UNOWNED, f"{said}: start a host, or restart a drained one")
        if facts.oldest_mail_ms >= MAIL_LATE_MS:
            said = (
                f"{facts.mail:,} calls wait by mail for the owner of their scheduler, for {span(facts.oldest_mail_ms)}"
            )
            yield health.Cause(health.MAIL_LATE, f"{said}: `tocsin cluster status` names the hosts")

    async def status(self, actor: ActorId) -> ClusterStatus | None:
        """Return the store's hosts, and where this actor is; None while the store does not tell."""
        try:
            facts = await self.look()
        except StoreError:
            return None
        place = self._provider.locate(str(actor))
        owner = self._provider.owner if place.here else place.host
        hosts = [StoreHost(one.host, one.name, one.state, one.slots, one.lease_left_ms) for one in facts.hosts]
        return ClusterStatus(
            answered_by=self._provider.owner,
            owner=owner,
            slot=slot_of(str(actor)),
            hosts=hosts,
            unowned=facts.unowned,
            mail=facts.mail,
            oldest_mail_ms=facts.oldest_mail_ms,
            beat_ms=facts.beat_ms,
            clock_ahead_ms=self.clock_ahead_ms,
        )
