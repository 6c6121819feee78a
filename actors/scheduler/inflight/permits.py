"""Permits: how many callbacks a host has in flight, shared round-robin.

While the circuit of the origin is open nobody gets a permit but one probe every five seconds; due jobs wait without
being rewritten. Suspects (`suspects`) share an eighth of the permits; one that must run alone gets all of them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from tocsin.actors.scheduler.inflight.circuit import Circuit
from tocsin.actors.scheduler.inflight.holding import Hold
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, SOME
from tocsin.dispatch.callback import Outcome

PART_OF_SUSPECTS: Final = 8
"""One part in so many, of the permits for suspects, and of those for suspects of the second level."""
CIRCUIT_OPEN: Final = "CIRCUIT_OPEN"
HOST_HELD: Final = "HOST_HELD"
HOST_FULL: Final = "HOST_FULL"
SUSPECTS_FULL: Final = "SUSPECTS_FULL"


class Taker(Protocol):
    """Who stands in line for permits."""

    def wake(self) -> None: ...


class Permits:
    """At most `limit` callbacks in flight on this host."""

    def __init__(self, limit: int, circuit: Circuit, monotonic: Callable[[], float]) -> None:
        self.limit = limit
        self.free = limit
        self.circuit = circuit
        self.hold = Hold(monotonic)
        self.suspects = self._room = max(1, limit // PART_OF_SUSPECTS)
        self._monotonic = monotonic
        self._line: OrderedDict[Taker, None] = OrderedDict()
        self._apart: OrderedDict[Taker, int] = OrderedDict()  # and the level it wants
        self._alone: OrderedDict[Taker, None] = OrderedDict()
        self._owed = True  # whose turn it is: that of suspects
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    # ---- What may start --------------------------------------------------------------------------

    def hindrance(self, level: int = 0) -> str | None:
        """Why no more callbacks of jobs of this level start now; None: one may. The one place that decides it."""
        if self.circuit.open:
            return CIRCUIT_OPEN  # but for a probe
        if level == ALONE:
            return HOST_HELD if self.hold.rests or self.free < self.limit else None
        if self.hold.on:
            return HOST_HELD
        if level and self._room < self._cost(level):
            return SUSPECTS_FULL
        return HOST_FULL if self._spare(level) <= 0 else None

    def _spare(self, level: int) -> int:
        """Permits for jobs of this level. One is left to a suspect that may start, once others have had their turn; and
        where suspects could take all of them, one to the others after that."""
        if level:
            return self.free - bool(self._line and not self._owed and self.suspects >= self.limit)
        return self.free - (self._owed and self._first_fits())

    def _first_fits(self) -> bool:
        """Whether there is room for the suspect that is first in line."""
        return bool(self._apart) and self._cost(next(iter(self._apart.values()))) <= self._room

    def _cost(self, level: int) -> int:
        """How much of the room for suspects one of this level takes."""
        return self.suspects // max(1, self.suspects // PART_OF_SUSPECTS) if level == FEW else 1

    # ---- For lanes -------------------------------------------------------------------------------

    def take(self, taker: Taker, want: int) -> int:
        """As many as there are, if it is this scheduler's turn; it joins the line for the rest."""
        got = 0
        if not self._line or next(iter(self._line)) is taker:
            self._line.pop(taker, None)
            got = self._grant(want, 0)
        if got < want:
            self._line.setdefault(taker)
        self._wake_first()
        return got

    def take_apart(self, taker: Taker, level: int, want: int) -> int:
        """The same for suspects that run beside others."""
        got, cost = 0, self._cost(level)
        if not self._apart or next(iter(self._apart)) is taker:
            self._apart.pop(taker, None)
            got = self._grant(min(want, self._room // cost), level)
            self._room -= got * cost
        if got < want:
            self._apart.setdefault(taker, level)
        self._wake_first()
        return got

    def _grant(self, want: int, level: int) -> int:
        hindrance = self.hindrance(level)
        if want <= 0 or hindrance not in (None, CIRCUIT_OPEN):
            return 0
        got = min(want, self._spare(level))
        if got > 0 and hindrance == CIRCUIT_OPEN:
            if self.hold.on or self.circuit.wait_s() > 0:
                return 0
            self.circuit.probe()
            got = 1
        if got > 0:
            self._owed = not level
        self.free -= max(got, 0)
        return max(got, 0)

    def take_alone(self, taker: Taker) -> bool:
        """All permits once nothing else is in flight. Else a place in line, and others are held back for a while."""
        first = not self._alone or next(iter(self._alone)) is taker
        if first and not self.hold.rests and not self.hold.running and self.circuit.wait_s() == 0:
            if self.free == self.limit:
                self._alone.pop(taker, None)
                if self.circuit.open:
                    self.circuit.probe()
                self.hold.run()
                self.free = 0
                return True
            self.hold.begin()
        self._alone.setdefault(taker)
        self._wake_first()
        return False

    def give(self, count: int, level: int = 0) -> None:
        """Attempts of jobs of this level have ended, or do not start."""
        if level == ALONE:
            self.free += count * self.limit
            if count:
                self.hold.end()
        else:
            self.free += count
            self._room += count * self._cost(level) if level else 0
        self._wake_first()

    def leave(self, taker: Taker) -> None:
        """It has no ready work after all."""
        if taker in self._line:
            del self._line[taker]
            self._wake_first()

    def leave_apart(self, taker: Taker) -> None:
        if taker in self._apart:
            del self._apart[taker]
            self._wake_first()

    def leave_alone(self, taker: Taker) -> None:
        if taker in self._alone:
            del self._alone[taker]
            if not self._alone and not self.hold.running:
                self.hold.end()
            self._wake_first()

    def waits(self, taker: Taker) -> bool:
        return taker in self._line

    def waits_apart(self, taker: Taker) -> bool:
        return taker in self._apart

    def waits_for_room(self, taker: Taker) -> bool:
        """Whether room is being made for a suspect of the second level of its."""
        return self._apart.get(taker) == FEW

    def waits_alone(self, taker: Taker) -> bool:
        return taker in self._alone

    def ended(self, outcome: Outcome) -> None:
        """An attempt has ended so: the circuit may open or close."""
        if self.circuit.note(outcome):
            self._wake_first()

    # ---- Waking ----------------------------------------------------------------------------------

    def _wake_first(self) -> None:
        """Whoever is first of each kind and may start now."""
        waits = self.circuit.wait_s()
        may_hold = self._alone and not self.hold.rests and not self.hold.running and not waits
        if may_hold and (self.free == self.limit or not self.hold.on):
            next(iter(self._alone)).wake()
        if not self.hold.on and self.free > 0 and not waits:
            if self._first_fits() and self._spare(SOME) > 0:
                next(iter(self._apart)).wake()
            if self._line and self._spare(0) > 0:
                next(iter(self._line)).wake()
        if self._line or self._apart or self._alone:
            self._look_again(waits)

    def _look_again(self, circuit_s: float) -> None:
        """At a probe's time, or when a hold or the rest after it is over."""
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
