"""All answers that a receiver gives. What the scheduler does with each stands in section 3 of the contract."""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.dispatch.receiver.outcomes import Accepted, HandlerError, RetryLater
from tocsin.dispatch.transport import Answer
from tocsin.errors import TocsinError

JSON: Final = {"content-type": "application/json"}
MAX_MESSAGE: Final = 4_000
"""Characters. A scheduler keeps 2 KiB of an answer, and takes one of over 64 KiB for broken, whatever it says."""
LONGEST_DELAY_S: Final = 3_600
"""The scheduler waits no longer after a callback, whatever it is asked."""
UNAVAILABLE_S: Final = 5
"""Asked for where the receiver is not able to answer well: no handler's fault, so not charged."""


NO_RESULT: Final = {**JSON, "tocsin-result": "0"}
"""The body says nothing that the handler has said."""
DONE: Final = Answer(200, NO_RESULT, b'{"ok":true}')
"""Of a handler that returned nothing."""


def done(result: bytes | None) -> Answer:
    """Answer with what the handler returned, as JSON."""
    return DONE if result is None else Answer(200, JSON, result)


def done_without_result(why: str) -> Answer:
    """Answer for a handler whose result cannot be sent: the work is done, and `why` stays with it."""
    return Answer(200, NO_RESULT, msgspec.json.encode({"ok": True, "noResult": _written(why)}))


def duplicate() -> Answer:
    """Answer for a job that was done before, and whose result is nothing or no longer kept."""
    return Answer(200, NO_RESULT, b'{"ok":true,"duplicate":true}')


def accepted(how: Accepted) -> Answer:
    headers = {**JSON, "tocsin-accepted": "1"}
    if how.lease_ms is not None:
        headers["tocsin-lease-ms"] = str(how.lease_ms)
    return Answer(202, headers, b'{"accepted":true}')


def declined(why: str) -> Answer:
    """Refuse a delivery while another one runs: not charged, sent again after 30 s or the backoff."""
    return _answer(409, "DECLINED", why, {"tocsin-declined": "1"})


def later(how: RetryLater) -> Answer:
    return _answer(how.status, how.code, how.message, {"retry-after": str(min(how.delay_s, LONGEST_DELAY_S))})


def said(how: HandlerError) -> Answer:
    """Answer with what the handler's error says for people and programs; a TerminalError asks for no retry."""
    failure = how.failure
    headers = JSON if how.retryable else {**JSON, "tocsin-retry": "never"}
    error: dict[str, object] = {"code": failure.code or how.plain[0], "message": _written(failure.message)}
    if failure.data is not None:
        error["data"] = msgspec.Raw(failure.data)
    status = failure.status or how.plain[1]
    return Answer(status, headers, msgspec.json.encode({"error": error}))


def unavailable(why: str) -> Answer:
    return _answer(503, "UNAVAILABLE", why, {"retry-after": str(UNAVAILABLE_S)})


def unknown_target(kind: str, name: str) -> Answer:
    """Refuse for now: while a new version is rolled out, the next receiver may know the target."""
    return _answer(404, "NOT_FOUND", f"no handler is registered here for the {kind} {name[:200]!r}")


def failed(name: str, error: BaseException) -> Answer:
    """Say the kind of error only: its text may hold what the scheduler's operators should not see."""
    return _answer(
        500, "HANDLER_FAILED", f"the handler of {name[:200]!r} raised {type(error).__name__}; the log says more"
    )


def refused(error: TocsinError) -> Answer:
    """Answer for a request that never came to a handler."""
    return _answer(error.status, error.code, error.message)


def method_not_allowed(method: str) -> Answer:
    return _answer(405, "METHOD_NOT_ALLOWED", f"callbacks are sent by POST, not {method[:20]}", {"allow": "POST"})


def too_slow(seconds: float) -> Answer:
    return _answer(408, "REQUEST_TIMEOUT", f"the body did not arrive within {seconds:g} s")


def _answer(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Answer:
    body = msgspec.json.encode({"error": {"code": code, "message": _written(message)}})
    return Answer(status, {**JSON, **(headers or {})}, body)


def _written(message: str) -> str:
    """Cut a message, and replace its unpaired surrogates, which JSON cannot hold."""
    return message[:MAX_MESSAGE].encode("utf-8", "replace").decode()
