"""What actors are told: events are plain data, and the type of each names the type of its answer."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import msgspec

from tocsin.errors import InvalidInputError

A = TypeVar("A")


class Event(msgspec.Struct, Generic[A], frozen=True, tag=True):
    """One request to an actor, answered with an `A`. What msgspec cannot encode is no part of an event."""


class Call(Event[Any], frozen=True):
    """Run a public coroutine method of a user's actor."""

    method: str
    args: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.method.startswith("_"):
            raise InvalidInputError(f"{self.method} is not an event: names that start with _ are private")


class Ring(Event[None], frozen=True):
    """The actor's alarm is due."""


def answer(event: Event[A], value: A) -> A:
    """Return `value`. The type checker verifies that it is what `event` is answered with."""
    return value


def fail(reply: asyncio.Future[Any], error: BaseException) -> None:
    """Tell whoever waits for the answer, unless nobody does any more."""
    if not reply.done():
        reply.set_exception(error)
        reply.exception()  # a caller that went away leaves nobody to hear it


def name_of(event: Event[Any]) -> str:
    return event.method if isinstance(event, Call) else type(event).__name__
