"""When a host is held for a job that must have it for itself: a bounded share of its time.

New attempts are held back until those under way have ended, and while the job runs. Then others go on for at least as
long. Where those under way do not end in time others go on as well, and the next hold is twice as patient: the host is
not held for ever, and the job has its turn one day.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 10.0
PATIENCE_MAX_S: Final = 3_600.0
"""As long as the longest callback."""


class Hold:
    """Of one host; instants are monotonic."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.since: float | None = None
        """Since when others are held back; None: they are not. Whether they still are says `on`."""
        self.running = False
        """Whether the job has the host."""
        self._rests_until = 0.0
        self._patience = PATIENCE_S

    @property
    def on(self) -> bool:
        """Whether nobody else may start now."""
        self._look()
        return self.since is not None

    @property
    def rests(self) -> bool:
        """Others go on: no hold may begin."""
        self._look()
        return self.since is None and self._monotonic() < self._rests_until

    def begin(self) -> None:
        if self.since is None:
            self.since = self._monotonic()

    def run(self) -> None:
        """Nothing else is under way: the job starts."""
        self.begin()
        self.running = True

    def end(self) -> None:
        """The job has ended, or nobody needs the host any more: others have it for as long as it was held."""
        if self.since is not None:
            now = self._monotonic()
            self._rests_until = now + (now - self.since)
            if self.running:
                self._patience = PATIENCE_S
        self.since, self.running = None, False

    def wait_s(self) -> float | None:
        """Seconds until something changes by itself; None: nothing does."""
        self._look()
        now = self._monotonic()
        if self.since is None:
            return max(self._rests_until - now, 0.0) or None
        return None if self.running else max(self.since + self._patience - now, 0.0)

    def _look(self) -> None:
        if self.since is not None and not self.running and self._monotonic() >= self.since + self._patience:
            self.end()
            self._patience = min(2 * self._patience, PATIENCE_MAX_S)
