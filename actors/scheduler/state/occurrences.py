"""What a turn notes of schedules while it does something else: occurrences that ended, and how far slots have come.

`recurring` reads it when the turn closes. Part of the book, and like it dropped when a turn fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.actors.scheduler.model.rows import End, JobRow
from tocsin.actors.scheduler.state.spread import Spread

KEPT_SLOTS = 1_000
"""Occurrences kept per schedule."""


Version = tuple[str, int]
"""Of a schedule: uid and revision."""
FailedSlots = dict[Version, str]
"""By schedule, why a slot of it could not be decided. The turn that found out left nothing else."""


@dataclass(slots=True)
class Tick:
    """A pass: looks at schedules, turn after turn, until no slot is left that has come."""

    late_ms: int = 0
    """How late the latest of its decisions was."""
    failed: bool = False
    """One of the schedules has stopped."""
    rest: bool = False
    """This turn has left some."""
    looked: bool = False


class Occurrences:
    """In memory; only the latest slot is a row."""

    def __init__(self) -> None:
        self.ended: list[End] = []
        self.spread = Spread()
        """Late occurrences start one after the other."""
        self.latest_slot = 0
        """A clock that is a day behind it was ahead when that slot was decided."""
        self.sealed_slot = 0
        self.lost_jobs = False
        """The row of an occurrence was unreadable: its schedule would count it as live for ever."""
        self.tick = Tick()
        self.failed: FailedSlots = {}
        """Schedules to be set aside. Kept by the host, since all else here is dropped with the turn that failed."""
        self.registered: dict[str, str] = {}
        """By owner: its latest registration since the activation; an earlier one leaves alone what it does not name."""
        self.zones_noted = False
        """Whether the version of the time zones stands in its row: from the first schedule on."""

    def load(self, value: bytes | None) -> None:
        if value is not None and value.isdigit():
            self.latest_slot = self.sealed_slot = int(value)

    def note(self, job: JobRow, how: str) -> None:
        """A job has ended (or lives again); if it is an occurrence, its slot hears of it when the turn closes."""
        if job.schedule is not None:
            self.ended.append((job.schedule, job.id, how))

    def forget_failed(self, version: Version) -> None:
        """Forget a schedule that was set aside, and says so on disk."""
        self.failed.pop(version, None)

    def set_aside(self, key: bytes) -> None:
        self.lost_jobs = self.lost_jobs or key.startswith((b"job/cron-", b"job/run-"))

    def see(self, slot: int) -> None:
        self.latest_slot = max(self.latest_slot, slot)

    def forget_latest(self, now: int) -> None:
        """The clock was wrong."""
        self.latest_slot = now
