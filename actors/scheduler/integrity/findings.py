"""The kinds of faults in the rows of a scheduler: what each means, and how it is repaired."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Final

import msgspec

KEPT: Final = 1_000
"""Most faults of one kind that are kept in full; all are counted."""


class Kind(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A kind of fault. `repair` describes the repair or, if `for_people`, what an operator can do instead."""

    means: str
    repair: str
    for_people: bool = False


KINDS: Final = msgspec.json.decode(files(__package__).joinpath("kinds.json").read_bytes(), type=dict[str, Kind])
"""By code; what each means and how it is repaired stands in `kinds.json`."""


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
