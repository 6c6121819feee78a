"""The circuit of a host's origin: whether callbacks get through, since when not, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.model.health import ORIGIN_UNREACHABLE
from tocsin.dispatch.callback import AttemptOutcome, Verdict

OPENS_AFTER: Final = 5
PROBE_EVERY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Broken:
    """Why the circuit is open: a code, what the attempt that opened it said, and since when, epoch ms."""

    code: str
    message: str
    since: int


class Circuit:
    """Opens after five attempts in a row that never connected; closes at the first answer.

    `changed` is called at both, with why the circuit is or was open, and whether it is open now.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        now_ms: Callable[[], int],
        changed: Callable[[Broken, bool], None] = lambda why, is_open: None,
    ) -> None:
        self._monotonic, self.now_ms, self._changed = monotonic, now_ms, changed
        self.failures = 0
        """How many attempts in a row never connected. While there are none, an answer changes nothing here."""
        self._next_probe = 0.0
        self.broken: Broken | None = None
        self.reached_at: int | None = None
        """Since when an origin that was away is connected to, and has not answered yet; epoch ms."""

    def connected(self) -> None:
        """Note that a connection was made. It tells people; only an answer closes the circuit."""
        if self.broken is not None and self.reached_at is None:
            self.reached_at = self.now_ms()

    def note(self, outcome: AttemptOutcome) -> None:
        """Note how an attempt ended. After an answer, or a probe that was not sent, the next one may go at once."""
        verdict = outcome.verdict
        if verdict is Verdict.UNREACHABLE:
            self._unreachable(outcome)
        elif verdict is Verdict.BLOCKED:  # never sent: it tells nothing of the origin
            self._next_probe = self._monotonic()
        elif verdict is not Verdict.STOPPED:
            self.failures, self.reached_at = 0, None
            broken, self.broken = self.broken, None
            if broken is not None:
                self._changed(broken, False)

    def _unreachable(self, outcome: AttemptOutcome) -> None:
        self.failures += 1
        self.reached_at = None
        code, message = outcome.code or ORIGIN_UNREACHABLE, outcome.message or "no connection"
        if self.broken is not None:
            self.broken = Broken(code, message, self.broken.since)
        elif self.failures >= OPENS_AFTER:
            self._next_probe = self._monotonic() + PROBE_EVERY_S
            self.broken = Broken(code, message, self.now_ms())
            self._changed(self.broken, True)

    def wait_s(self) -> float:
        """Return the seconds until the next probe may go; 0: now, or the circuit is closed."""
        return max(self._next_probe - self._monotonic(), 0.0) if self.broken is not None else 0.0

    def probe(self) -> None:
        """Note that one callback is sent to see whether the origin answers again."""
        self._next_probe = self._monotonic() + PROBE_EVERY_S
