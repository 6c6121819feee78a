"""What is wrong between the rows of a scheduler: each kind of fault, what it means, and how it is mended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

KEPT: Final = 1_000
"""Of one kind so many faults are kept in full; all are counted."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`mend`: what a repair does. Where `for_people`, it does nothing, and `mend` says what they can do."""

    means: str
    mend: str
    for_people: bool = False


KINDS: Final[dict[str, Kind]] = {
    "UNREADABLE": Kind(
        "the row cannot be read; the scheduler works without it",
        "moved to bad/<key>, where people can look at it; what followed from it is rebuilt",
    ),
    "UNKNOWN_ROW": Kind(
        "no row of that kind is known here: a newer tocsin, or another program, wrote it",
        "left alone; use the tocsin that wrote it",
        for_people=True,
    ),
    "LAYOUT": Kind(
        "the version of the rows is not known here, so they were not judged",
        "use the tocsin that wrote them, or restore a backup",
        for_people=True,
    ),
    "NO_PLACE": Kind(
        "the job stands nowhere, so it would never start",
        "put back into its line; one that parked/ still names stays dead",
    ),
    "TWO_PLACES": Kind(
        "the job might start twice, or start although it was given up",
        "its lease counts before its line, its line before its dead letter; the rest is moved to bad/",
    ),
    "WRONG_PLACE": Kind(
        "the job would start too early, too late or past its pool",
        "moved to where its own word says, or that word to where it stands if it is lost",
    ),
    "NO_JOB": Kind(
        "the row belongs to a job that is not there",
        "moved to bad/<key>; a lease holds its slot until it ends",
    ),
    "LEFTOVER": Kind("the job would later be read as standing there", "moved to bad/<key>"),
    "ARGS_EXTRA": Kind("the piece of args belongs to no job", "moved to bad/<key>"),
    "ARGS_LOST": Kind(
        "the job's args are not whole, and its receiver would get what cannot be read",
        "cancel the job and schedule it again, put the schedule again, or restore a backup",
        for_people=True,
    ),
    "LOST": Kind(
        "it was accepted, cannot be read any more, and will not run",
        "look at what is left of it under bad/, schedule it anew, and delete that with `tocsin check --discard`",
        for_people=True,
    ),
    "PATHS": Kind("`/pending` would answer wrongly for this function path", "counted anew from the jobs"),
    "LABELS": Kind("the job would be missing from lists by this label", "written anew from the jobs"),
    "LINES": Kind("jobs of this line would be missed or looked for in vain", "counted anew from the line"),
    "PARKED": Kind("dead jobs would be missing from lists and bulk retries", "written anew from the dead letters"),
    "COUNTER": Kind("/status says a wrong number", "counted anew"),
    "TIMER_MISSING": Kind("what is to happen at that instant would not", "set again"),
    "TIMER_IDLE": Kind("the timer serves nothing", "removed"),
    "DAY": Kind("the row stands under a day that is not its own, and may be dropped too early", "moved to its day"),
    "SCHEDULE": Kind(
        "the schedule may not ring, or hold back what it need not",
        "its counts and timers anew from its rows; one without a cursor goes on behind its newest slot",
    ),
    "WAKE": Kind("after a restart nobody would look at this scheduler in time", "set to now"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule. `about` is the id, name or key it is about."""

    code: str
    about: str
    message: str

    @property
    def kind(self) -> Kind:
        return KINDS[self.code]


@dataclass(slots=True)
class Findings:
    """What was found in one scheduler."""

    faults: list[Fault] = field(default_factory=list)
    """At most KEPT of one kind."""
    counts: Counter[str] = field(default_factory=Counter)
    aside: list[str] = field(default_factory=list)
    """Keys under `bad/` (at most KEPT): set aside earlier, kept for people."""
    aside_count: int = 0
    jobs: int = 0
    rows: int = 0
    removing: bool = False
    """Everything of it is being removed: half of its rows are gone, and nothing is to be made of the rest."""

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
        """How many of the faults no repair can mend."""
        return sum(count for code, count in self.counts.items() if KINDS[code].for_people)


def shown(key: bytes) -> str:
    """A key as text."""
    return key.decode("utf-8", "backslashreplace")
