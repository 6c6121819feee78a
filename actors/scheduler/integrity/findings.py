"""The kinds of faults in the rows of a scheduler: what each means, and how it is repaired."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

KEPT: Final = 1_000
"""Most faults of one kind that are kept in full; all are counted."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `repair` describes the repair or, if `for_people`, what an operator can do instead."""

    means: str
    repair: str
    for_people: bool = False


KINDS: Final[dict[str, Kind]] = {
    "UNREADABLE": Kind(
        "the row cannot be read; the scheduler works without it",
        "moved to bad/<key> for inspection; rows derived from it are rebuilt",
    ),
    "UNKNOWN_ROW": Kind(
        "this version knows no row of that kind: a newer tocsin or another program wrote it",
        "left unchanged; use the tocsin that wrote it",
        for_people=True,
    ),
    "LAYOUT": Kind(
        "this version does not know the layout of the rows, so they were not checked",
        "use the tocsin that wrote them, or restore a backup",
        for_people=True,
    ),
    "NO_PLACE": Kind(
        "the job has no place, so it would never start",
        "put back into its line; a job that parked/ still names stays dead",
    ),
    "TWO_PLACES": Kind(
        "the job might start twice, or start although it is dead",
        "its lease takes precedence over its line, its line over its dead row; the others are moved to bad/",
    ),
    "WRONG_PLACE": Kind(
        "the job would start too early, too late or past its pool",
        "moved to where the job's rows say, or those rows corrected to its place if they are lost",
    ),
    "NO_JOB": Kind(
        "the row belongs to a job that does not exist",
        "moved to bad/<key>; a lease holds its slot until it ends",
    ),
    "LEFTOVER": Kind("the job would later be read as waiting there", "moved to bad/<key>"),
    "ARGS_EXTRA": Kind("the piece of args belongs to no job", "moved to bad/<key>"),
    "ARGS_LOST": Kind(
        "the job's args are incomplete, and its receiver could not read them",
        "cancel the job and schedule it again, put the schedule again, or restore a backup",
        for_people=True,
    ),
    "LOST": Kind(
        "it was accepted, cannot be read any more, and will not run",
        "inspect its rows under bad/, schedule it again, and delete them with `tocsin check --discard`",
        for_people=True,
    ),
    "PATHS": Kind("`/pending` would give a wrong count for this function path", "counted anew from the jobs"),
    "LABELS": Kind("the job would be missing from lists by this label", "written anew from the jobs"),
    "LINES": Kind("jobs of this line would be overlooked, or searched for in vain", "counted anew from the line"),
    "PARKED": Kind("dead jobs would be missing from lists and bulk retries", "written anew from the dead jobs"),
    "COUNTER": Kind("/status would show a wrong number", "counted anew"),
    "TIMER_MISSING": Kind("what is due at that instant would not happen", "set again"),
    "TIMER_IDLE": Kind("the timer serves no row", "removed"),
    "DAY": Kind("the row is stored under the wrong day, and may be dropped too early", "moved to its day"),
    "SCHEDULE": Kind(
        "the schedule may not fire, or may hold jobs back needlessly",
        "its counts and timers are written anew from its rows; without a cursor it continues after its newest slot",
    ),
    "WAKE": Kind("after a restart this scheduler would not be processed in time", "set to now"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken invariant. `about` is the id, name or key concerned."""

    code: str
    about: str
    message: str

    @property
    def kind(self) -> Kind:
        return KINDS[self.code]


@dataclass(slots=True)
class Findings:
    """The findings of one scheduler."""

    faults: list[Fault] = field(default_factory=list)
    """The faults, at most KEPT of one kind."""
    counts: Counter[str] = field(default_factory=Counter)
    aside: list[str] = field(default_factory=list)
    """Keys under `bad/` (at most KEPT), set aside earlier and kept for operators."""
    aside_count: int = 0
    jobs: int = 0
    rows: int = 0
    removing: bool = False
    """Set while the scheduler is being removed: some rows are gone already, so the rest is not judged."""

    def add(self, code: str, about: str, message: str) -> None:
        assert code in KINDS, code
        self.counts[code] += 1
        if self.counts[code] <= KEPT:
            self.faults.append(Fault(code, about, message))

    def add_aside(self, key: bytes) -> None:
        self.aside_count += 1
        if self.aside_count <= KEPT:
            self.aside.append(shown(key))

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def for_people(self) -> int:
        """Return the number of faults that no repair can fix."""
        return sum(count for code, count in self.counts.items() if KINDS[code].for_people)


def shown(key: bytes) -> str:
    """Return a key as text."""
    return key.decode("utf-8", "backslashreplace")
