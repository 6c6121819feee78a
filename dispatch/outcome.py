"""Classify an answer, or the lack of one, by the table of the contract, section 3.

Pure functions. Whether an uncharged outcome is still uncharged long after the due instant is the scheduler's matter.
"""

from __future__ import annotations

from typing import Final

from tocsin.dispatch.answer_contents import (
    has_result,
    is_json,
    lease_ms,
    location,
    no_result_of,
    retry_after_ms,
    says,
    words_of,
)
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.failure import GONE, said_in
from tocsin.dispatch.transport import Answer, DeadlinePassed, NeverConnected, TransportError

RESPONSE_KEPT: Final = 2 * 1024
MESSAGE_KEPT: Final = 500
CONFLICT, TOO_MANY, UNAVAILABLE = 409, 429, 503


def classify(answer: Answer, now_ms: int) -> AttemptOutcome:
    """Return the first row of the table that fits: status and headers decide, however long the body is.

    `now_ms` is the instant a Retry-After date counts from.
    """
    status, headers, kept = answer.status, answer.headers, answer.body[:RESPONSE_KEPT]
    if 200 <= status <= 299:
        if "tocsin-accepted" in headers and says(headers, "tocsin-accepted", "1"):
            return AttemptOutcome(Verdict.ACCEPTED, None, status, None, kept, lease_ms=lease_ms(headers))
        return _done(answer, kept)
    is_redirect = 300 <= status <= 399  # its body is a page for browsers
    said, (words, error) = f"HTTP {status}", ("", None) if is_redirect else words_of(answer)
    own = f": {words}" if words else ""
    code, data = (None, None) if error is None else said_in(error)
    if status == CONFLICT and says(headers, "tocsin-declined", "1"):
        said = f"{said}: declined, an earlier attempt still runs there{own}"
        return AttemptOutcome(Verdict.DECLINED, said, status, None, kept)
    if says(headers, "tocsin-retry", "never"):
        said = f"{said}: the receiver asked for no retry{own}"
        return AttemptOutcome(Verdict.DEAD, said, status, None, kept, error_code=code, error_data=data)
    if status == GONE:
        said = f"{said}: gone{own}"
        return AttemptOutcome(Verdict.DEAD, said, status, None, kept, error_code=code, error_data=data)
    if status in (TOO_MANY, UNAVAILABLE):
        wait = retry_after_ms(headers, now_ms)
        if wait is not None:
            return AttemptOutcome(Verdict.BUSY, f"{said}: busy, retry after {wait} ms{own}", status, wait, kept)
    if is_redirect:
        return AttemptOutcome(Verdict.FAILED, _redirected(answer), status, None, kept)
    return AttemptOutcome(Verdict.FAILED, f"{said}{own}", status, None, kept, error_code=code, error_data=data)


def _redirected(answer: Answer) -> str:
    said = f"HTTP {answer.status}: redirects are not followed"
    where = location(answer.headers)
    return plain(f"{said}; it leads to {where}") if where else said


def _done(answer: Answer, kept: bytes) -> AttemptOutcome:
    """Judge a success. The beginning of a body is no result: JSON that was cut off says something else, or nothing."""
    status, body, meant = answer.status, answer.body, has_result(answer.headers)
    why = None
    if not meant:
        why = no_result_of(answer)
    elif answer.cut:
        why = f"the body is longer than {len(body)} bytes, so it is not kept as the result"
    elif body and not is_json(body):
        why = "the body is not JSON, so it is not kept as the result"
    if why is not None:
        return AttemptOutcome(Verdict.DONE, f"HTTP {status}: {why}", status, None, kept)
    return AttemptOutcome(Verdict.DONE, None, status, None, kept, body if body and meant else None)


def from_error(error: TransportError) -> AttemptOutcome:
    """Return the outcome of an exchange that brought no whole answer."""
    if isinstance(error, NeverConnected):
        return AttemptOutcome(Verdict.UNREACHABLE, plain(f"never connected: {error}"))
    if isinstance(error, DeadlinePassed):
        return AttemptOutcome(Verdict.UNKNOWN, plain(f"no answer in time: {error}"))
    return AttemptOutcome(Verdict.FAILED, plain(f"broken exchange: {error}"))


def plain(text: str) -> str:
    """Return text that is fit to be stored and shown: an error may quote the bytes of a broken receiver."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:MESSAGE_KEPT])
    return shown if len(text) <= MESSAGE_KEPT else shown + "..."
