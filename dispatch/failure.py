"""`Failure`: how an attempt failed, in words for people and, where its handler said so, by a code for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tocsin.dispatch import values
from tocsin.dispatch.answer_contents import GENERIC
from tocsin.dispatch.blanking import holds_secrets, without_secrets
from tocsin.errors import InvalidInputError, JobFailedError, TocsinError

MAX_CODE: Final = 64
CODE: Final = re.compile(rf"[A-Za-z0-9_.:-]{{1,{MAX_CODE}}}", re.ASCII)
MAX_DATA: Final = 2 * 1024
"""Bytes of JSON: they stand in the rows of the job, of its dead letter and of its history."""
STATUS: Final = (400, 599)
GONE: Final = 410
"""To a scheduler this status of an answer says that the job is dead."""


class Failure(msgspec.Struct, frozen=True):
    """One failure of one attempt. `data` is JSON text, in which Python's types are tagged as in args."""

    message: str
    code: str | None = None
    status: int | None = None
    data: bytes | None = None

    def in_json(self) -> dict[str, Any]:
        """Return the members of `error` in a request."""
        said = {"message": self.message, "code": self.code, "status": self.status}
        members: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        return members if self.data is None else {**members, "data": msgspec.Raw(self.data)}


def checked(failure: Failure) -> Failure:
    """Return what is kept of a failure that was reported: without secrets. InvalidInputError names what does not fit.

    Its message is the caller's to check.
    """
    if failure.code is not None and not is_code(failure.code):
        raise InvalidInputError(f"error.code must match {CODE.pattern}, not {failure.code!r:.100}")
    status = failure.status
    if status is not None and not is_status(status):
        raise InvalidInputError(f"error.status must be {STATUS[0]}..{STATUS[1]}, not {status!r:.100}")
    if failure.data is None:
        return failure
    try:
        data = kept_data(values.decode(failure.data, "error.data"))
    except TocsinError as error:
        raise type(error)(error.message.replace("data", "error.data", 1), **error.details) from None
    return msgspec.structs.replace(failure, data=data)


def is_code(code: object) -> bool:
    """Return whether it is a code as errors have them."""
    return isinstance(code, str) and CODE.fullmatch(code) is not None


def is_status(status: object) -> bool:
    """Return whether it is an HTTP status of an error."""
    return isinstance(status, int) and not isinstance(status, bool) and STATUS[0] <= status <= STATUS[1]


def kept_data(data: Any) -> bytes | None:
    """Return data as they are stored: JSON text without secrets. InvalidInputError for what JSON cannot hold, or is
    over its limit."""
    if data is None:
        return None
    raw = values.encode(data, "data")
    if len(raw) > MAX_DATA:
        raise InvalidInputError(f"data: {len(raw)} bytes of JSON, the limit is {MAX_DATA}")
    if holds_secrets(raw.decode()):
        raw = values.encode(without_secrets(values.decode(raw, "data")), "data")
    return raw


def said_in(error: Mapping[str, Any]) -> tuple[str | None, bytes | None]:
    """Return code and data of an error that a receiver answered.

    What is no code, or no data of ours, is passed over: receivers may answer anything.
    """
    code: Any = error.get("code")
    if not is_code(code) or code in GENERIC:
        code = None
    try:
        data = kept_data(values.decode(msgspec.json.encode(error.get("data")), "data"))
    except (InvalidInputError, UnicodeEncodeError):
        data = None
    return code, data


def job_failed(
    id: str, state: str, error: str | None, code: str | None = None, status: int | None = None, data: Any = None
) -> JobFailedError:
    """Return the error for whoever waits for the result of a job that is dead, was cancelled or expired."""
    said = f": {error}" if error else ""
    return JobFailedError(
        f"job {id!r} is {state}{said}", code=code, status=status if is_status(status) else None, data=data, id=id,
        state=state,
    )  # fmt: skip
