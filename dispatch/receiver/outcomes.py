"""Outcomes of a handler besides being done: accepted, later, never again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tocsin.dispatch.durations import Duration, duration_ms
from tocsin.dispatch.failure import CODE, GONE, STATUS, Failure, is_code, is_status, kept_data
from tocsin.errors import InvalidInputError, TocsinError

log = logging.getLogger("tocsin.dispatch")

DEFAULT_LEASE_MS: Final = 15 * 60_000
LEASE_MS: Final = (1_000, 3_600_000)
MAX_ERROR: Final = 4_000
"""Characters of an error's message: more than a scheduler keeps."""


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


class HandlerError(TocsinError):
    """Raise it in a handler whose attempt failed, to say how: for programs, too. The job is retried as after any error.

    `why`, `code` (1 to 64 characters of `[A-Za-z0-9_.:-]`), `status` (400 to 599, the HTTP status that an app may
    answer with) and `data` (2 KiB of JSON and the types of docs/typed-args.md) are stored with the job, its history and
    its dead letter, shown to whoever may read the job, and raised as a JobFailedError where `jobs.result` waits: they
    are no place for secrets. What cannot be kept of them is left out, and the log says so. A subclass may have a `code`
    and a `status` of its own.
    """

    code = "HANDLER_FAILED"
    retryable: ClassVar[bool] = True
    plain: ClassVar[tuple[str, int]] = ("HANDLER_FAILED", 500)
    """Code and status where none is named."""

    def __init__(self, why: str, *, code: str | None = None, status: int | None = None, data: Any = None) -> None:
        super().__init__(str(why))
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status
        self.data = data
        self.is_coded = data is not None or (self.code, self.status) != self.plain
        self.failure = self._kept() if self.is_coded else Failure(self.message)
        """The parts of it that are kept: of one that names neither code nor status nor data, the words."""

    def _kept(self) -> Failure:
        status = self.status if self._may_have(self.status) else None
        if status is None:
            log.warning("the status %r of an error is left out: it must be %d..%d", self.status, *STATUS)
        code = self.code if is_code(self.code) and self.code != self.plain[0] else None
        if code is None and self.code != self.plain[0]:
            log.warning("the code %.100r of an error is left out: it must match %s", self.code, CODE.pattern)
        try:
            data = kept_data(self.data)
        except TocsinError as error:
            log.warning("the data of an error are left out: %s", error.message)
            data = None
        return Failure(self.message, code, status, data)

    def _may_have(self, status: object) -> bool:
        """Return whether a receiver may answer with this status: 410 would say that the job is dead."""
        return is_status(status) and not (self.retryable and status == GONE)


class TerminalError(HandlerError):
    """Raise it in a handler that can never succeed: the job is dead at once. Its parts are those of a HandlerError."""

    code = "TERMINAL"
    status = 422
    retryable = False
    plain = ("TERMINAL", 422)


def error_in_json(error: str | HandlerError) -> str | dict[str, Any]:
    """Return `error` of a request that settles an attempt, as it can be written: reasons hold names of files that are
    no Unicode."""
    return failure_in_json(error.failure if isinstance(error, HandlerError) else error)


def failure_in_json(error: str | Failure) -> str | dict[str, Any]:
    """Return the same of what a handle passes on."""
    failure = Failure(error) if isinstance(error, str) else error
    message = failure.message[:MAX_ERROR].encode("utf-8", "replace").decode()
    members = {**failure.in_json(), "message": message}
    return message if len(members) == 1 else members


def failure_of(error: str | HandlerError | None) -> Failure | str | None:
    """Return what is reported of an attempt that failed."""
    return error.failure if isinstance(error, HandlerError) else error
