"""Which jobs of a claim go first where shard keys have turns."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tocsin.actors.scheduler.model.line_names import queue_in, shard_in
from tocsin.actors.scheduler.state.line import Line, PriorityBucket
from tocsin.actors.scheduler.state.rota import OWED, Rota, ShardLine
from tocsin.actors.scheduler.state.rotas import Holds, Rotas
from tocsin.actors.scheduler.state.shares import Shares


class Head(Protocol):
    """A bucket of which a claim has read the first places."""

    @property
    def bucket(self) -> PriorityBucket: ...


H = TypeVar("H", bound=Head)
Due = tuple[int, str, int, int, H, str]
"""A due job: its place in the start order, which is an order and an id; a number of its bucket; when it is due, its
bucket, and its id."""


class FairChoice(Generic[H]):
    """The jobs that one claim has chosen so far, by shard key. None has started yet, so the state does not know."""

    def __init__(self, rotas: Rotas) -> None:
        self._rotas = rotas
        self._chosen: Counter[Holds] = Counter()
        self._had: Counter[tuple[Shares, str]] = Counter()
        self._steps: dict[Rota, deque[tuple[list[int], int]]] = {}

    def in_turn(self, due: Sequence[Due[H]], room: Mapping[str, int | None], most: int) -> list[Due[H]]:
        """Return what may start, up to `most` jobs of each fair pool and queue. The places that its jobs have in the
        start order are given to those whose turn it is: no other pool comes sooner or later for it."""
        chosen: list[Due[H]] = []
        fair: dict[Shares, dict[str, list[Due[H]]]] = {}
        for one in due:
            line = one[4].bucket.line
            if isinstance(line, ShardLine):
                fair.setdefault(line.rota.shares, {}).setdefault(line.shard, []).append(one)
            else:
                chosen.append(one)
        for shares, keys in fair.items():
            waiting: dict[Rota, list[tuple[int, str]]] = {}
            for jobs in keys.values():
                for one in jobs:
                    waiting.setdefault(_rota_of(one), []).append(one[:2])
            going = self._by_turns(shares, keys, room, most)
            for rota, places in waiting.items():
                chosen += self._placed(rota, sorted(places), [one for one in going if _rota_of(one) is rota])
        return chosen

    def _placed(self, rota: Rota, waiting: list[tuple[int, str]], going: Sequence[Due[H]]) -> list[Due[H]]:
        """Give those who go the places of those who stand first. `waiting`: the places of the jobs that are known."""
        plan = Places(list(rota.owed), rota.shift)
        placed: list[Due[H]] = []
        steps = self._steps[rota] = deque()
        for n, one in enumerate(going):
            placed.append((plan.go(waiting, one[:2]), "", n, *one[3:]))
            steps.append((list(plan.owed), plan.shift))
        return placed

    def may_take(self, line: Line) -> bool:
        """Return whether a job more of this line's key may start, and count it then."""
        if not (shard := _shard_of(line)):
            return True
        if not _has_room(self._rotas, line, shard, self._chosen):
            return False
        _count(self._rotas, line, shard, self._chosen)
        if isinstance(line, ShardLine):
            rota = line.rota
            self._had[rota.shares, shard] += rota.shares.cost(shard)
            if steps := self._steps.get(rota):
                rota.owed, rota.shift = steps.popleft()
        return True

    def _by_turns(
        self, shares: Shares, keys: dict[str, list[Due[H]]], room: Mapping[str, int | None], most: int
    ) -> list[Due[H]]:
        going: list[Due[H]] = []
        pools, held = dict(room), self._chosen.copy()
        waiting: list[tuple[int, int, str, str]] = []
        for shard, jobs in keys.items():
            jobs.sort(key=lambda one: one[:3], reverse=True)
            had = shares.had(shard) + self._had[shares, shard]
            waiting.append((had, *jobs[-1][:2], shard))
        heapq.heapify(waiting)
        while waiting and len(going) < most:
            had, _, _, shard = heapq.heappop(waiting)
            one = keys[shard].pop()
            line = one[4].bucket.line
            left = pools.get(line.pool)
            if left != 0 and _has_room(self._rotas, line, shard, held):
                if left is not None:
                    pools[line.pool] = left - 1
                _count(self._rotas, line, shard, held)
                going.append(one)
                had += shares.cost(shard)
            if keys[shard]:
                heapq.heappush(waiting, (had, *keys[shard][-1][:2], shard))
        return going


@dataclass(slots=True)
class Places:
    """The places of a rota among others: those of its waiting jobs, but for as many as are owed, which are used up."""

    owed: list[int]
    shift: int

    def go(self, waiting: list[tuple[int, str]], job: tuple[int, str]) -> int:
        """Let one of the waiting jobs go, and return the place that it goes in: the first one."""
        first = waiting[0]
        place = first[0] + self.shift
        if took_owed := bool(self.owed) and self.owed[0] <= place:
            place = heapq.heappop(self.owed)
        waiting.remove(job)
        if job == first:  # the next one stands as much later as the rota does not
            if took_owed and waiting:
                self.shift -= waiting[0][0] - first[0]
        else:
            if not took_owed and len(waiting) > 1:
                self.shift += waiting[1][0] - first[0]
            if len(self.owed) < OWED:
                heapq.heappush(self.owed, job[0])
        self.shift = max(self.shift, 0) if self.owed else 0
        return place


def _rota_of(one: Due[H]) -> Rota:
    line = one[4].bucket.line
    assert isinstance(line, ShardLine)
    return line.rota


def _shard_of(line: Line) -> str:
    return line.shard if isinstance(line, ShardLine) else shard_in(line.queue)


def _has_room(rotas: Rotas, line: Line, shard: str, held: Counter[Holds]) -> bool:
    return all(left > held[one] for one, left in rotas.rooms(line.pool, queue_in(line.base), shard))


def _count(rotas: Rotas, line: Line, shard: str, held: Counter[Holds]) -> None:
    for one, _ in rotas.rooms(line.pool, queue_in(line.base), shard):
        held[one] += 1
