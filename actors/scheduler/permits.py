"""Permits: how many callbacks a host has in flight, shared round-robin.

While the circuit of the origin is open nobody gets a permit but one probe every five seconds; due jobs wait without
being rewritten. A job that has lost two hosts gets all permits at once, so it takes no neighbours along.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Protocol

from tocsin.actors.scheduler.circuit import Circuit
from tocsin.dispatch.callback import Outcome


class Taker(Protocol):
    """Who stands in line for permits."""

    def wake(self) -> None: ...


class Permits:
    """At most `limit` callbacks in flight on this host."""

    def __init__(self, limit: int, circuit: Circuit) -> None:
        self.limit = limit
        self.free = limit
        self.circuit = circuit
        self._line: OrderedDict[Taker, None] = OrderedDict()
        self._alone: OrderedDict[Taker, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, taker: Taker, want: int) -> int:
        """As many as there are, if it is this scheduler's turn; it joins the line for the rest."""
        got = 0
        if not self._alone and (not self._line or next(iter(self._line)) is taker):
            self._line.pop(taker, None)
            got = self._grant(want)
        if got < want:
            self._line.setdefault(taker)
        self._wake_first()
        return got

    def _grant(self, want: int) -> int:
        got = min(want, self.free)
        if got and self.circuit.open:
            if self.circuit.wait_s() > 0:
                return 0
            self.circuit.probe()
            got = 1
        self.free -= got
        return got

    def take_alone(self, taker: Taker) -> int:
        """All permits once nothing else is in flight, else 0 and a place in line; no others are given meanwhile."""
        first = not self._alone or next(iter(self._alone)) is taker
        if first and self.free == self.limit and self.circuit.wait_s() == 0:
            self._alone.pop(taker, None)
            if self.circuit.open:
                self.circuit.probe()
            self.free = 0
            return self.limit
        self._alone.setdefault(taker)
        self._wake_first()
        return 0

    def give(self, count: int) -> None:
        self.free += count
        self._wake_first()

    def leave(self, taker: Taker) -> None:
        """It has no ready work after all."""
        if taker in self._line:
            del self._line[taker]
            self._wake_first()

    def leave_alone(self, taker: Taker) -> None:
        if taker in self._alone:
            del self._alone[taker]
            self._wake_first()

    def waits(self, taker: Taker) -> bool:
        return taker in self._line or taker in self._alone

    def ended(self, outcome: Outcome) -> None:
        """An attempt has ended so: the circuit may open or close."""
        if self.circuit.note(outcome):
            self._wake_first()

    def _wake_first(self) -> None:
        if self._alone:
            ready = self.free == self.limit
            line = self._alone
        else:
            ready, line = self.free > 0, self._line
        if not ready or not line:
            return
        wait = self.circuit.wait_s()
        if wait == 0:
            next(iter(line)).wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait + 0.001, self._probe_due)

    def _probe_due(self) -> None:
        self._timer = None
        self._wake_first()
