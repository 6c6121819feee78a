"""Permits for callbacks that a turn took, and the claims they were used for."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.inflight.lanes import Lanes
from tocsin.actors.scheduler.transitions.claim import Claim


class Grant:
    """Leave to start so many jobs of one level. What is not used goes back; all of it, if the turn is lost."""

    def __init__(self, lanes: Lanes, jobs: int, level: int = 0) -> None:
        self.unused = jobs
        self.claims: list[Claim] = []
        self._lanes, self._level = lanes, level

    def use(self, claims: Sequence[Claim]) -> None:
        self._lanes.sealed(claims)
        self.claims.extend(claims)
        self.unused -= len(claims)

    def return_unused(self) -> None:
        unused, self.unused = self.unused, 0
        if unused:
            self._lanes.give_back(unused, self._level)

    def lose(self) -> None:
        self._lanes.lost(self.claims)
        self.return_unused()
