"""`Current`: secrets, tokens and catalogs that may change while a host runs. What is given is a value, or a callable
that is asked whenever it is needed; nothing polls, and what cannot be read never replaces what could."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from pathlib import PurePath
from traceback import extract_tb
from typing import Any, Final, Generic, TypeVar

from tocsin.errors import SettingsError

log = logging.getLogger("tocsin.settings")

T = TypeVar("T")
_NOTHING: Final = object()


class Current(Generic[T]):
    """The parsed value in force of `given`: a text, a sequence, a catalog, or a callable that returns one.

    A callable is asked at each use and its answer parsed only when it has changed. While it raises, or gives what
    cannot be parsed or nothing at all, the last good value stays in force; each new fault is logged once, without
    the value. The first answer must be good: SettingsError, because there is nothing to fall back on.
    """

    def __init__(self, name: str, given: Any, parse: Callable[[Any], T]) -> None:
        self._name, self._parse = name, parse
        self._ask: Callable[[], Any] | None = given if callable(given) else None
        self._raw: Any = self._read() if self._ask is not None else _frozen(given)
        self._bad: Any = _NOTHING
        self._fault = ""
        self._value = self._parsed(self._raw)

    def __repr__(self) -> str:
        return f"Current({self._name})"

    @property
    def may_change(self) -> bool:
        """Return whether the value has to be asked for at each use."""
        return self._ask is not None

    def __call__(self) -> T:
        """Return the value in force. Raise nothing."""
        if self._ask is None:
            return self._value
        try:
            raw = self._read()
            if raw != self._raw:
                self._change(raw)
            elif self._fault:
                self._mended()
        except SettingsError as error:
            self._log_once(error.message)
        except Exception as error:
            # Comparing a user's values may raise anything; its text might show one.
            self._log_once(f"{self._name}() gave what cannot be compared ({type(error).__name__})")
        return self._value

    def _change(self, raw: Any) -> None:
        if (self._bad is not _NOTHING and raw == self._bad) or not (raw or self._raw):
            return
        self._bad = raw
        if not raw:
            raise SettingsError(f"{self._name}() gave none, where there were some before")
        self._value = self._parsed(raw)
        self._raw = raw
        self._mended()

    def _parsed(self, raw: Any) -> T:
        try:
            return self._parse(raw)
        except TypeError:
            raise SettingsError(f"{self._name} must be a list of texts, not {type(raw).__name__}") from None

    def _mended(self) -> None:
        self._bad, self._fault = _NOTHING, ""

    def _read(self) -> Any:
        assert self._ask is not None
        try:
            return _frozen(self._ask())
        except SettingsError:
            raise
        except Exception as error:
            # Neither its text nor a traceback with it: either might show a secret.
            where = extract_tb(error.__traceback__)[-1]
            place = f"{PurePath(where.filename).name}:{where.lineno}"
            raise SettingsError(f"{self._name}() raised {type(error).__name__} ({place})") from None

    def _log_once(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            log.error("%s: the value before stays in force", fault)


def _frozen(value: Any) -> Any:
    """Return a value that can be compared with a later answer, whatever its owner does to it meanwhile."""
    if inspect.iscoroutine(value):
        value.close()
        raise SettingsError("what may change comes from a plain function, not from an `async def`")
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else value
