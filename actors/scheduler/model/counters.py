"""The one equation of jobs: whatever was accepted has ended in one of a few ways, or is there.

    accepted = done + expired + cancelled + replaced + discarded + retired + set_aside
             + waiting + leased + dead
    died     = retried + discarded + retired + dead

Both are of durable counters (`meta/counters`), which change in the batch of what they count, so they hold over crashes.
A job that an undo puts back counts as accepted anew, and a dead letter as died anew: these counters only grow.
Whoever adds a way for a job to come or to go adds its counter here: `tocsin check` and the simulation hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

import msgspec


class Counters(msgspec.Struct, array_like=True, tag=1):
    """`meta/counters`: changes in the same batch as what it counts. The only row that is changed in place."""

    waiting: int = 0  # line rows
    leased: int = 0  # lease rows whose job lives
    orphaned: int = 0  # lease rows whose job was cancelled
    dead: int = 0
    done: int = 0
    expired: int = 0
    retired: int = 0
    """Dead letters dropped for their age."""
    accepted: int = -1
    """Jobs ever accepted; -1 in a row that was written before this member was added. The equation that this and
    the following ones are in stands above."""
    cancelled: int = 0
    replaced: int = 0
    discarded: int = 0
    """Dead letters cancelled by somebody."""
    set_aside: int = 0
    """Jobs whose rows could not be read, or were not there."""
    died: int = 0
    retried: int = 0
    """Dead letters retried."""


ENDS: Final = ("done", "expired", "cancelled", "replaced", "discarded", "retired", "set_aside")
"""The counters of the ways in which a job ends, each of which frees its id."""
HERE: Final = ("waiting", "leased", "dead")
"""The counters of jobs that are there, one for each state of a job."""
LETTERS_LEFT: Final = ("retried", "discarded", "retired")
"""The counters of the ways in which a dead letter goes."""
FLOWS: Final = ("accepted", *ENDS, "died", "retried")
"""The counters that only grow."""
levels: Callable[[Counters], tuple[int, ...]] = attrgetter(*FLOWS, "waiting")
"""Return the counters that only grow, in the order of FLOWS, and last how many jobs wait. Every turn asks for it."""


def is_counted(counters: Counters) -> bool:
    """Return whether the counters know how many jobs were accepted: rows of older versions do not."""
    return counters.accepted >= 0


def gap(counters: Counters) -> int:
    """Return how many jobs more were accepted than have ended or are there; 0 if all is well."""
    return counters.accepted - _sum(counters, ENDS) - _sum(counters, HERE)


def gap_of_letters(counters: Counters) -> int:
    """Return how many jobs more died than have left the dead letters or are among them."""
    return counters.died - _sum(counters, LETTERS_LEFT) - counters.dead


def faults(counters: Counters) -> Iterator[tuple[str, int]]:
    """Yield the counter that is wrong, and by how many, of each equation that does not hold."""
    if is_counted(counters):
        for name, wrong in (("accepted", gap(counters)), ("died", gap_of_letters(counters))):
            if wrong:
                yield name, wrong


def settle(counters: Counters) -> None:
    """Make the equations hold: after rows were set aside, what is missing counts as that; and an older row, which does
    not say how many were accepted, begins with what it knows."""
    if not is_counted(counters):
        counters.accepted = _sum(counters, ENDS) + _sum(counters, HERE)
    missing = gap(counters)
    counters.set_aside += max(missing, 0)
    counters.accepted += max(-missing, 0)
    counters.died -= gap_of_letters(counters)


def _sum(counters: Counters, names: tuple[str, ...]) -> int:
    return sum(getattr(counters, name) for name in names)
