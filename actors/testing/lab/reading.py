"""Readings that must be awaited: one that is not would pass for true, and a test with it could not fail."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")


class Reading(Generic[T]):
    """An awaitable answer. Used without `await` it raises, and so does a lab at its end if one was not awaited."""

    def __init__(self, name: str, read: Callable[[], Coroutine[Any, Any, T]], all_made: list[Reading[Any]]) -> None:
        self._name, self._read, self.awaited = name, read, False
        frame = sys._getframe(2)
        self.where = f"{name} at {frame.f_code.co_filename}:{frame.f_lineno}"
        all_made.append(self)

    def __del__(self) -> None:
        if not self.awaited:
            warnings.warn(f"{self.where} was not awaited, so it checked nothing", RuntimeWarning, stacklevel=1)

    def __await__(self) -> Generator[Any, Any, T]:
        self.awaited = True
        return self._read().__await__()

    def _refuse(self, *_: object) -> NoReturn:
        self.awaited = True  # said already
        raise TypeError(f"{self._name} must be awaited: await t.{self._name}(...)")

    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __eq__ = _refuse
    __hash__ = object.__hash__


def unawaited(made: list[Reading[Any]]) -> str | None:
    """Return what to say of readings that nobody awaited; None if there are none."""
    forgotten = [one.where for one in made if not one.awaited]
    for one in made:
        one.awaited = True  # told here
    made.clear()
    return f"these were not awaited, so they checked nothing: {', '.join(forgotten)}" if forgotten else None
