"""How much each shard key of a fair pool or queue has had, so that the one with the least goes next.

Each start adds one to what a key has had; less, by its weight. A key that comes, or comes back, begins at what those
who wait have had by now: it is not behind others for what it had long ago, nor ahead of them for having had nothing.
This is in memory only. After a restart all keys begin alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tocsin.actors.scheduler.model.line_names import shard_of

ONE: Final = 1 << 20
"""A start of a key of weight 1."""
NO_WEIGHTS: Final[Mapping[str, int]] = {}
KEPT: Final = 1_000
"""So many keys more than wait are remembered before those are forgotten that say nothing any more."""


class Shares:
    """The rules of one fair pool or queue, and what its keys have had since jobs began to wait there."""

    __slots__ = ("_had", "_keep", "_level", "_weight", "per_key", "weights")

    def __init__(self, weights: Mapping[str, int] | None = None, per_key: int | None = None) -> None:
        """`weights` by shard key; a key without one has the weight 1. `per_key`: the cap of each key."""
        self.weights = {shard_of(key): weight for key, weight in weights.items()} if weights else NO_WEIGHTS
        self.per_key = per_key
        self._had: dict[str, int] = {}
        self._level = 0  # what those who wait have had, about: where one who comes begins
        self._weight = 0  # of the keys that wait
        self._keep = KEPT

    def had(self, shard: str) -> int:
        """Return how much the key of a line that stands in a rota has had."""
        return self._had.get(shard, 0)

    def cost(self, shard: str) -> int:
        """Return what a start of the key adds."""
        return ONE // self.weights.get(shard, 1)

    def came(self, shard: str) -> None:
        """Note that jobs of a key wait in one line more."""
        self._weight += self.weights.get(shard, 1)

    def went(self, shard: str) -> None:
        """Note that a line of a key is empty. When all are, everybody begins anew."""
        self._weight -= self.weights.get(shard, 1)
        if not self._weight:
            self._had.clear()
            self._level, self._keep = 0, KEPT

    def begin(self, shard: str, *, was_taken: bool) -> int:
        """Let a key that may start take part, and return how much it has had. One that was only taken out for a claim
        is not set back for that."""
        level = self._level - (self.cost(shard) if was_taken else 0)
        had = self._had[shard] = max(self._had.get(shard, 0), level)
        return had

    def started(self, shard: str) -> None:
        """Count a start. The level rises with every start, so that keys that come, however many, are soon behind those
        that wait."""
        had = self._had.get(shard, 0)
        self._level = max(self._level + ONE // max(self._weight, 1), had)
        self._had[shard] = had + self.cost(shard)

    def forget(self, waiting: int) -> None:
        """Forget keys that are where they would begin, if there are far more than wait in so many lines."""
        if len(self._had) > self._keep + waiting:
            level = self._level - ONE
            self._had = {shard: had for shard, had in self._had.items() if had > level}
            self._keep = max(KEPT, 2 * (len(self._had) - waiting))
