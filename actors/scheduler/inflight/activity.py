"""Count what the schedulers of one host do, while they do it: per scheduler the last hour by minutes, and for the whole
host since it started. In memory only; nothing is written for it, and nothing wakes.

On the way of a job there are additions to integers and nothing else. A minute that has passed is kept as a few numbers,
and only of the schedulers that were active last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Final

from tocsin.actors.scheduler.model.activity import MINUTE_MS, MOST_MINUTES, Activity, ActivityMinute
from tocsin.actors.scheduler.model.counters import FLOWS
from tocsin.actors.scheduler.model.recent import Recent
from tocsin.actors.scheduler.state.tally import TurnDone
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.job import LOST
from tocsin.storage.histogram import Histogram

MOST_INSTANCES: Final = 500
"""So many schedulers are followed, those that were active last: at most some 10 MB."""
_STEPS: Final = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)
EDGES_MS: Final = tuple(
    sorted({step * 10**power for power in range(7) for step in _STEPS} | {30e3, 60e3, 300e3, 900e3, 3600e3, 14400e3})
)
"""Fine enough that an estimate between two of them is off by at most a quarter or so."""
FAILED: Final = frozenset({"failed", "dead", "blocked", "unknown", "lost", "lapsed"})
"""Outcomes of attempts that the job does not get back for nothing."""
RETURNED: Final = frozenset({"declined", "busy", "unreachable", "returned", "unsent"})
OUTCOMES: Final = (*sorted(FAILED | RETURNED), "done", "cancelled")
CALLBACK: Final = "callback"
WORKER: Final = "worker"
KINDS: Final = (CALLBACK, WORKER)
LATELY_S: Final = 600.0
"""For how long a loss counts in health."""
_ACCEPTED, _DONE, _DIED = (FLOWS.index(name) for name in ("accepted", "done", "died"))


class Totals:
    """The counts of a whole host since it started, without instances that have a test clock."""

    def __init__(self) -> None:
        self.grown = [0] * len(FLOWS)
        """How much each of FLOWS has grown."""
        self.attempts: Counter[str] = Counter()
        self.expired: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.started = dict.fromkeys(KINDS, 0)
        self.late = Histogram(EDGES_MS)
        self.took = {kind: Histogram(EDGES_MS) for kind in KINDS}
        self.removed = 0
        """Jobs that went with their instances."""

    def add(self, done: TurnDone) -> None:
        """Count what a turn did."""
        self.grown = [old + new for old, new in zip(self.grown, done.grown, strict=True)]
        for total, more in ((self.attempts, done.attempts), (self.expired, done.expired)):
            for name, count in more.items():
                total[name] += count
        for reason in done.reasons:
            self.reasons[reason] += 1


class _Followed:
    """One scheduler: its present minute, those of the hour before that were not empty, and how many jobs wait. One
    object, since an idle scheduler has one, too."""

    __slots__ = (
        "accepted", "backlog", "backlog_before", "died", "done", "failed", "late", "number", "past", "returned",
        "since", "started", "took",
    )  # fmt: skip

    def __init__(self, number: int, since: int) -> None:
        self.since = since
        self.past: list[ActivityMinute] | None = None
        self.backlog: int | None = None
        self.backlog_before: int | None = None
        self._begin(number)

    def _begin(self, number: int) -> None:
        self.number = number
        self.accepted = self.started = self.done = self.failed = self.returned = self.died = 0
        self.late: Histogram | None = None
        self.took: Histogram | None = None

    def close(self, number: int) -> None:
        """Keep what the last minute came to, and begin this one."""
        past = self.past = self.past or []
        past.append(self.minute())
        del past[:-MOST_MINUTES]
        self._begin(number)

    def minute(self) -> ActivityMinute:
        """Return what the present minute has come to."""
        late, took = self.late, self.took
        return ActivityMinute(
            self.number * MINUTE_MS, self.accepted, self.started, self.done, self.failed, self.returned, self.died,
            self.backlog,
            _quantile(late, 0.5), _quantile(late, 0.95), None if late is None else round(late.largest),
            _quantile(took, 0.5), _quantile(took, 0.95),
        )  # fmt: skip


class Activities:
    """The activity of all schedulers of one host. `test_clocks`: what instances of these names do is shown to
    those who ask for it, and left out of what is said of the host."""

    def __init__(self, now_ms: Callable[[], int], monotonic: Callable[[], float], test_clocks: Container[str]) -> None:
        self._now_ms, self._monotonic, self._test_clocks = now_ms, monotonic, test_clocks
        self.touched: set[str] | None = None
        """Names of schedulers whose rows have changed since somebody looked; None until somebody wants to know."""
        self.begin()

    def begin(self) -> None:
        """Forget everything: the host starts."""
        self.since = self._now_ms()
        self._followed: dict[str, _Followed] = {}  # those that were active last are the last ones
        self._forgot_any = False
        self._number, self._ends = self.since // MINUTE_MS, 0.0
        self.totals = Totals()
        self.touched = None
        self.losses = Recent(self._monotonic, LATELY_S)
        """Of attempts whose host or worker did not come back."""

    # ---- For those who do it ---------------------------------------------------------------------

    def started(self, name: str, claims: Sequence[Claim], claimed: float, kind: str) -> None:
        """Count attempts, claimed at a monotonic instant, that start now. How late each is, is by its own instance's
        clock, and the real time since."""
        at, minute = self._monotonic(), self._present(name)
        passed_ms = (at - claimed) * 1000
        if minute.late is None:
            minute.late = Histogram(EDGES_MS)
        late_ms = [claim.lease.started - claim.lease.at.next_at + passed_ms for claim in claims]
        minute.started += len(claims)
        minute.late.observe(*late_ms)
        if name not in self._test_clocks:
            self.totals.started[kind] += len(claims)
            self.totals.late.observe(*late_ms)

    def took(self, name: str, took_ms: Sequence[float], kind: str) -> None:
        """Count how long callbacks took until they were answered, or attempts of workers until they were settled."""
        minute = self._present(name)
        if minute.took is None:
            minute.took = Histogram(EDGES_MS)
        minute.took.observe(*took_ms)
        if name not in self._test_clocks:
            self.totals.took[kind].observe(*took_ms)

    def turned(self, name: str, done: TurnDone) -> None:
        """Count what a turn did, which is durable."""
        if done.expired:
            self.losses.note(sum(done.expired.get(kind, 0) for kind in LOST))
        minute, grown = self._present(name), done.grown
        minute.accepted += grown[_ACCEPTED]
        minute.done += grown[_DONE]
        minute.died += grown[_DIED]
        if minute.backlog is None:
            minute.backlog_before = done.waited
        minute.backlog = done.waiting
        for outcome, count in done.attempts.items():
            if outcome in FAILED:
                minute.failed += count
            elif outcome in RETURNED:
                minute.returned += count
        if done.took:
            self.took(name, done.took, WORKER)
        if name not in self._test_clocks:
            self.totals.add(done)

    def erased(self, name: str, jobs: int) -> None:
        """Forget a scheduler that is removed, so many of whose jobs are gone now."""
        self._followed.pop(name, None)
        if self.touched is not None:
            self.touched.add(name)
        if name not in self._test_clocks:
            self.totals.removed += jobs

    # ---- For those who ask -----------------------------------------------------------------------

    def of(self, name: str, minutes: int, waiting: int) -> Activity:
        """Return the last minutes of a scheduler, in which `waiting` jobs wait as far as the store says."""
        self._look_at_clock(self._monotonic())
        now, one = self._now_ms(), self._followed.get(name)
        since = one.since if one is not None else now if self._forgot_any else self.since
        known = {}
        if one is not None:
            known = {minute.at: minute for minute in (*(one.past or ()), one.minute())}
        backlog = waiting if one is None or one.backlog is None else one.backlog_before
        first = max(since // MINUTE_MS, self._number - minutes + 1)
        for minute in known.values():
            if minute.at < first * MINUTE_MS and minute.backlog is not None:
                backlog = minute.backlog
        found: list[ActivityMinute] = []
        for number in range(first, self._number + 1):
            at = number * MINUTE_MS
            minute = known.get(at) or ActivityMinute(at, backlog=backlog)
            backlog = backlog if minute.backlog is None else minute.backlog
            found.append(minute)
        return Activity(since, now, found)

    # ---- Minutes ---------------------------------------------------------------------------------

    def _present(self, name: str) -> _Followed:
        """Return a scheduler, in its present minute."""
        at = self._monotonic()
        if at >= self._ends:
            self._look_at_clock(at)
        one = self._followed.get(name)
        if one is None:
            one = self._followed[name] = _Followed(self._number, self._now_ms() if self._forgot_any else self.since)
            if len(self._followed) > MOST_INSTANCES:
                del self._followed[next(iter(self._followed))]
                self._forgot_any = True
        elif one.number != self._number:
            one.close(self._number)
            self._followed[name] = self._followed.pop(name)
        return one

    def _look_at_clock(self, at: float) -> None:
        """Begin another minute if it is time to. Where the clock was set back, the hour is counted anew: it would hold
        minutes that are still to come."""
        if at < self._ends:
            return
        now = self._now_ms()
        number = now // MINUTE_MS
        if number < self._number:
            self._followed.clear()
            self.since = now
        self._number = number
        self._ends = at + (MINUTE_MS - now % MINUTE_MS) / 1000


def _quantile(found: Histogram | None, share: float) -> int | None:
    value = None if found is None else found.quantile(share)
    return None if value is None else round(value)
