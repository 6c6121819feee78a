"""Permits for callbacks that a turn took, and the claims they were used for."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.claim import Claim
from tocsin.actors.scheduler.lanes import Lanes


class Grant:
    """What is not used goes back; all of it, if the turn is lost."""

    def __init__(self, lanes: Lanes, permits: int, *, alone: bool = False) -> None:
        self.unused = permits
        self._alone = alone
        self.claims: list[Claim] = []
        self._lanes = lanes

    def use(self, claims: Sequence[Claim]) -> None:
        self._lanes.sealed(claims)
        self.claims.extend(claims)
        self.unused -= sum(claim.permits for claim in claims)

    def return_unused(self) -> None:
        unused, self.unused = self.unused, 0
        if unused and self._alone:
            self._lanes.give_back_alone(unused)
        elif unused:
            self._lanes.give_back(unused)

    def lose(self) -> None:
        self._lanes.lost(self.claims)
        self.return_unused()
