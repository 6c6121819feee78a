"""The tokens of pools that have a rate, and which of them cool, in memory: what `rate/` rows say as of this turn.

Time here never steps: it is that of the host's monotonic clock, put on the instant at which these rows were read. So a
clock that is set starts no job too many and none too late. A test clock is steady by itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from tocsin.actors.scheduler.model.flow_rows import PoolFlow
from tocsin.actors.scheduler.model.rate_rows import (
    COOLS_MOST_MS,
    RateRow,
    credit_at,
    full,
    most,
    next_token,
    rate_key,
)
from tocsin.actors.scheduler.model.rows import encode
from tocsin.dispatch.rate import Stored

STEP_MS: Final = 1_000
"""A clock that is set by more than this has its rows written anew, with instants of the new time."""


class Meter:
    """One pool: its rate, if it has one, and what its row says."""

    __slots__ = ("at", "cool_until", "credit", "rate")

    def __init__(self, rate: Stored | None, at: int) -> None:
        self.rate, self.at, self.cool_until = rate, at, 0
        self.credit = 0 if rate is None else full(rate)

    def refill(self, now: int) -> None:
        """Count the tokens that have come until now."""
        if self.rate is not None:
            self.credit = credit_at(self.rate, self.at, self.credit, now)
        self.at = max(now, self.at)

    def opens_at(self) -> int:
        """Return the instant from which a job may start."""
        return max(self.cool_until, 0 if self.rate is None else next_token(self.rate, self.at, self.credit))


def is_metered(flow: PoolFlow | None) -> bool:
    """Return whether a pool with this flow needs a meter."""
    return flow is not None and (flow.rate is not None or flow.cool == "pool")


class Meters:
    """The meters of one scheduler, and which pools wait for their next token."""

    def __init__(self) -> None:
        self.touched: set[str] = set()
        """Pools whose rows have changed in this turn."""
        self._meters: dict[str, Meter] = {}
        self._now = 0
        self._ahead = 0  # of this time, the instance's clock
        self._zero: float | None = None
        self._waits: dict[str, int] = {}  # by pool: when its next token comes
        self._heap: list[tuple[int, str]] = []  # with stale entries

    def __contains__(self, pool: str) -> bool:
        return pool in self._meters

    # ---- Time ------------------------------------------------------------------------------------

    def begin(self, now: int, monotonic_s: float | None) -> list[str]:
        """Go on to the instant of a turn, which is `now` by the instance's clock; `monotonic_s` is None for a test
        clock. Return the pools whose token has come."""
        if monotonic_s is None:
            self._now = now
        elif self._zero is None:
            self._zero, self._now = monotonic_s - now / 1000, now
            for pool, meter in self._meters.items():
                if behind := max(meter.at - now, 0):  # another clock wrote this, or this one before it was set back
                    self.touched.add(pool)
                meter.at, meter.cool_until = meter.at - behind, min(meter.cool_until - behind, now + COOLS_MOST_MS)
            self._waits.clear()  # asked for while rows were read, at which time nobody knew the instant
            return list(self._meters)
        else:
            self._now = max(int((monotonic_s - self._zero) * 1000), self._now)
        ahead = now - self._now
        if abs(ahead - self._ahead) > STEP_MS:
            self.touched.update(self._meters)
            self._ahead = ahead
        elif ahead != self._ahead:
            self._ahead = ahead
        return list(self._came())

    def _came(self) -> Iterable[str]:
        while self._heap and self._heap[0][0] <= self._now:
            instant, pool = heapq.heappop(self._heap)
            if self._waits.get(pool) == instant:
                del self._waits[pool]
                yield pool

    def next_at(self) -> int | None:
        """Return when the next token comes that jobs wait for, by the instance's clock."""
        while self._heap and self._waits.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] + self._ahead if self._heap else None

    # ---- Tokens ----------------------------------------------------------------------------------

    def room(self, pool: str, slots: int) -> int:
        """Return how many of so many jobs may start now; if none may, the pool is said to wait."""
        meter = self._meters.get(pool)
        if meter is None:
            return slots
        if meter.cool_until <= self._now:
            if meter.rate is None:
                return slots
            meter.refill(self._now)
            if tokens := meter.credit // meter.rate[1]:
                return min(slots, tokens)
        opens_at = meter.opens_at()
        if self._waits.get(pool) != opens_at:
            self._waits[pool] = opens_at
            heapq.heappush(self._heap, (opens_at, pool))
        return 0

    def spend(self, pool: str) -> None:
        """Take a token, for a job that starts."""
        meter = self._meters.get(pool)
        if meter is not None and meter.rate is not None:
            meter.refill(self._now)
            meter.credit = max(meter.credit - meter.rate[1], 0)
            self.touched.add(pool)

    def cool(self, pool: str, ms: int) -> None:
        """Let no job of the pool start for so long; no shorter than was said before."""
        meter = self._meters.get(pool)
        if meter is not None:
            meter.refill(self._now)  # its row tells from which instant this is counted
            meter.cool_until = max(meter.cool_until, self._now + min(ms, COOLS_MOST_MS))
            self.touched.add(pool)

    def warm(self, pool: str) -> bool:
        """End the cooling of a pool; return whether it cooled."""
        meter = self._meters.get(pool)
        if meter is None or meter.cool_until <= self._now:
            return False
        meter.cool_until = 0
        self.touched.add(pool)
        return True

    # ---- Which pools there are -------------------------------------------------------------------

    def load(self, pool: str, flow: PoolFlow, row: RateRow | None) -> None:
        """Take over a pool as its rows say."""
        meter = self._meters[pool] = Meter(flow.rate, 0)
        if row is not None:
            meter.at, meter.cool_until = row.at, row.cool_until
            meter.credit = 0 if flow.rate is None else min(row.credit, most(flow.rate))

    def set(self, pool: str, flow: PoolFlow | None) -> None:
        """Note what was set of a pool. With another rate it keeps the share of tokens that it had."""
        old = self._meters.get(pool)
        if flow is None or not is_metered(flow):
            if old is not None:
                del self._meters[pool]
                self.touched.add(pool)
            return
        meter = self._meters[pool] = Meter(flow.rate, self._now)
        if old is None:
            return
        old.refill(self._now)
        if flow.cool == "pool":
            meter.cool_until = old.cool_until
        if old.rate is not None and flow.rate is not None:
            meter.credit = min(old.credit * full(flow.rate) // full(old.rate), most(flow.rate))
        if old.rate != flow.rate or meter.cool_until != old.cool_until:
            self.touched.add(pool)

    def sealed(self) -> dict[bytes, bytes | None]:
        """Return the rows of pools that changed since the last call; None for one that has no row any more."""
        rows: dict[bytes, bytes | None] = {}
        for pool in sorted(self.touched):
            meter = self._meters.get(pool)
            if meter is None:
                rows[rate_key(pool)] = None
                continue
            cool_until = meter.cool_until + self._ahead if meter.cool_until > self._now else 0
            rows[rate_key(pool)] = encode(RateRow(meter.at + self._ahead, meter.credit, cool_until))
        self.touched.clear()
        return rows
