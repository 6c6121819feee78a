"""Which errors of a host may pass by themselves, and how long to wait for that."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from tocsin.errors import (
    ActorError,
    HostClosedError,
    QuotaExceededError,
    RequestError,
    SettingsError,
    StoreClosed,
    StoreError,
    TurnError,
    UnreachableError,
)

FIRST_S: Final = 0.1
LONGEST_S: Final = 5.0
LEAST_S: Final = 0.05


def may_pass(error: BaseException) -> bool:
    """Whether the same call may succeed in a while, without anyone acting here."""
    if is_closed(error) or isinstance(error, TurnError):
        return False
    return isinstance(error, (UnreachableError, TimeoutError, ActorError, StoreError, QuotaExceededError))


def is_closed(error: BaseException) -> bool:
    """Whether the host in this process is not open (yet, or any more). A server says it in other words."""
    return isinstance(error, (HostClosedError, StoreClosed))


def told_to_stop(error: BaseException) -> bool:
    """Whether the host in this process will never open: the process ends, so its worker is at no fault."""
    return isinstance(error, HostClosedError) and "toldToStop" in error.details


def is_refusal(error: BaseException) -> bool:
    """Whether the request itself is at fault: a wrong token, a wrong name."""
    return isinstance(error, (RequestError, SettingsError)) and not isinstance(error, QuotaExceededError)


def gives_up(error: BaseException) -> bool:
    """Whether what must be said once is not said again: it was refused, or there is nobody any more who could hear it.
    A fault that nobody expects is no refusal: a server's 500 may be its last."""
    return is_refusal(error) or isinstance(error, (HostClosedError, TurnError))


def stops(error: BaseException) -> bool:
    """Whether this task was cancelled, and not something inside it that lets that show."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class Pauses:
    """0.1 s, doubling up to 5 s, each with up to half of it more by chance: those that failed together come apart."""

    def __init__(self, random: Random) -> None:
        self._random, self._next_s = random, FIRST_S

    def next(self, within: float | None = None) -> float:
        """How long to wait now. Of the time there is `within`, a quarter at most: there are tries until it is over."""
        pause, self._next_s = self._next_s, min(self._next_s * 2, LONGEST_S)
        pause = min(pause * (1 + self._random.random() / 2), LONGEST_S)
        return pause if within is None else min(pause, max(within / 4, LEAST_S))
