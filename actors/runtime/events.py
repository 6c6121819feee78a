"""Events, which are plain data. The type of an event names the type of its answer."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import msgspec

from tocsin.errors import InvalidInputError

A = TypeVar("A")


class Event(msgspec.Struct, Generic[A], frozen=True, tag=True):
    """One request to an actor, answered with an `A`. Its fields are what msgspec can encode."""


class Call(Event[Any], frozen=True):
    """Runs a public coroutine method of a user's actor."""

    method: str
    args: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.method.startswith("_"):
            raise InvalidInputError(f"{self.method} is not an event: names that start with _ are private")


class OfRuntime(Event[A], Generic[A], frozen=True):
    """An event that the runtime carries out, not the actor by itself."""


class Ring(OfRuntime[None], frozen=True):
    """Tells the actor that its alarm is due."""


class Once(OfRuntime[A], Generic[A], frozen=True):
    """Has an event done at most once under this operation id, however often it comes; `answer` is the type of its
    answer, which is kept with what it changed."""

    op: str
    event: Event[A]
    answer: Any = None


def answer(event: Event[A], value: A) -> A:
    """Return `value`. The type checker verifies that `event` is answered with its type."""
    return value


def fail(reply: asyncio.Future[Any], error: BaseException) -> None:
    """Set the error on the future of an answer, unless it is done or cancelled."""
    if not reply.done():
        reply.set_exception(error)
        reply.exception()  # a caller that went away leaves nobody to hear it


def name_of(event: Event[Any]) -> str:
    return event.method if isinstance(event, Call) else type(event).__name__
