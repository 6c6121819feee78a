"""Print the findings of `tocsin check` by scheduler and kind of fault, with what each means and who repairs it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tocsin.cli.output import plural, put, wrapped
from tocsin.cli.words import printable, say

if TYPE_CHECKING:
    from tocsin.actors.scheduler.integrity.check import Checked


@dataclass(slots=True)
class Totals:
    """Totals over all schedulers."""

    schedulers: int = 0
    jobs: int = 0
    rows: int = 0
    aside: int = 0
    faults: int = 0
    for_people: int = 0
    codes: Counter[str] = field(default_factory=Counter)

    def add(self, one: Checked) -> None:
        self.schedulers += 1
        self.jobs += one.findings.jobs
        self.rows += one.findings.rows
        self.aside += one.findings.aside_count
        self.faults += one.findings.total
        self.for_people += one.findings.for_people
        self.codes += one.findings.counts

    def words(self, *, repaired: bool) -> str:
        looked = f"{plural(self.schedulers, 'scheduler')}, {plural(self.jobs, 'job')}, {plural(self.rows, 'row')}"
        if not self.faults:
            return f"sound: {looked}"
        left = plural(self.faults, "fault")
        if repaired:
            return f"{left} left for people, in {looked}"
        if self.for_people == self.faults:
            return f"{left} in {looked}, for people to repair"
        return f"{left} in {looked}; stop the server and use --repair"


def print_checked(one: Checked, examples: int) -> None:
    """Print the faults of one scheduler."""
    found = one.findings
    removing = ", being removed" if found.removing else ""
    put(f"{printable(one.name)}: {plural(found.total, 'fault')} in {plural(found.rows, 'row')}{removing}")
    for code, count in sorted(found.counts.items()):
        some = [fault for fault in found.faults if fault.code == code]
        kind = some[0].kind
        put(f"  {code}  {count:,}")
        wrapped(f"means: {kind.means}", indent=4, rest=11)
        wrapped(f"{'for people' if kind.for_people else 'repair'}: {kind.repair}", indent=4, rest=6)
        for fault in some[:examples]:
            wrapped(f"- {printable(fault.message)}", indent=4, rest=6)
        if count > examples:
            put(f"    - and {count - min(examples, len(some)):,} more")
    for key in found.aside[:examples]:
        wrapped(f"set aside: {printable(key)}", indent=2, rest=4)
    if found.aside_count > examples:
        put(f"  set aside: {found.aside_count - min(examples, len(found.aside)):,} more")


def print_set_aside(totals: Totals) -> None:
    if totals.aside:
        say(f"{plural(totals.aside, 'row')} set aside under bad/: kept for people, read by nobody else")
