"""Keep what a turn of one scheduler did, for those who watch its host: told once a turn is durable, then forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.actors.scheduler.model.counters import Counters, flows
from tocsin.actors.scheduler.model.rows import encode


class TurnDone(msgspec.Struct, frozen=True):
    """The deeds of one turn: how much each of FLOWS grew, how many jobs waited before it and wait now, how many
    attempts ended by outcome, how many leases ran out by kind, how long the attempts of workers took (ms), and for
    which reasons jobs died."""

    grown: Sequence[int]
    waited: int
    waiting: int
    attempts: dict[str, int]
    expired: dict[str, int]
    took: Sequence[float]
    reasons: Sequence[str]


class Tally:
    """Collects during a turn. Nothing is kept of a turn that is lost: its scheduler is read anew."""

    __slots__ = ("attempts", "before", "expired", "sealed", "took", "waited")

    def __init__(self, counters: Counters) -> None:
        self.attempts: dict[str, int] | None = None
        """How many attempts ended in this turn, by outcome."""
        self.expired: dict[str, int] | None = None
        self.took: list[float] | None = None
        self.sealed = encode(counters)
        """The row of the counters as it was last written."""
        self.begin(counters)

    def begin(self, counters: Counters) -> None:
        """Note what was counted when the scheduler was read."""
        self.before, self.waited = flows(counters), counters.waiting

    def worked(self, took_ms: float) -> None:
        """Count how long a worker took."""
        if self.took is None:
            self.took = []
        self.took.append(took_ms)

    def ran_out(self, kind: str) -> None:
        """Count a lease of this kind that ended before its attempt was settled."""
        self.expired = self.expired or {}
        self.expired[kind] = self.expired.get(kind, 0) + 1

    def take(self, counters: Counters, reasons: Sequence[str]) -> TurnDone | None:
        """Return what was done since it was asked last; None: nothing of this kind."""
        now, attempts = flows(counters), self.attempts
        if now == self.before and attempts is None and self.expired is None and counters.waiting == self.waited:
            return None
        grown = [new - old for new, old in zip(now, self.before, strict=True)]
        done = TurnDone(
            grown, self.waited, counters.waiting, attempts or {}, self.expired or {}, self.took or (), reasons
        )
        self.before, self.waited = now, counters.waiting
        self.attempts = self.expired = self.took = None
        return done
