"""The one error hierarchy. Every class says what the caller may conclude and carries its HTTP code.

TocsinError
  RequestError            the request is at fault; nothing was changed
    InvalidInputError  InvalidScheduleIdError  PayloadTooLargeError
    InvalidCronError  UnknownTimezoneError
    UnauthenticatedError  ForbiddenError  NotFoundError  OriginNotConfiguredError
    DuplicateScheduleIdError  StaleLeaseError
    ConflictError
      InstanceMovingError  InstanceMovedError   `details["movedTo"]` says where to
      ResidencyError   no store of this host is that of the instance
    QuotaExceededError  ThrottledError  IdempotencyMismatchError
  ActorError              the runtime could not serve the event
    OverloadedError       not run: the mailbox is full, try again
    HostClosedError       not run: the host is stopping
    ActorBrokenError      perhaps run: its answer was lost with the activation
    HolderLostError       perhaps run: the process that held the store ended before it answered
    NotAnsweredYetError   accepted: it is kept durably and will be done, and its answer has not come in time
    TurnError             a programmer's fault: storage or a call on the wrong side of a turn
  StoreError              the store refused; `retryable` and `owner_lost` say what helps
    StoreLocked  Fenced  RolledBack  StoreFull  StoreUnavailable
    StoreTooLarge  StoreCorrupt  StoreSchema  StoreMoved  StoreClosed
  SignatureError          a webhook signature did not verify
  ResultError             what a job came to cannot be told
    JobFailedError        it is dead, was cancelled, or expired
    NotYetError           it has not ended in the time that was given
  UnreachableError        no server answered; it may have done what was asked
  NotAllAcceptedError     of jobs submitted together some were refused, the others stay
  SettingsError           the configuration is at fault
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

REFUSED_SHOWN = 3
"""Number of refusals that a message spells out."""


class TocsinError(Exception):
    """Base of everything tocsin raises on purpose.

    `code` is the word used in JSON error envelopes, `status` the HTTP status it travels with,
    `details` further JSON members of the envelope (never a secret).
    """

    code: str = "INTERNAL"
    status: int = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def to_dict(self) -> dict[str, Any]:
        """Return the envelope in which the error is answered over HTTP, with `status` as the status."""
        return {"error": {"code": self.code, "message": self.message} | self.details}


# ---- Requests ------------------------------------------------------------------------------------


class RequestError(TocsinError):
    """The request is at fault; nothing was changed."""

    code = "INVALID_INPUT"
    status = 400


class InvalidInputError(RequestError, ValueError):
    """An argument is missing, of the wrong type or out of its limits; the message names it."""


class InvalidScheduleIdError(RequestError, ValueError):
    """A job id does not match `[A-Za-z0-9_][A-Za-z0-9_-]{0,63}` or is reserved."""

    code = "INVALID_SCHEDULE_ID"


class InvalidCronError(RequestError, ValueError):
    """A cron expression is refused; the message says which part of it and what to write instead."""

    code = "INVALID_CRON"


class UnknownTimezoneError(RequestError, ValueError):
    """There is no time zone of this name (IANA names are checked, and the host's own zone is never meant)."""

    code = "UNKNOWN_TIMEZONE"


class PayloadTooLargeError(RequestError, ValueError):
    """Args or a request body are over their limit; the message names the limit."""

    code = "PAYLOAD_TOO_LARGE"
    status = 413


class UnauthenticatedError(RequestError):
    """No valid bearer token was given."""

    code = "UNAUTHENTICATED"
    status = 401


class ForbiddenError(RequestError):
    """The token is valid but lacks the scope or the instance."""

    code = "FORBIDDEN"
    status = 403


class NotFoundError(RequestError):
    """No such route, or no such thing."""

    code = "NOT_FOUND"
    status = 404


class OriginNotConfiguredError(RequestError):
    """Callbacks have no origin to go to: open the host with `origin=`, or set `TOCSIN_ORIGIN_URL` of the server."""

    code = "ORIGIN_NOT_CONFIGURED"
    status = 500


class DuplicateScheduleIdError(RequestError):
    """The id is taken by a pending, running or dead job; `details["state"]` says which."""

    code = "DUPLICATE_SCHEDULE_ID"
    status = 409


class ConflictError(RequestError):
    """The thing changed since the caller last saw it."""

    code = "CONFLICT"
    status = 409


class InstanceMovingError(ConflictError):
    """The instance is about to move and takes no new work; `details["movedTo"]` says where to. It is not there yet."""

    code = "INSTANCE_MOVING"


class InstanceMovedError(ConflictError):
    """The instance has moved, and nothing of it changes here any more; `details["movedTo"]` says where it is."""

    code = "INSTANCE_MOVED"


class ResidencyError(ConflictError):
    """By the rules of the stores this instance belongs to a store that this host does not have, or to none. Nothing of
    it is kept anywhere else."""

    code = "RESIDENCY"


class QuotaExceededError(RequestError):
    """The instance holds as many jobs as it may; retry when some have ended."""

    code = "QUOTA_EXCEEDED"
    status = 429


class ThrottledError(RequestError):
    """The id had a job less than `throttle` ago; `details["retryAfterMs"]` says when the next one is accepted."""

    code = "THROTTLED"
    status = 429


class IdempotencyMismatchError(RequestError):
    """The Idempotency-Key was used for another request within the last 24 hours."""

    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422


class StaleLeaseError(RequestError):
    """The lease is not, or no longer, the one that may settle this job."""

    code = "STALE_LEASE"
    status = 409


# ---- The runtime ---------------------------------------------------------------------------------


class ActorError(TocsinError):
    """The runtime could not serve the event."""

    code = "UNAVAILABLE"
    status = 503


class OverloadedError(ActorError):
    """Not run: too many requests wait for this actor. Safe to try again."""

    code = "OVERLOADED"


class HostClosedError(ActorError):
    """Not run: the host is not open, or is stopping."""


class ActorBrokenError(ActorError):
    """Perhaps run: the activation failed before the answer was safe to give."""


class HolderLostError(ActorError):
    """Perhaps run: the process that held the store ended before it answered this one.

    `details["mayRepeat"]`: whether a second time changes nothing that the first one did not. Raised only where several
    processes share a store, and only for changes that are not repeated by themselves.
    """


class NotAnsweredYetError(ActorError):
    """Accepted, and not answered yet: the host that owns the scheduler was not reached, so the call is kept in the
    store and will be done once. Raised only where several hosts share a store.

    Over HTTP it is answered with 202 and `{"id": …, "accepted": true}`: `id` is that of the job, or of the call. A
    request with an Idempotency-Key that is sent again gets the final answer.
    """

    code = "ACCEPTED"
    status = 202

    def to_dict(self) -> dict[str, Any]:
        """Return what is answered over HTTP, which is no error there."""
        return self.details | {"accepted": True}


class TurnError(ActorError):
    """A programmer's fault: storage used outside a turn, or a call made inside one."""

    code = "INTERNAL"
    status = 500


# ---- The store -----------------------------------------------------------------------------------


class StoreError(TocsinError):
    """The store refused. Nothing of the batch was written, then or later.

    `retryable`: the same call may succeed later without anyone acting.
    `owner_lost`: this process no longer owns the data; drop memory, write nothing back.
    """

    code = "STORE_UNAVAILABLE"
    status = 503
    retryable: ClassVar[bool] = False
    owner_lost: ClassVar[bool] = False


class StoreLocked(StoreError):
    """Another process owns the store; the message names it."""

    retryable = True


class Fenced(StoreError):
    """Ownership moved to someone else."""

    owner_lost = True


class RolledBack(StoreError):
    """The store is older than memory: a restored backup, a replaced file, a lagging replica."""

    owner_lost = True


class StoreFull(StoreError):
    """No space or quota left; deletions may still pass."""

    code = "STORE_FULL"
    status = 507
    retryable = True


class StoreUnavailable(StoreError):
    """The store cannot be reached, is read-only, busy or starting."""

    retryable = True


class StoreTooLarge(StoreError):
    """A key, value or batch is over the store's limit."""

    code = "PAYLOAD_TOO_LARGE"
    status = 413


class StoreCorrupt(StoreError):
    """The store's own integrity is broken: an operator must act."""


class StoreSchema(StoreError):
    """The store's layout is newer than this program, or not ours: an operator must act."""


class StoreMoved(StoreError):
    """The store was moved to another engine, or is on its way: what lies here must not be served."""


class StoreClosed(StoreError):
    """The handle or provider was closed."""


# ---- The rest ------------------------------------------------------------------------------------


class SignatureError(TocsinError):
    """A webhook signature is missing, malformed, too old or wrong."""

    code = "UNAUTHENTICATED"
    status = 401


class ResultError(TocsinError):
    """The job has no result to return. Raised where Python waits for a result; over HTTP the state says the same."""


class JobFailedError(ResultError):
    """The job is dead, was cancelled, or expired; `details["state"]` says which.

    `code`, `status` and `data` are those that the handler's last error named, so an app may answer with them: see
    `HandlerError`. `code` is JOB_FAILED, `status` 500 and `data` None where it named none.
    """

    code = "JOB_FAILED"

    def __init__(
        self, message: str, *, code: str | None = None, status: int | None = None, data: Any = None, **details: Any
    ) -> None:
        super().__init__(message, **details)
        self.code, self.status, self.data = code or type(self).code, status or type(self).status, data


class NotYetError(ResultError, TimeoutError):
    """The job has not ended in the time that was given."""


class UnreachableError(TocsinError):
    """No tocsin server answered in the time a client has; it may have done what was asked. Safe to try again.

    Raised by clients only: no server answers with it. An app may answer with `status` and `to_dict()`, which leaves out
    the message: that names the server's address and what failed on the way there, for the developers. `sent` is False
    if nobody can have got the request.
    """

    code = "UNREACHABLE"
    status = 503
    sent: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the envelope for an app's own users, without the address."""
        done = "may have been done" if self.sent else "was not done"
        said = f"the scheduler cannot be reached now, and what was asked of it {done}: try again later"
        return {"error": {"code": self.code, "message": said} | self.details}


class NotAllAcceptedError(TocsinError):
    """Of jobs submitted together some were refused. `accepted`: the ids of the others, which stay; `refused`: the id of
    each that was not accepted, and why, in the order in which they were given.

    Raised by `Scheduler.deferred` only: over HTTP each job of a batch has its own answer.
    """

    code = "NOT_ALL_ACCEPTED"
    status = 409

    def __init__(self, accepted: Sequence[str], refused: Sequence[tuple[str, TocsinError]]) -> None:
        total = len(accepted) + len(refused)
        shown = "; ".join(f"{job_id!r}: {error.message}" for job_id, error in refused[:REFUSED_SHOWN])
        more = f"; and {len(refused) - REFUSED_SHOWN} more" if len(refused) > REFUSED_SHOWN else ""
        stay = f"the other {len(accepted)} stay" if accepted else "none was accepted"
        super().__init__(f"{len(refused)} of {total} jobs were refused, {stay}: {shown}{more}")
        self.accepted, self.refused = tuple(accepted), tuple(refused)


class SettingsError(TocsinError, ValueError):
    """A setting is missing or wrong; the message names it and what to write instead."""

    code = "INVALID_INPUT"
    status = 500
