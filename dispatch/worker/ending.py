"""Classify the end of a handler: how the attempt is settled, and in which words."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import dataclass
from typing import Any, Final

from tocsin.dispatch.pulled import Claimed
from tocsin.dispatch.receiver.outcomes import HandlerError, RetryLater
from tocsin.errors import NotFoundError

UNKNOWN_AGAIN_S: Final = 30.0
"""When a job without a handler is tried again."""
LATER_S: Final = (1, 100 * 366 * 86_400)
"""A handler that asked to be called again at once would keep the machine busy; a host books no instant that is further
off than a few thousand years."""
MAX_ERROR: Final = 2_000
"""Characters of an error: what a scheduler keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOutcome:
    """The members of a settlement. `cause` is for hooks; without one they are not called."""

    ok: bool = False
    error: str | HandlerError | None = None
    retryable: bool = True
    charge: bool = True
    delay_s: float | None = None
    result: Any = None
    cause: BaseException | None = None


def failed(error: BaseException) -> HandlerOutcome:
    """Return what an error of the handler means."""
    if isinstance(error, HandlerError):
        said = error if error.is_coded else written(error.message)
        return HandlerOutcome(error=said, retryable=error.retryable, cause=error)
    if isinstance(error, RetryLater):
        return HandlerOutcome(error=written(error.message), charge=False, delay_s=later_s(error), cause=error)
    if isinstance(error, CancelledError):
        return HandlerOutcome(error="the handler was cancelled, and not by its worker", cause=error)
    return HandlerOutcome(error=described(error), cause=error)


def later_s(error: RetryLater) -> int:
    """Return in how many seconds the job is tried again."""
    return min(max(error.delay_s, LATER_S[0]), LATER_S[1])


def timed_out(timeout_s: float, *, goes_on: str = "") -> HandlerOutcome:
    words = f"timed out after {timeout_s:g} s{goes_on}"
    return HandlerOutcome(error=words, cause=TimeoutError(words))


def interrupted(*, delay_s: float = 0, goes_on: str = "") -> HandlerOutcome:
    """Give the job back uncharged, because its worker stopped."""
    return HandlerOutcome(error=f"interrupted by shutdown{goes_on}", charge=False, delay_s=delay_s)


def cancelled() -> HandlerOutcome:
    """Free the slot of a job that was cancelled while it ran."""
    return HandlerOutcome(error="cancelled", charge=False, delay_s=0)


def unknown(job: Claimed) -> HandlerOutcome:
    """Give a job without a handler back uncharged: during a rollout another worker may have it."""
    kind, name = ("function path", job.function_path) if job.workflow is None else ("workflow", job.workflow)
    error = NotFoundError(f"this worker has no handler for the {kind} {str(name)[:200]!r}")
    return HandlerOutcome(error=error.message, charge=False, delay_s=UNKNOWN_AGAIN_S, cause=error)


def unstorable(error: BaseException) -> HandlerOutcome:
    """Make the job dead whose result cannot be kept: every retry would do its work again, to the same end."""
    words = f"the handler succeeded, but what it returned cannot be kept: {described(error)}"
    return HandlerOutcome(error=written(words), retryable=False, cause=error)


def described(error: BaseException) -> str:
    """Return the kind of an error and its text."""
    try:
        text = str(error)
    except Exception:  # its own code failed
        text = "(its text cannot be had)"
    return written(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def written(text: str) -> str:
    """Cut a text, and replace its unpaired surrogates, which cannot be sent."""
    return text[:MAX_ERROR].encode("utf-8", "replace").decode()


def fields_of(job: Claimed) -> dict[str, object]:
    """Return what names an attempt to programs that read the log."""
    trace = {} if job.traceparent is None else {"trace_id": job.traceparent[3:35]}
    path = (job.function_path or job.workflow or "")[:200]
    return {
        "instance": job.instance_name, "id": job.id, "path": path, "attempt": job.attempt, "queue": job.queue, **trace
    }  # fmt: skip
