"""What an answer, or the lack of one, means: the table of the contract, section 3."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from tocsin.dispatch.callback import Outcome, Verdict
from tocsin.dispatch.transport import Answer, DeadlinePassed, NeverConnected, TransportError

RESPONSE_KEPT = 2 * 1024
RETRY_AFTER_MAX_MS = 3_600_000
GONE = 410


def classify(answer: Answer, now_ms: int) -> Outcome:
    """`now_ms` is the instant a Retry-After date counts from."""
    status, kept = answer.status, answer.body[:RESPONSE_KEPT]
    if 200 <= status <= 299:
        return Outcome(Verdict.DONE, status=status, response=kept)
    said = f"HTTP {status}"
    if status == 409 and answer.headers.get("tocsin-declined", "").strip() == "1":
        return Outcome(Verdict.DECLINED, f"{said}: declined, an earlier attempt still runs there", status, None, kept)
    if answer.headers.get("tocsin-retry", "").strip().lower() == "never":
        return Outcome(Verdict.DEAD, f"{said}: the receiver asked for no retry", status, None, kept)
    if status == GONE:
        return Outcome(Verdict.DEAD, f"{said}: gone", status, None, kept)
    if status in (429, 503):
        wait = retry_after_ms(answer.headers.get("retry-after"), now_ms)
        if wait is not None:
            return Outcome(Verdict.BUSY, f"{said}: busy, retry after {wait} ms", status, wait, kept)
    return Outcome(Verdict.FAILED, said, status, None, kept)


def retry_after_ms(value: str | None, now_ms: int) -> int | None:
    """Seconds or an HTTP date (RFC 9110, 10.2.3), capped at one hour; None if it is neither."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return RETRY_AFTER_MAX_MS if len(text) > 9 else min(int(text) * 1000, RETRY_AFTER_MAX_MS)
    try:
        at_ms = parsedate_to_datetime(text).timestamp() * 1000
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return int(min(max(at_ms - now_ms, 0), RETRY_AFTER_MAX_MS))


def from_error(error: TransportError) -> Outcome:
    """The outcome of an exchange that brought no whole answer."""
    if isinstance(error, NeverConnected):
        return Outcome(Verdict.UNREACHABLE, f"never connected: {error}")
    if isinstance(error, DeadlinePassed):
        return Outcome(Verdict.UNKNOWN, f"no answer in time: {error}")
    return Outcome(Verdict.FAILED, f"broken exchange: {error}")
