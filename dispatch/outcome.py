"""What an answer, or the lack of one, means: the table of the contract, section 3.

Pure functions. Whether an uncharged outcome is still uncharged long after the due instant is the scheduler's matter.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from tocsin.dispatch.callback import Outcome, Verdict
from tocsin.dispatch.transport import Answer, DeadlinePassed, NeverConnected, TransportError

RESPONSE_KEPT: Final = 2 * 1024
MESSAGE_KEPT: Final = 500
RETRY_AFTER_MAX_MS: Final = 3_600_000
LEASE_MIN_MS, LEASE_MAX_MS = 1_000, 3_600_000
CONFLICT, GONE, TOO_MANY, UNAVAILABLE = 409, 410, 429, 503


def classify(answer: Answer, now_ms: int) -> Outcome:
    """The first row of the table that fits. `now_ms` is the instant a Retry-After date counts from."""
    status, headers, kept = answer.status, answer.headers, answer.body[:RESPONSE_KEPT]
    if 200 <= status <= 299:
        if headers.get("tocsin-accepted", "").strip() == "1":
            held = lease_ms(headers.get("tocsin-lease-ms"))
            return Outcome(Verdict.ACCEPTED, None, status, None, kept, lease_ms=held)
        says = is_json(headers.get("content-type")) and headers.get("tocsin-result", "").strip() != "0"
        result = answer.body if answer.body and says else None
        return Outcome(Verdict.DONE, None, status, None, kept, result)
    said = f"HTTP {status}"
    if status == CONFLICT and headers.get("tocsin-declined", "").strip() == "1":
        return Outcome(Verdict.DECLINED, f"{said}: declined, an earlier attempt still runs there", status, None, kept)
    if headers.get("tocsin-retry", "").strip().lower() == "never":
        return Outcome(Verdict.DEAD, f"{said}: the receiver asked for no retry", status, None, kept)
    if status == GONE:
        return Outcome(Verdict.DEAD, f"{said}: gone", status, None, kept)
    if status in (TOO_MANY, UNAVAILABLE):
        wait = retry_after_ms(headers.get("retry-after"), now_ms)
        if wait is not None:
            return Outcome(Verdict.BUSY, f"{said}: busy, retry after {wait} ms", status, wait, kept)
    if 300 <= status <= 399:
        said += ": redirects are not followed"
    return Outcome(Verdict.FAILED, said, status, None, kept)


def is_json(content_type: str | None) -> bool:
    essence = (content_type or "").partition(";")[0].strip().lower()
    return essence == "application/json" or (essence.startswith("application/") and essence.endswith("+json"))


def lease_ms(value: str | None) -> int | None:
    """How long a receiver that accepted asks to hold the lease: 1 s to 1 h; None if it does not say, or garbage."""
    text = (value or "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    return min(max(int(text[:16]), LEASE_MIN_MS), LEASE_MAX_MS)


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    """Seconds or an HTTP date (RFC 9110, 10.2.3), capped at one hour; None if it is neither. A past date is 0."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        # Longer ones are over the cap without being read: Python refuses thousands of digits.
        return min(int(text[:16]) * 1000, RETRY_AFTER_MAX_MS)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # The oldest of the three date forms names no zone; it is UTC, never this machine's.
    at_ms = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000
    return int(min(max(at_ms - now_ms, 0), RETRY_AFTER_MAX_MS))


def from_error(error: TransportError) -> Outcome:
    """The outcome of an exchange that brought no whole answer."""
    if isinstance(error, NeverConnected):
        return Outcome(Verdict.UNREACHABLE, plain(f"never connected: {error}"))
    if isinstance(error, DeadlinePassed):
        return Outcome(Verdict.UNKNOWN, plain(f"no answer in time: {error}"))
    return Outcome(Verdict.FAILED, plain(f"broken exchange: {error}"))


def plain(text: str) -> str:
    """Fit to be stored and shown: a broken receiver's bytes may be quoted in an error's text."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[:MESSAGE_KEPT])
    return shown if len(text) <= MESSAGE_KEPT else shown + "..."
