"""What was asked of a cluster and what its receiver saw, held against the promises."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

LEASE_MARGIN_S: Final = 15.0
"""A lease lasts so much longer than the callback's deadline."""
NOTED_S: Final = 0.5
"""Shorter gaps are the ordinary lateness of a busy machine, and counted with no disruption."""


SLACK_S: Final = 2.0
"""Between a claim, with which the lease begins, and the callback, which names its deadline."""
OVERDUE_S: Final = 0.1
"""A job that is as late when something begins to go wrong was late before."""
EARLY_S: Final = 0.1
"""Clocks of hosts are corrected by the store's to within so much."""


@dataclass
class Request:
    """One job that was asked for, until a host had answered 2xx."""

    n: int
    actor: str
    delay_s: float
    tries: list[tuple[float, int | None]] = field(default_factory=list)
    """When each was sent, and what was answered; None: nothing."""

    @property
    def status(self) -> int | None:
        """The answer that ended it; None: given up."""
        last = self.tries[-1][1] if self.tries else None
        return last if last is not None and 200 <= last < 300 else None

    @property
    def due(self) -> float:
        return self.tries[-1][0] + self.delay_s

    @property
    def earliest(self) -> float:
        """No host may send it before that: an earlier try may have been accepted without an answer."""
        return self.tries[0][0] + self.delay_s


@dataclass(frozen=True)
class Delivery:
    """One callback as it came."""

    at: float
    job: str
    n: int
    actor: str
    attempt: int
    epoch: int
    deadline: float
    source: str
    """The address that it came from."""

    @property
    def lease_end(self) -> float:
        """The earliest instant at which the lease may have ended."""
        return self.deadline + LEASE_MARGIN_S - SLACK_S


@dataclass(frozen=True)
class Disruption:
    at: float
    kind: str
    host: int
    ended: float


def deliveries_in(log: Path) -> tuple[list[Delivery], int]:
    """Those of a receiver's log, in order, and the number of calls that were no callbacks of ours."""
    entries = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [Delivery(**entry) for entry in entries if "false" not in entry], sum("false" in entry for entry in entries)


@dataclass
class Verdict:
    """The table of a run, and what of the promises was broken."""

    requests: Sequence[Request]
    deliveries: Sequence[Delivery]
    disruptions: Sequence[Disruption]
    bounds: dict[str, float]
    """The longest gap that each kind of disruption may leave, s."""
    false: int = 0
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_n: defaultdict[int, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            self.by_n[delivery.n].append(delivery)
        self.accepted = [request for request in self.requests if request.status is not None]

    def judge(self) -> Verdict:
        self._need(not self.false, f"{self.false} callbacks did not verify")
        given_up = [request.n for request in self.requests if request.status is None]
        self._need(not given_up, f"{len(given_up)} requests found no host that accepted them: {given_up[:5]}")
        lost = [request.n for request in self.accepted if request.n not in self.by_n]
        self._need(not lost, f"{len(lost)} accepted requests were lost: {lost[:5]}")
        twice = [n for n, came in self.by_n.items() if len({delivery.job for delivery in came}) > 1]
        self._need(not twice, f"{len(twice)} requests became several jobs: {twice[:5]}")
        inside = [before.n for before, after in self._repeated() if after.at < before.lease_end]
        self._need(not inside, f"{len(inside)} jobs were delivered twice inside one lease: {inside[:5]}")
        early = [request.n for request, first, _ in self._late() if first.at < request.earliest - EARLY_S]
        self._need(not early, f"{len(early)} jobs came before they were due: {early[:5]}")
        for kind, bound in self.bounds.items():
            longest = max((gap for gaps in self.gaps(kind).values() for gap in gaps), default=0.0)
            self._need(longest < bound, f"{kind}: a gap of {longest:.2f} s, over {bound:g} s")
        latest = max(self.orphaned(), default=0.0)
        bound = LEASE_MARGIN_S + self._timeout_s() + max(self.bounds.values(), default=0.0)
        self._need(latest < bound, f"a job whose owner died came {latest:.1f} s late, over {bound:g} s")
        return self

    def _need(self, kept: bool, broken: str) -> None:
        if not kept:
            self.broken.append(broken)

    def _timeout_s(self) -> float:
        return max((delivery.deadline - delivery.at for delivery in self.deliveries), default=0.0)

    def _repeated(self) -> Iterator[tuple[Delivery, Delivery]]:
        for came in self.by_n.values():
            yield from pairwise(sorted(came, key=lambda delivery: delivery.at))

    # ---- Gaps ------------------------------------------------------------------------------------

    def _late(self) -> Iterator[tuple[Request, Delivery, float]]:
        """Each accepted request with its first delivery, and how late that was."""
        for request in self.accepted:
            if came := self.by_n.get(request.n):
                first = min(came, key=lambda delivery: delivery.at)
                yield request, first, first.at - request.due

    def orphaned(self) -> list[float]:
        """How late those came whose first attempt was leased by an owner that died before the callback left."""
        return [late for _, first, late in self._late() if first.attempt > 1]

    def cause(self, request: Request, first: Delivery) -> Disruption | None:
        """The last disruption before the callback came, unless the job was overdue when that began."""
        before = [one for one in self.disruptions if one.at <= first.at]
        overdue = [one for one in before if one.at <= request.due + OVERDUE_S]
        return overdue[-1] if overdue else None

    def gaps(self, kind: str) -> dict[Disruption, list[float]]:
        """By disruption, the longest time that each actor's due work waited for an owner."""
        found: dict[Disruption, dict[str, float]] = {one: {} for one in self.disruptions if one.kind == kind}
        for request, first, late in self._late():
            cause = self.cause(request, first)
            if cause in found and first.attempt == 1:
                gaps = found[cause]
                gaps[request.actor] = max(gaps.get(request.actor, 0.0), late)
        return {one: list(gaps.values()) for one, gaps in found.items()}

    # ---- For people ------------------------------------------------------------------------------

    def table(self) -> str:
        lines = [f"{'disruption':<12}{'times':>6}{'actors with a gap':>19}{'median':>9}{'longest':>9}{'bound':>8}"]
        for kind, bound in self.bounds.items():
            found = self.gaps(kind)
            noted = sorted(gap for gaps in found.values() for gap in gaps if gap >= NOTED_S)
            longest = max((gap for gaps in found.values() for gap in gaps), default=0.0)
            middle = f"{median(noted):.2f} s" if noted else "-"
            lines.append(f"{kind:<12}{len(found):>6}{len(noted):>19}{middle:>9}{longest:>7.2f} s{bound:>6g} s")
        statuses = Counter(request.status for request in self.requests)
        refused = Counter(status for request in self.requests for _, status in request.tries[:-1])
        ordinary = sorted(late for *_, late in self._late())
        repeated = sum(1 for _ in self._repeated())
        orphaned = self.orphaned()
        lines += [
            "",
            f"requests: {len(self.requests)}, accepted {dict(sorted(statuses.items(), key=str))}, "
            f"tried again after {dict(sorted(refused.items(), key=str))} (None: no answer)",
            f"delivered: {len(self.deliveries)}, of these again after their lease: {repeated}; "
            f"lateness p50 {_part(ordinary, 0.5):.3f} s, p99 {_part(ordinary, 0.99):.3f} s",
            f"leased by an owner that died before it sent them: {len(orphaned)}, "
            f"the latest {max(orphaned, default=0.0):.1f} s late",
            *(f"BROKEN: {one}" for one in self.broken),
            *self._latest(),
        ]
        return "\n".join(lines)

    def _latest(self) -> Iterator[str]:
        """Where something was broken, the jobs that came latest under each kind of disruption."""
        late = sorted(self._late(), key=lambda one: -one[2]) if self.broken else []
        for kind in self.bounds:
            causes = [one for one in self.disruptions if one.kind == kind]
            for request, first, seconds in [one for one in late if self.cause(one[0], one[1]) in causes][:5]:
                cause = self.cause(request, first)
                assert cause is not None
                tries = ", ".join(f"{at - cause.at:+.2f} s: {status}" for at, status in request.tries)
                yield (
                    f"  {kind} of host {cause.host}: {seconds:.2f} s late: job {request.n} of {request.actor}, attempt "
                    f"{first.attempt} in epoch {first.epoch}, asked for at {tries}, delay {request.delay_s:g} s, came "
                    f"{first.at - cause.at:+.2f} s"
                )


def _part(values: Sequence[float], part: float) -> float:
    return values[min(int(len(values) * part), len(values) - 1)] if values else 0.0
