"""Outcomes of a handler besides being done: accepted, later, never again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.errors import InvalidInputError, TocsinError

DEFAULT_LEASE_MS: Final = 15 * 60_000
LEASE_MS: Final = (1_000, 3_600_000)


@dataclass(frozen=True, slots=True)
class Accepted:
    """Return it for work that continues after the handler: a `LeaseClient` says later how it ended.

    The lease is held for `lease_ms` (1 s to 1 h; 15 min if not given) from the answer. Extend it, or complete it
    before: when it ends the attempt counts as failed, and the job is sent again.
    """

    lease_ms: int | None = None

    def __post_init__(self) -> None:
        check_lease_ms(self.lease_ms, "Accepted.lease_ms")

    @property
    def held_ms(self) -> int:
        return DEFAULT_LEASE_MS if self.lease_ms is None else self.lease_ms


def check_lease_ms(value: object, name: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{name} must be an integer (milliseconds), not {type(value).__name__}")
    if not LEASE_MS[0] <= value <= LEASE_MS[1]:
        raise InvalidInputError(f"{name} must be {LEASE_MS[0]}..{LEASE_MS[1]} ms, not {value}")


class RetryLater(TocsinError):
    """Raise it in a handler that cannot work now: again no earlier than `delay`, not charged as a failure.

    `delay` is a `timedelta`, seconds or a text like "5m", rounded up to whole seconds. A worker's job waits so
    long, and 1 s at least; after a callback the scheduler waits at most 1 h, and at least its backoff. 24 h past the
    due instant it is charged. `why` is sent to the scheduler, for its operators.
    """

    code = "RETRY_LATER"
    status = 503

    def __init__(self, delay: Duration, why: str = "the handler asked to be called later") -> None:
        self.delay_s = -(-duration_ms(delay, "RetryLater.delay", most=None) // 1000)
        super().__init__(str(why))


class TerminalError(TocsinError):
    """Raise it in a handler that can never succeed: the job is dead at once. `why` is kept with the dead job."""

    code = "TERMINAL"
    status = 422

    def __init__(self, why: str) -> None:
        super().__init__(str(why))
