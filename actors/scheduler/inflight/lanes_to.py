"""The lanes of one scheduler to one origin, and leave to start jobs in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.dispatch.callback import AttemptOutcome, Verdict

LANES_FULL: Final = "LANES_FULL"


class Permitted:
    """Leave to start so many jobs of one level: a `with` block, at whose end the permits that were not used go back."""

    __slots__ = "_lanes", "_level", "claims", "unused"

    def __init__(self, lanes: LanesTo, jobs: int, level: int) -> None:
        self.unused = jobs
        self.claims: list[Claim] = []
        self._lanes, self._level = lanes, level

    def __enter__(self) -> Permitted:
        return self

    def __exit__(self, *_: object) -> None:
        if self.unused:
            self._lanes.give_back(self.unused, self._level)

    def use(self, claims: Sequence[Claim]) -> None:
        """Start these jobs once their turn is durable. `Lanes.lost` takes it back if the turn is lost."""
        self._lanes.live.update([claim.token for claim in claims])
        self.claims.extend(claims)
        self.unused -= len(claims)


class LanesTo(ABC):
    """The lanes of one scheduler to one origin: how many are in use, and its place in line for the origin's permits."""

    in_flight: int
    places: int
    """In how many lines for permits this scheduler stands; kept by `Permits`."""
    limit: int
    launched: float
    """When an attempt was last started, monotonic seconds."""
    stopping: bool
    live: set[str]
    """Tokens of attempts of the scheduler, whichever origin they go to, that are on their way on this host, or whose
    settlement is not durable yet."""
    permits: Permits

    @abstractmethod
    def wake(self) -> None:
        """Claim again: a permit is free and it is this scheduler's turn."""

    def take(self, most: int, level: int = 0) -> Permitted:
        """Take permits for up to `most` new attempts of jobs of this level, as a `with` block in which to claim.

        Where there are fewer, this scheduler stands in line and is woken when it may have more.
        """
        room = min(self.limit - self.in_flight, most)
        if self.stopping or room <= 0 or self.permits.company.closed or not self.permits.limit:
            self.leave(level)  # it would block the line: a lane that frees claims again, or an alarm does
            return Permitted(self, 0, level)
        got = self.permits.take(self, room, level)
        self.in_flight += got
        return Permitted(self, got, level)

    def give_back(self, count: int, level: int) -> None:
        """Return permits that were taken for this level and not used."""
        self.in_flight -= count
        self.permits.give(count, level)

    def hindrances(self, level: int) -> list[str]:
        """Say why no more callbacks of this scheduler and level start now; none: one may."""
        found = [LANES_FULL] if self.in_flight >= self.limit else []
        host = self.permits.hindrance(level)
        return found if host is None else [*found, host]

    def could_take(self, level: int = 0) -> bool:
        """Return whether asking now makes sense; if not, a freed lane or a permit wakes the scheduler."""
        if self.stopping or self.in_flight >= self.limit or not self.permits.limit:
            return False
        if self.permits.company.closed:
            return True  # by the alarm, which rings when they are opened
        return not self.places or not self.permits.waits(self, level)

    @property
    def waits_for_room(self) -> bool:
        """Return whether room is being made for a suspect of the second level."""
        return self.places > 0 and self.permits.waits_for_room(self)

    def leave(self, *levels: int) -> None:
        """Stand in line no more for jobs of these levels: none is ready."""
        for level in levels if self.places else ():
            self.permits.leave(self, level)

    def cool_for(self, ms: int) -> None:
        """Start nothing that goes to this origin for so long, whatever the scheduler; see `Permits.cool`."""
        self.permits.cool_for(ms)

    def lost_one(self, level: int) -> None:
        """Take back the permit and the lane of a claim that is not sent."""
        self.in_flight -= 1
        self.permits.give(1, level)

    def note_busy(self, outcome: AttemptOutcome) -> None:
        """Let the origin cool, if the host does so where it was busy and has said for how long."""
        if outcome.verdict is Verdict.BUSY and outcome.retry_after_ms and self.permits.company.cools:
            self.permits.cool_for(outcome.retry_after_ms)


class LanesToNamed(LanesTo):
    """The lanes of one scheduler to a named origin."""

    def __init__(
        self, permits: Permits, limit: int, live: set[str], wake: Callable[[], None], *, stopping: bool
    ) -> None:
        self.permits, self._wake = permits, wake
        self.limit, self.live, self.stopping = limit, live, stopping
        self.in_flight = self.places = 0
        self.launched = float("-inf")

    def wake(self) -> None:
        self._wake()
