"""Records of what one scheduler did, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.actors.scheduler.model.outcomes import Value

MINUTE_MS: Final = 60_000
MOST_MINUTES: Final = 60


class ActivityMinute(Value, frozen=True, rename="camel", omit_defaults=True):
    """One minute from `at` (epoch ms) on.

    Jobs: `accepted`, `done` and `died`. Attempts: `started`, `failed` (charged, lost or refused), and `returned` (not
    charged: declined, busy, never connected). `backlog`: how many jobs were waiting at its end. Lateness counts from
    when an attempt was due to when it started; `took` is how long callbacks, and jobs of workers, took. Quantiles are
    estimates, off by a quarter at most; they are left out of a minute in which nothing started or ended.
    """

    at: int
    accepted: int = 0
    started: int = 0
    done: int = 0
    failed: int = 0
    returned: int = 0
    died: int = 0
    backlog: int | None = None
    late_p50_ms: int | None = None
    late_p95_ms: int | None = None
    late_max_ms: int | None = None
    took_p50_ms: int | None = None
    took_p95_ms: int | None = None


class Activity(Value, frozen=True, rename="camel"):
    """The deeds of one scheduler in the last minutes, the oldest first and the present one last, each in `minutes`.

    It is counted in the memory of the process that holds the store, `since` that began to (epoch ms): there are no
    minutes before that. Minutes are of the host's clock, also where the instance has a test clock.
    """

    since: int
    now: int
    minutes: Sequence[ActivityMinute]
