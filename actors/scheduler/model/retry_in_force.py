"""The retry ladder of a job as it is shown: whole, in the words in which it was asked for."""

from __future__ import annotations

import msgspec

from tocsin.dispatch.plain import Plain
from tocsin.dispatch.retry import Backoff, OlderRetry, Retry


class RetryInForce(Plain, msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole retry ladder, in the words in which it was asked for: `maxRetries`, or the older `maxAttempts`."""

    max_retries: int | msgspec.UnsetType = msgspec.UNSET
    max_attempts: int | msgspec.UnsetType = msgspec.UNSET
    backoff: Backoff
    base_ms: int | float
    max_ms: int | float
    jitter: int | float


def in_force(retry: Retry) -> RetryInForce:
    times = {"max_attempts" if isinstance(retry, OlderRetry) else "max_retries": retry.max_retries}
    return RetryInForce(**times, backoff=retry.backoff, base_ms=retry.base_ms, max_ms=retry.max_ms, jitter=retry.jitter)
