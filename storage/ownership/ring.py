"""Which host is to have which slot: everyone computes the same from the same hosts, and little moves when one comes or
goes (rendezvous hashing with weights)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import shake_256
from math import log
from struct import unpack
from typing import Final

from tocsin.storage.ownership.engine import SLOTS

HOSTS_REMEMBERED: Final = 256
RINGS_REMEMBERED: Final = 8
SPAN: Final = 2**32


class Ring:
    """The winner of each slot among these hosts, each with its weight. Hosts of weight 0 win nothing while there are
    others; among themselves they are equal."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        able = {host: weights[host] for host in sorted(weights) if weights[host] > 0}
        self.weights = able or dict.fromkeys(sorted(weights), 1)
        self.winners = _winners(tuple(self.weights.items()))

    def won_by(self, host: str) -> frozenset[int]:
        """Return the slots that are to be this host's."""
        if host not in self.weights:
            return frozenset()
        return frozenset(slot for slot, winner in enumerate(self.winners) if winner == host)


@lru_cache(RINGS_REMEMBERED)
def _winners(hosts: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Return the host with the least cost of each slot; nothing if there is no host."""
    if not hosts:
        return ()
    best, winners = list(_costs(*hosts[0])), [hosts[0][0]] * SLOTS
    for host, weight in hosts[1:]:
        for slot, cost in enumerate(_costs(host, weight)):
            if cost < best[slot]:  # equal costs: the host that sorts first, everywhere
                best[slot], winners[slot] = cost, host
    return tuple(winners)


@lru_cache(HOSTS_REMEMBERED)
def _costs(host: str, weight: int) -> tuple[float, ...]:
    """Return what each slot costs this host: an exponential variable with its weight as the rate, so that it wins in
    proportion to its weight."""
    words: Iterable[int] = unpack(f">{SLOTS}I", shake_256(host.encode()).digest(4 * SLOTS))
    return tuple(-log((word + 1) / (SPAN + 1)) / weight for word in words)
