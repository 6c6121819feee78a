"""Rows of calls that are put off: one that is kept while the job of its id runs, and the period in which no further job
of an id is accepted."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.row import Row
from tocsin.actors.scheduler.model.rows import JobRow

LATER: Final = "later"
THROTTLE: Final = "throttle"
"""Kinds of timers. The first rings for kept calls that did not fit the commit in which their run ended."""


class LaterRow(Row, frozen=True, array_like=True, tag=1):
    """`later/<id>`: the newest call for a job that runs. It becomes the job of its id when that run ends."""

    job: JobRow
    throttle_ms: int = 0
    """The period that begins when it is due; 0: none."""


class ThrottleRow(Row, frozen=True, array_like=True, tag=1):
    """`throttle/<id>`: until `until`, no further job of this id is accepted with `throttleMs`."""

    until: int
    at: int
    """When this was written: where the clock stands before that, it has stepped back, and the period with it."""
    incarnation: str = ""
    """Of the job that was accepted: if the same call comes again, it is answered the same."""


def later_key(job_id: str) -> bytes:
    return b"later/%b" % job_id.encode()


def later_args_key(job_id: str, n: int) -> bytes:
    """Make the key of args of a kept call beyond what its row holds."""
    return b"laterargs/%b/%02d" % (job_id.encode(), n)


def throttle_key(job_id: str) -> bytes:
    return b"throttle/%b" % job_id.encode()


def left_of(period: ThrottleRow, now: int) -> int:
    """Return for how many ms the period still lasts; 0 if it is over."""
    return max(period.until - max(now, period.at), 0)
