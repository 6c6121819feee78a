"""The time for which a host is held for a job that must run alone: a bounded share.

New attempts are held back until those under way have ended, and while the job runs. Then other jobs run for at least as
long. If those under way do not end in time the hold is given up as well, and the next one lasts twice as long: the host
is not held for ever, and the job has its turn one day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 10.0
PATIENCE_MAX_S: Final = 3_600.0
"""The longest deadline of a callback."""


class Hold:
    """The hold of one host; instants are monotonic, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.since: float | None = None
        """When others began to be held back; None: they are not. Whether that is over by now is seen by `on`."""
        self.running = False
        """True if the job has the host."""
        self._rests_until = 0.0
        self._patience = PATIENCE_S

    @property
    def on(self) -> bool:
        """Return whether other jobs are held back now."""
        self._look()
        return self.since is not None

    @property
    def rests(self) -> bool:
        """Return whether other jobs have their turn after a hold, so that no new one may begin."""
        self._look()
        return self.since is None and self._monotonic() < self._rests_until

    def begin(self) -> None:
        """Hold others back, until the job runs or patience ends."""
        if self.since is None:
            self.since = self._monotonic()

    def run(self) -> None:
        """Note that the job starts: nothing else is under way."""
        self.begin()
        self.running = True

    def end(self) -> None:
        """Let others run, for at least as long as the host was held: the job has ended, or nobody needs a hold."""
        if self.since is not None:
            now = self._monotonic()
            self._rests_until = now + (now - self.since)
            if self.running:
                self._patience = PATIENCE_S
        self.since, self.running = None, False

    def wait_s(self) -> float | None:
        """Return the seconds until the hold, or the rest after it, ends by itself; None: neither does."""
        self._look()
        now = self._monotonic()
        if self.since is None:
            return max(self._rests_until - now, 0.0) or None
        return None if self.running else max(self.since + self._patience - now, 0.0)

    def _look(self) -> None:
        if self.since is not None and not self.running and self._monotonic() >= self.since + self._patience:
            self.end()
            self._patience = min(2 * self._patience, PATIENCE_MAX_S)
