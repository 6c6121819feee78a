"""Which errors of a host may pass by themselves, and how long to wait for that."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from tocsin import errors

FIRST_S: Final = 0.1
LONGEST_S: Final = 5.0
LEAST_S: Final = 0.05
TOLD_AGAIN_S: Final = 60.0


def may_pass(error: BaseException) -> bool:
    """Return whether the same call may succeed in a while, without anyone acting here."""
    if is_closed(error) or isinstance(error, errors.TurnError):
        return False
    return isinstance(
        error, (errors.UnreachableError, TimeoutError, errors.ActorError, errors.StoreError, errors.QuotaExceededError)
    )


def is_closed(error: BaseException) -> bool:
    """Return whether the host in this process is not open. A server says it in other words."""
    return isinstance(error, (errors.HostClosedError, errors.StoreClosed))


def told_to_stop(error: BaseException) -> bool:
    """Return whether the host in this process will never open, since the process ends: no fault of its worker."""
    return isinstance(error, errors.HostClosedError) and "toldToStop" in error.details


def is_refusal(error: BaseException) -> bool:
    """Return whether the request itself is at fault: a wrong token, a wrong name."""
    return isinstance(error, (errors.RequestError, errors.SettingsError)) and not isinstance(
        error, errors.QuotaExceededError
    )


def gives_up(error: BaseException) -> bool:
    """Return whether a request that must succeed once is not repeated: it was refused, or its host is closed.

    A fault that nobody expects is no refusal: a server's 500 may be its last.
    """
    return is_refusal(error) or isinstance(error, (errors.HostClosedError, errors.TurnError))


def stops(error: BaseException) -> bool:
    """Return whether this task was cancelled, and not something inside it that lets that show."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class Missed:
    """Paths without a handler: each is told once a minute, however many jobs of it come."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def is_news(self, path: str, now: float) -> bool:
        """Return whether nothing was said of this path within the last minute; then it counts as said now."""
        self._told = {one: at for one, at in self._told.items() if now - at < TOLD_AGAIN_S}
        if path in self._told:
            return False
        self._told[path] = now
        return True


class Pauses:
    """Pauses of 0.1 s, doubling up to 5 s, each up to half longer by chance, so that callers come apart."""

    def __init__(self, random: Random) -> None:
        self._random, self._next_s = random, FIRST_S

    def next(self, within: float | None = None) -> float:
        """Return how long to wait now: at most a quarter of `within`, so that tries go on until it is over."""
        pause, self._next_s = self._next_s, min(self._next_s * 2, LONGEST_S)
        pause = min(pause * (1 + self._random.random() / 2), LONGEST_S)
        return pause if within is None else min(pause, max(within / 4, LEAST_S))
