"""Count what the schedulers of one host do: per scheduler the last hour by minutes, and for the whole host since it
started. In memory only; nothing is written for it, and nothing wakes.

On the way of a job, what happens is appended to a list, and nothing else. It is counted when somebody asks, or where
there is much. A minute that has passed is kept as a few numbers, and only of the schedulers that were active last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Final

import msgspec

from tocsin.actors.scheduler.model.activity import MINUTE_MS, MOST_MINUTES, Activity, ActivityMinute
from tocsin.actors.scheduler.model.counters import FLOWS
from tocsin.actors.scheduler.model.recent import Recent
from tocsin.actors.scheduler.state.tally import Tally
from tocsin.actors.scheduler.transitions.job import LOST
from tocsin.storage.histogram import Histogram, observe

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
MOST_NOTED: Final = 256
"""So many notes are counted together, or fewer when somebody asks."""
_ACCEPTED, _DONE, _DIED = (FLOWS.index(name) for name in ("accepted", "done", "died"))
_WAITING: Final = len(FLOWS)


class Attempts(msgspec.Struct, frozen=True):
    """Attempts that have started, and how late they were when they were claimed, by their own instance's clock, at a
    monotonic instant; or that have ended, and how long they took (ms)."""

    kind: str
    late: Sequence[float] = ()
    claimed: float = 0.0
    took: Sequence[float] = ()


Noted = tuple[str, float, Attempts | Tally]
"""The scheduler, the monotonic instant, and what it did."""


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

    def add(self, done: Tally) -> None:
        """Count what a turn did."""
        self.grown = [
            total + after - before
            for total, after, before in zip(self.grown, done.after, done.before, strict=False)  # those have more
        ]
        self.attempts.update(done.attempts)
        self.expired.update(done.expired)
        self.reasons.update(done.reasons)


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
        self.noted: list[Noted] = []
        """Durable deeds of schedulers, until they are counted; `note` adds to them."""
        self.note = self.noted.append
        self.begin()

    def begin(self) -> None:
        """Forget everything: the host starts."""
        self.since = self._now_ms()
        self.noted.clear()
        self._followed: dict[str, _Followed] = {}  # those that were active last are the last ones
        self._forgot_any = False
        self._number = self.since // MINUTE_MS
        self._totals = Totals()
        self.touched = None
        self._losses = Recent(self._monotonic, LATELY_S)

    # ---- For those who do it ---------------------------------------------------------------------

    def erased(self, name: str, jobs: int) -> None:
        """Forget a scheduler that is removed, so many of whose jobs are gone now."""
        self.count()
        self._followed.pop(name, None)
        if self.touched is not None:
            self.touched.add(name)
        if name not in self._test_clocks:
            self._totals.removed += jobs

    # ---- For those who ask -----------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        """The counts of the whole host."""
        self.count()
        return self._totals

    @property
    def losses_lately(self) -> int:
        """How many attempts were lost of late: their hosts or workers did not come back."""
        self.count()
        return self._losses.total

    def of(self, name: str, minutes: int, waiting: int) -> Activity:
        """Return the last minutes of a scheduler, in which `waiting` jobs wait as far as the store says."""
        self.count()
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

    # ---- Counting --------------------------------------------------------------------------------

    def count(self) -> None:
        """Count what was noted. Minutes are those of the clock as it is now: where it was set back, the hour is counted
        anew, since it would hold minutes that are still to come."""
        now, at_now = self._now_ms(), self._monotonic()
        number = now // MINUTE_MS
        if number < self._number:
            self._followed.clear()
            self.since = now
        self._number = number
        for name, at, what in self.noted:
            minute, counts = self._minute(name, now - int((at_now - at) * 1000)), name not in self._test_clocks
            if isinstance(what, Attempts):
                self._count_attempts(minute, what, at, counts)
                continue
            _count_turn(minute, what)
            if what.took:
                self._count_attempts(minute, Attempts(WORKER, took=what.took), at, counts)
            if what.expired:
                self._losses.note(sum(kind in LOST for kind in what.expired), at)
            if counts:
                self._totals.add(what)
        self.noted.clear()

    def _count_attempts(self, minute: _Followed, what: Attempts, at: float, counts: bool) -> None:
        if what.late:
            minute.started += len(what.late)
            minute.late = minute.late or Histogram(EDGES_MS)
            passed_ms = (at - what.claimed) * 1000
            late = [claimed_late + passed_ms for claimed_late in what.late]
            if counts:
                self._totals.started[what.kind] += len(late)
                observe(late, minute.late, self._totals.late)
            else:
                observe(late, minute.late)
        if what.took:
            minute.took = minute.took or Histogram(EDGES_MS)
            if counts:
                observe(what.took, minute.took, self._totals.took[what.kind])
            else:
                observe(what.took, minute.took)

    def _minute(self, name: str, at: int) -> _Followed:
        """Return a scheduler in the minute of an instant (epoch ms): its present one, or a later one."""
        number = at // MINUTE_MS
        one = self._followed.get(name)
        if one is None:
            one = self._followed[name] = _Followed(number, at if self._forgot_any else self.since)
            if len(self._followed) > MOST_INSTANCES:
                del self._followed[next(iter(self._followed))]
                self._forgot_any = True
        elif number > one.number:
            one.close(number)
            self._followed[name] = self._followed.pop(name)
        return one


def _count_turn(minute: _Followed, done: Tally) -> None:
    before, after = done.before, done.after
    minute.accepted += after[_ACCEPTED] - before[_ACCEPTED]
    minute.done += after[_DONE] - before[_DONE]
    minute.died += after[_DIED] - before[_DIED]
    if minute.backlog is None:
        minute.backlog_before = before[_WAITING]
    minute.backlog = after[_WAITING]
    for outcome in done.attempts:
        minute.failed += outcome in FAILED
        minute.returned += outcome in RETURNED


def _quantile(found: Histogram | None, share: float) -> int | None:
    value = None if found is None else found.quantile(share)
    return None if value is None else round(value)
