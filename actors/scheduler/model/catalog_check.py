"""The catalog of a host, asked when a job is scheduled and again before each attempt: it may have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.catalog.catalog import Catalog, Targeted
from tocsin.dispatch.current import Current
from tocsin.dispatch.words import reworded, word
from tocsin.errors import InvalidInputError, SettingsError

log = logging.getLogger("tocsin.catalog")

CatalogGiven = Catalog | Mapping[str, Any]
"""A catalog, or what makes one: by function path a Python type, a JSON Schema, `Any`, or None for no args."""
SLOW_MS: Final = 50
"""Checking blocks the host's event loop, so what takes longer is logged."""


class CatalogCheck:
    """Checks targets and args; without a catalog it accepts everything. `monotonic` is in seconds."""

    def __init__(
        self,
        given: CatalogGiven | Callable[[], CatalogGiven | None] | None,
        monotonic: Callable[[], float],
    ) -> None:
        """Take a catalog, or a function that is asked at each check; if its answer is wrong, the last good one
        stays."""
        self.given = given is not None
        self._monotonic = monotonic
        self._slow: set[str] = set()
        self._current: Callable[[], Catalog | None] = _nothing
        if given is not None:
            asked = given if isinstance(given, Catalog) or not callable(given) else _copying(given)
            self._current = Current("catalog", asked, _catalog_of)

    @property
    def catalog(self) -> Catalog | None:
        """Return the catalog in force."""
        return self._current()

    def refusal(self, target: Targeted, raw_args: bytes) -> str | None:
        """Say why this may not be run with these args, or None. Never raises; `raw_args` is JSON text as it is
        stored."""
        catalog = self._current()
        if catalog is None:
            return None
        began = self._monotonic()
        refused = _refusal(catalog, target, raw_args)
        took_ms = (self._monotonic() - began) * 1000
        if took_ms > SLOW_MS:
            self._note_slow(target, len(raw_args), took_ms)
        return refused

    def check(self, target: Targeted, raw_args: bytes) -> None:
        """Raise InvalidInputError if there is a refusal."""
        if (refused := self.refusal(target, raw_args)) is not None:
            raise InvalidInputError(reworded(refused, {"functionPath": word("function_path")}))

    def before_attempt(self, target: Targeted, raw_args: bytes) -> AttemptOutcome | None:
        """Return how an attempt ends that must not begin: the job is parked as dead, reason `blocked`."""
        refused = self.refusal(target, raw_args)
        return None if refused is None else AttemptOutcome(Verdict.BLOCKED, f"not sent: {refused}")

    def _note_slow(self, target: Targeted, size: int, took_ms: float) -> None:
        name = target.function_path or target.workflow or ""
        if name not in self._slow:
            self._slow.add(name)
            log.warning(
                "checking %d bytes of args of %r took %d ms, while nothing else ran: bound their lengths in the "
                "catalog (maxItems, maxLength)",
                size, name, took_ms,
            )  # fmt: skip


def _refusal(catalog: Catalog, target: Targeted, raw_args: bytes) -> str | None:
    try:
        return catalog.refusal(target, raw_args)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a panic in a library is no Exception, and must neither send nor lose a job
        log.error("checking args of %r failed", target.function_path or target.workflow, exc_info=error)
        return f"args: their check failed with {type(error).__name__}; the host's log says why"


def _nothing() -> Catalog | None:
    return None


def _copying(given: Callable[[], CatalogGiven | None]) -> Callable[[], CatalogGiven | None]:
    """Ask for a copy each time: the owner of a dict may go on filling it."""

    def ask() -> CatalogGiven | None:
        answer = given()
        return dict(answer) if isinstance(answer, Mapping) else answer

    return ask


def _catalog_of(given: object) -> Catalog | None:
    if given is None or isinstance(given, Catalog):
        return given
    if isinstance(given, Mapping):
        return Catalog(given)
    raise SettingsError(f"catalog must be a dict, a Catalog or a function that gives one, not {type(given).__name__}")
