"""From the JSON envelope of a server's refusal back to the error it was."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tocsin import errors
from tocsin.dispatch.job_options import PYTHON_WORDS
from tocsin.dispatch.words import reworded
from tocsin.errors import RequestError, TocsinError, UnreachableError

BY_CODE: Final[dict[str, type[TocsinError]]] = {
    error.code: error
    for error in (
        errors.ActorError,
        errors.ConflictError,
        errors.DuplicateScheduleIdError,
        errors.ForbiddenError,
        errors.InstanceMovedError,
        errors.InstanceMovingError,
        errors.IdempotencyMismatchError,
        errors.InvalidCronError,
        errors.InvalidInputError,
        errors.InvalidScheduleIdError,
        errors.NotFoundError,
        errors.OriginNotConfiguredError,
        errors.OverloadedError,
        errors.PayloadTooLargeError,
        errors.QuotaExceededError,
        errors.ResidencyError,
        errors.StaleLeaseError,
        errors.StoreFull,
        errors.StoreUnavailable,
        errors.ThrottledError,
        errors.UnauthenticatedError,
        errors.UnknownTimezoneError,
    )
}


class Refusal(msgspec.Struct, frozen=True):
    """An error as data: the name of its class, and what it was made of."""

    kind: str
    message: str
    details: dict[str, Any] = {}

    @classmethod
    def of(cls, error: TocsinError) -> Refusal:
        return cls(type(error).__name__, error.message, error.details)

    def error(self) -> TocsinError:
        """Return the error. One that this version does not know is a TocsinError."""
        found = getattr(errors, self.kind, None)
        kind = found if isinstance(found, type) and issubclass(found, TocsinError) else TocsinError
        error = kind.__new__(kind)  # some take other arguments
        TocsinError.__init__(error, self.message, **self.details)
        return error


def refusal(status: int, value: dict[str, Any] | None, base: str) -> TocsinError:
    """Return the error an answer stands for. One that is not a tocsin server's is an UnreachableError."""
    error = None if value is None else value.get("error")
    if not isinstance(error, dict) or not isinstance(error.get("code"), str):
        return UnreachableError(f"what answers at {base} is not a tocsin server (status {status})")
    details = {name: detail for name, detail in error.items() if name not in ("code", "message")}
    kind = BY_CODE.get(error["code"], RequestError if 400 <= status <= 499 else TocsinError)
    refused = kind(reworded(str(error.get("message") or "refused"), PYTHON_WORDS))
    refused.details = details if kind in BY_CODE.values() else {"code": error["code"], **details}
    return refused
