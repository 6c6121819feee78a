"""The entries of the navigation, in their order. One whose page is not there is not shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry: the name of its page, its words, the path, and the key that goes there behind a `g`."""

    name: str
    words: str
    path: str
    key: str


ENTRIES: Final = (
    Entry("overview", "Overview", "", "o"),
    Entry("jobs", "Jobs", "/jobs", "j"),
    Entry("dead", "Dead letters", "/dead", "d"),
    Entry("schedules", "Schedules", "/schedules", "s"),
    Entry("queues", "Queues", "/queues", "q"),
    Entry("workers", "Workers", "/workers", "w"),
    Entry("pools", "Pools", "/pools", "p"),
    Entry("groups", "Groups", "/groups", "m"),
    Entry("audit", "Audit log", "/audit", "a"),
    Entry("instances", "Instances", "/instances", "i"),
)
