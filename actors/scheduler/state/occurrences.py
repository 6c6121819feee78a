"""Note what a turn learns of schedules while it does something else: occurrences that ended, and the latest slot.

The rooms of schedules read it at the end of the turn. It is part of the state, so it is dropped when a turn fails.
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
    """A pass over schedules: turn after turn, until every slot that has come is decided."""

    late_ms: int = 0
    """How late the latest decision of the pass was."""
    failed: bool = False
    """A schedule was stopped by an error in this pass."""
    rest: bool = False
    """This turn has left some schedules to the next one."""
    looked: bool = False


class Occurrences:
    """In memory. Only the latest slot is a row, too."""

    def __init__(self, failed: FailedSlots | None = None) -> None:
        self.ended: list[End] = []
        self.spread = Spread()
        """When late occurrences start."""
        self.latest_slot = 0
        """The latest slot that was decided. A clock that is a day behind it was ahead when it was decided."""
        self.sealed_slot = 0
        self.lost_jobs = False
        """The row of an occurrence was unreadable, so its schedule would count it as live forever."""
        self.tick = Tick()
        self.failed: FailedSlots = {} if failed is None else failed
        """Schedules to be set aside. Kept by the host, since all else here is dropped with the turn that failed."""
        self.registered: dict[str, str] = {}
        """By owner: its latest registration since the activation. An earlier registration deletes nothing that it does
        not name."""
        self.zones_noted = False
        """True if the version of the time zones is in its row, which is so from the first schedule on."""

    def load(self, value: bytes | None) -> None:
        if value is not None and value.isdigit():
            self.latest_slot = self.sealed_slot = int(value)

    def note(self, job: JobRow, how: str) -> None:
        """Note that a job ended, or lives again. If it is an occurrence, its slot is told when the turn ends."""
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
        """Forget the latest slot: the clock was wrong when it was decided."""
        self.latest_slot = now
