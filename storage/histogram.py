"""Counts of observations by size, for whoever watches a host: a list of integers, and nothing else on the way."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence


class Histogram:
    """How many observations were at most as large as each edge (and larger than the edge before), and their sum.

    The last count is of those above all edges.
    """

    __slots__ = ("counts", "edges", "largest", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0.0
        self.largest = 0.0

    def observe(self, *values: float) -> None:
        """Count observations. What is below zero, where a clock was set back, counts as zero."""
        observe(values, self)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def up_to(self, edges: Sequence[float]) -> list[int]:
        """Count the observations at most as large as each of these, which must be edges of its own."""
        found, at, so_far = [], 0, 0
        for edge in edges:
            while at < len(self.edges) and self.edges[at] <= edge:
                so_far += self.counts[at]
                at += 1
            found.append(so_far)
        return found

    def quantile(self, share: float) -> float | None:
        """Estimate the value below which this share of the observations is, by a straight line inside of one bucket;
        None if there are none."""
        everything = self.count
        if not everything:
            return None
        wanted, so_far = share * everything, 0
        for n, count in enumerate(self.counts):
            if count and so_far + count >= wanted:
                low = self.edges[n - 1] if n else 0.0
                high = min(self.edges[n], self.largest) if n < len(self.edges) else self.largest
                return low + max(high - low, 0.0) * (wanted - so_far) / count
            so_far += count
        return self.largest


def observe(values: Sequence[float], *histograms: Histogram) -> None:
    """Count observations in histograms with the same edges: each is placed once."""
    if not values:
        return
    edges = histograms[0].edges
    places = [bisect_left(edges, value) if value > 0 else 0 for value in values]
    total, largest = sum([value for value in values if value > 0]), max(values)
    for one in histograms:
        counts = one.counts
        for place in places:
            counts[place] += 1
        one.total += total
        if largest > one.largest:
            one.largest = largest


def together(each: Iterable[Histogram | None]) -> Histogram | None:
    """Add up histograms with the same edges; None if there are none."""
    found = [one for one in each if one is not None]
    if not found:
        return None
    total = Histogram(found[0].edges)
    for one in found:
        total.counts = [a + b for a, b in zip(total.counts, one.counts, strict=True)]
        total.total += one.total
        total.largest = max(total.largest, one.largest)
    return total
