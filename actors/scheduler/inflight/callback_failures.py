"""Report failing callbacks of a host: a line in the log for each path, and its health once none succeeds.

A job that is tried again is logged nowhere else, and a receiver that refuses or hangs looks like such jobs. So the path
and the error are logged at the first failure, and then at most once a minute.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tocsin.actors.scheduler.model.health import CALLBACKS_FAILING, Cause
from tocsin.actors.scheduler.model.recent import Recent
from tocsin.dispatch.callback import AttemptOutcome, Verdict

log = logging.getLogger("tocsin.callbacks")

ALL_OF: Final = 20
"""Health is amber once this many callbacks in a row failed, or of the last minute's with next to no success."""
NEARLY: Final = 9
"""Next to none have succeeded if so many times as many failed."""
WINDOW_S: Final = 60.0
LINES: Final = 10
"""In one window this many paths are logged, each once; the others are counted."""
PATHS: Final = 1_000
"""For this many paths the host remembers when they were logged; those logged the longest time ago are forgotten."""
SUCCEEDED: Final = frozenset({Verdict.DONE, Verdict.ACCEPTED, Verdict.DEAD})
"""A receiver that refuses a job for good has done its work."""
FAILED: Final = frozenset({Verdict.FAILED, Verdict.UNKNOWN})
"""Other verdicts say nothing of the receiver's health: it was not called, or it asked to be called later."""

FAULT: Final = "failed or had no answer in time"


@dataclass(slots=True)
class _Path:
    logged_at: float
    failures: int = 0
    """How many since the last line in the log."""


class CallbackFailures:
    """The failures of one host. `monotonic` is in seconds."""

    def __init__(self, monotonic: Callable[[], float], now_ms: Callable[[], int]) -> None:
        self._monotonic, self._now_ms = monotonic, now_ms
        self._paths: OrderedDict[str, _Path] = OrderedDict()
        self._window_began, self._lines, self._unlogged = 0.0, 0, 0
        self.in_a_row = 0
        """How many callbacks failed since one succeeded."""
        self.watching = False
        """True if one failed of late. While none has, a success changes nothing here."""
        self._failed_lately, self._succeeded_lately = Recent(monotonic, WINDOW_S), Recent(monotonic, WINDOW_S)
        self._since, self._last = 0, ""

    @property
    def broken(self) -> Cause | None:
        """The cause of amber health, once the last `ALL_OF` callbacks failed, or nearly all of the last minute's."""
        if self.in_a_row >= ALL_OF:
            which = f"the last {self.in_a_row:,} callbacks"
            return Cause(CALLBACKS_FAILING, f"{which} {FAULT}; the last one: {self._last}", self._since)
        failed, succeeded = self._failed_lately.total, self._succeeded_lately.total
        if failed < ALL_OF or failed < NEARLY * succeeded:
            return None
        which = f"{failed:,} of the {failed + succeeded:,} callbacks of the last minute"
        return Cause(CALLBACKS_FAILING, f"{which} {FAULT}; the last one: {self._last}", None)

    def note(self, job: str, path: str, outcome: AttemptOutcome, *, counts: bool = True) -> None:
        """Note how an attempt of `job` (instance/id) ended. If it does not count, its failure is logged and nothing
        else: its receiver is somebody else's."""
        said = f"{path}: {outcome.message or outcome.verdict.value}"
        if not counts:
            if outcome.verdict in FAILED:
                self._failed(job, path, said)
        elif outcome.verdict in SUCCEEDED:
            if self.in_a_row >= ALL_OF:
                self._failed_lately.clear()  # it was named, and is over
            self.in_a_row = 0
            self._succeeded_lately.note()
            if not self._failed_lately.total:
                self.watching = False
                self._succeeded_lately.clear()
        elif outcome.verdict in FAILED:
            self._last = said
            self._since = self._since if self.in_a_row else self._now_ms()
            self.in_a_row += 1
            self.watching = True
            self._failed_lately.note()
            self._failed(job, path, said)

    def _failed(self, job: str, path: str, said: str) -> None:
        now, known = self._monotonic(), self._paths.get(path)
        if known is not None and now - known.logged_at < WINDOW_S:
            known.failures += 1
            return
        if now - self._window_began >= WINDOW_S:
            self._window_began, self._lines = now, 0
        if self._lines >= LINES:
            self._unlogged += 1
            return
        self._lines += 1
        self._log(job, path, said, 0 if known is None else known.failures)
        self._paths[path] = _Path(now)
        self._paths.move_to_end(path)
        if len(self._paths) > PATHS:
            self._paths.popitem(last=False)

    def _log(self, job: str, path: str, said: str, before: int) -> None:
        instance, _, job_id = job.partition("/")
        more = f"; {before:,} more of this path since the line before" if before else ""
        others = f"; {self._unlogged:,} of other paths were not logged" if self._unlogged else ""
        self._unlogged = 0
        log.warning(
            "a callback failed: %s (job %s)%s%s", said, job, more, others,
            extra={"instance": instance, "id": job_id, "path": path},
        )  # fmt: skip
