"""Permits: how many callbacks a host has in flight to one origin, shared round-robin.

While the circuit of the origin is open nobody gets a permit but one probe every five seconds; due jobs wait without
being rewritten. While it cools (`cool`) nobody gets one. Suspects (`suspects`) share an eighth of the permits; one that
must run alone gets all of them, and those of all other origins are held back.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from tocsin.actors.scheduler.inflight.circuit import Circuit
from tocsin.actors.scheduler.inflight.holding import Hold
from tocsin.actors.scheduler.model.health import ORIGIN_COOLING, ORIGIN_NOT_CONFIGURED
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, SOME
from tocsin.dispatch.callback import AttemptOutcome, Verdict

PART_OF_SUSPECTS: Final = 8
"""Suspects have this part of the permits, and those of the second level this part of it again."""
CIRCUIT_OPEN: Final = "CIRCUIT_OPEN"
HOST_HELD: Final = "HOST_HELD"
NOT_DISPATCHING: Final = "NOT_DISPATCHING"
HOST_FULL: Final = "HOST_FULL"
SUSPECTS_FULL: Final = "SUSPECTS_FULL"
COOLED_MOST_S: Final = 3_600.0
"""No origin cools for longer, whatever it asks for."""


class Taker(Protocol):
    """Who stands in line for permits."""

    places: int
    """In how many lines it stands. `Permits` counts, so that nobody asks for one that stands in none."""

    def wake(self) -> None:
        """Ask again: it is the taker's turn."""
        ...


Line = OrderedDict[Taker, int]
"""Takers in the order of their turns, each with the level of the jobs it has."""


class Company:
    """All permits of one host, those of each origin, and the state that they share."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.closed = False
        """True if nothing may start, until whoever has closed it opens it: a host that dispatches only in `run_due`."""
        self.cools = False
        """True if a busy answer with Retry-After to a job without a pool cools its origin."""
        self.tallies: list[Counter[Verdict]] = []
        """Whoever counts how attempts end puts a counter here, and takes it away."""
        self.hold = Hold(monotonic)
        self.all: list[Permits] = []
        self._monotonic = monotonic
        self._named: dict[str, Permits] = {}

    def add(self, name: str, permits: Permits) -> None:
        """Give a named origin its permits."""
        self._named[name] = permits

    def of(self, name: str) -> Permits:
        """Return the permits of a named origin; there are none for one that this host does not know."""
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = Permits(0, Circuit(self._monotonic, lambda: 0), self._monotonic, self)
        return found

    @property
    def is_idle(self) -> bool:
        """Return whether no callback is in flight."""
        return all(one.free == one.limit for one in self.all)


class Permits:
    """The permits of one origin: at most `limit` callbacks in flight. Without any it is one that the host has not."""

    cools = True
    """False where many receivers stand behind it, of which one says nothing of the others."""
    _cools_until = 0.0

    def __init__(
        self, limit: int, circuit: Circuit, monotonic: Callable[[], float], company: Company | None = None
    ) -> None:
        self.limit = limit
        self.free = limit
        self.circuit = circuit
        self.company = company or Company(monotonic)
        self.company.all.append(self)
        self.hold = self.company.hold
        self.suspects = self._room = max(1, limit // PART_OF_SUSPECTS)
        self._monotonic = monotonic
        self._plain: Line = OrderedDict()
        self._apart: Line = OrderedDict()
        self._alone: Line = OrderedDict()
        self._lines = {0: self._plain, SOME: self._apart, FEW: self._apart, ALONE: self._alone}
        self._suspects_next = True  # whose turn it is, where both kinds wait
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    # ---- What may start --------------------------------------------------------------------------

    def hindrance(self, level: int = 0) -> str | None:
        """Say why no more callbacks of jobs of this level start now; None: one may. The one place that decides it."""
        if self.company.closed:
            return NOT_DISPATCHING
        if not self.limit:
            return ORIGIN_NOT_CONFIGURED
        if self._cools_until and self.cools_s():
            return ORIGIN_COOLING
        if self.circuit.broken is not None:
            return CIRCUIT_OPEN  # but for a probe
        if level == ALONE:
            return HOST_HELD if self.hold.rests or not self.company.is_idle else None
        if self._is_held():
            return HOST_HELD
        if level and self._room < self._cost(level):
            return SUSPECTS_FULL
        return HOST_FULL if self._spare(level) <= 0 else None

    def cool(self, until: int) -> None:
        """Let nothing start before this instant, epoch ms of the host: the origin asked for that. An hour at most, and
        an earlier end than one that was asked for before changes nothing."""
        self.cool_for(until - self.circuit.now_ms())

    def cool_for(self, ms: int) -> None:
        """Let nothing start for so long."""
        if not self.cools:
            return
        wait_s = min(ms / 1000, COOLED_MOST_S)
        self._cools_until = max(self._cools_until, self._monotonic() + wait_s)
        self._wake_first()

    @property
    def cools_until(self) -> int | None:
        """Return the instant until which the origin cools, epoch ms; None: it does not."""
        left = self.cools_s()
        return self.circuit.now_ms() + round(left * 1000) if left else None

    def cools_s(self) -> float:
        """Return the seconds for which the origin still cools."""
        return max(self._cools_until - self._monotonic(), 0.0) if self._cools_until else 0.0

    def _is_held(self) -> bool:
        """Return whether nobody may start but the job that the host is held for."""
        return self.hold.since is not None and self.hold.on

    def _probe_in_s(self) -> float:
        """Return the seconds until a callback may be sent, as far as the origin lets it: one though the circuit is
        open, or the first after it has cooled."""
        waits = 0.0 if self.circuit.broken is None else self.circuit.wait_s()
        return max(waits, self.cools_s()) if self._cools_until else waits

    def _spare(self, level: int) -> int:
        """Count the permits for jobs of this level. One is left to a suspect that may start, once others have had their
        turn; and where suspects could take all of them, one to the others after that."""
        if level:
            return self.free - bool(self._plain and not self._suspects_next and self.suspects >= self.limit)
        return self.free - (self._suspects_next and self._first_fits())

    def _first_fits(self) -> bool:
        """Return whether there is room for the suspect that is first in line."""
        return bool(self._apart) and self._cost(next(iter(self._apart.values()))) <= self._room

    def _cost(self, level: int) -> int:
        """Return how much of the room for suspects one of this level takes."""
        return self.suspects // max(1, self.suspects // PART_OF_SUSPECTS) if level == FEW else 1

    # ---- For lanes -------------------------------------------------------------------------------

    def take(self, taker: Taker, want: int, level: int = 0) -> int:
        """Take up to `want` permits if it is the turn of this scheduler, which joins the line for the rest."""
        if level == ALONE:
            return self._take_all(taker)
        line, got = self._lines[level], 0
        if not line or next(iter(line)) is taker:
            self._remove(taker, line)
            got = self._grant(want, level)
        if got < want:
            self._join(taker, line, level)
        self._wake_first()
        return got

    def _grant(self, want: int, level: int) -> int:
        cost = self._cost(level) if level else 0
        hindrance = self.hindrance(level)
        if hindrance not in (None, CIRCUIT_OPEN):
            return 0
        got = max(min(want, self._spare(level), self._room // cost if level else want), 0)
        if got and hindrance == CIRCUIT_OPEN:
            if self._is_held() or self.circuit.wait_s() > 0:
                return 0
            self.circuit.probe()
            got = 1
        if got:
            self._suspects_next = not level
        self.free -= got
        self._room -= got * cost
        return got

    def _take_all(self, taker: Taker) -> int:
        """Take all permits for one job, once nothing is in flight; until then others are held back for a while."""
        line = self._alone
        first = not line or next(iter(line)) is taker
        if first and not self.hold.rests and not self.hold.running and not self._probe_in_s():
            if self.company.is_idle:
                self._remove(taker, line)
                if self.circuit.broken is not None:
                    self.circuit.probe()
                self.hold.run()
                self.free = 0
                self.company.all.remove(self)  # the others come first next time
                self.company.all.append(self)
                return 1
            self.hold.begin()
        self._join(taker, line, ALONE)
        self._wake_first()
        return 0

    def give(self, count: int, level: int = 0) -> None:
        """Take back the permits of attempts of this level that have ended, or do not start."""
        if level == ALONE:
            self.free += count * self.limit
            if count:
                self.hold.end()
        else:
            self.free += count
            self._room += count * self._cost(level) if level else 0
        if level == ALONE or self.hold.since is not None:
            self._wake_all()
        else:
            self._wake_first()

    def ended(self, outcome: AttemptOutcome, level: int) -> None:
        """Note how an attempt of this level ended, and take its permit back: the circuit may open or close."""
        if self.circuit.failures or outcome.verdict is Verdict.UNREACHABLE:
            self.circuit.note(outcome)
        for tally in self.company.tallies:
            tally[outcome.verdict] += 1
        self.give(1, level)

    def leave(self, taker: Taker, level: int = 0) -> None:
        """Take a scheduler that has no ready work of this level out of the line."""
        line = self._lines[level]
        if taker in line:
            self._remove(taker, line)
            ends = line is self._alone and not any(one._alone for one in self.company.all) and not self.hold.running
            if ends:
                self.hold.end()
                self._wake_all()
            else:
                self._wake_first()

    def waits(self, taker: Taker, level: int = 0) -> bool:
        """Return whether this scheduler stands in line for jobs of this level."""
        return taker in self._lines[level]

    def waits_for_room(self, taker: Taker) -> bool:
        """Return whether room is being made for a suspect of the second level of this scheduler."""
        return self._apart.get(taker) == FEW

    def _join(self, taker: Taker, line: Line, level: int) -> None:
        if taker not in line:
            line[taker] = level
            taker.places += 1

    def _remove(self, taker: Taker, line: Line) -> None:
        if taker in line:
            del line[taker]
            taker.places -= 1

    # ---- Waking ----------------------------------------------------------------------------------

    def _wake_all(self) -> None:
        """Wake whoever may start now, whichever origin they want to: a hold is one for all of them."""
        for one in tuple(self.company.all):
            one._wake_first()

    def _wake_first(self) -> None:
        """Wake whoever is first of each kind and may start now."""
        if not (self._plain or self._apart or self._alone):
            if self._timer is not None:
                self._timer.cancel()  # a timer of one event loop must not block one in the next
                self._timer = None
            return
        if self.company.closed:
            return
        waits, held = self._probe_in_s(), self._is_held()
        may_hold = self._alone and not self.hold.rests and not self.hold.running and not waits
        if may_hold and (not held or self.company.is_idle):
            next(iter(self._alone)).wake()
        if not held and self.free > 0 and not waits:
            if self._first_fits() and self._spare(SOME) > 0:
                next(iter(self._apart)).wake()
            if self._plain and self._spare(0) > 0:
                next(iter(self._plain)).wake()
        self._look_again(waits)

    def _look_again(self, circuit_s: float) -> None:
        """Set a timer for the next probe, or for the end of a hold or of the rest after it."""
        hold_s = self.hold.wait_s()
        seconds = min((wait for wait in (circuit_s or None, hold_s) if wait is not None), default=None)
        if seconds is None:
            return
        at = self._monotonic() + seconds
        if self._timer is None or at < self._rings_at:
            if self._timer is not None:
                self._timer.cancel()
            self._rings_at = at
            self._timer = asyncio.get_running_loop().call_later(seconds + 0.001, self._rings)

    def _rings(self) -> None:
        self._timer = None
        self._wake_first()
