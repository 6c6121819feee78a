"""`SyncLab`: a lab for tests that are plain functions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, Self, TypeVar

from tocsin.actors.testing.lab.lab import AppGiven, Lab, lab

T = TypeVar("T")


class SyncLab:
    """The same as `lab`, on an event loop of its own: `with SyncLab(create_app) as t: t.advance("3d")`.

    What a lab has is here without `await`; so are methods of the handles and the client that it returns. `t.run(...)`
    runs a coroutine of the test's own.
    """

    def __init__(self, app: AppGiven = None, **options: Any) -> None:
        self.lab: Lab = lab(app, **options)
        self.__wrapped__ = self.lab  # as of a wrapper made by functools: a Drain asks for it
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)

    def __enter__(self) -> Self:
        self._runner.__enter__()
        try:
            self.run(self.lab.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self.lab.__aexit__(kind, error, trace))
        finally:
            self._runner.close()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Return what this comes to."""

        async def whole() -> T:
            return await awaitable

        return self._runner.run(whole())

    def __getattr__(self, name: str) -> Any:
        return self._blocking(getattr(self.lab, name))

    def _blocking(self, value: Any) -> Any:
        """Return it with its coroutines run, as far as a test calls them."""
        if callable(value) and not inspect.isclass(value):
            return lambda *args, **kwargs: self._done(value(*args, **kwargs))
        return _Blocking(value, self) if type(value).__module__.startswith(("tocsin.", "httpx")) else value

    def _done(self, answer: Any) -> Any:
        if isinstance(answer, Awaitable):
            return self.run(answer)
        return self._blocking(answer) if _has_coroutines(answer) else answer


class _Blocking:
    """An object whose coroutines are run to their end."""

    def __init__(self, value: Any, owner: SyncLab) -> None:
        self._value, self._owner = value, owner
        self.__wrapped__ = value

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._value, name)
        if _has_coroutines(value):
            return _Blocking(value, self._owner)
        return self._owner._blocking(value) if callable(value) else value


def _has_coroutines(value: object) -> bool:
    return any(inspect.iscoroutinefunction(each) for each in vars(type(value)).values())
