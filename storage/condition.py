"""Track the trouble of a store, during which no new work is accepted or begun on it. Each change is logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tocsin.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable

log = logging.getLogger("tocsin.storage")


class Condition:
    """Hold what is wrong, from bad to worse: `full` and `failing` pass by themselves, `broken` lasts until somebody
    acts."""

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        """`changed` is called after each change of `full` or `trouble`."""
        self._path, self._changed = path, changed
        self.full = False
        self._why_full: StoreError | None = None
        self.refusals = 0
        """How often the store was full: what was seen before the last time is out of date."""
        self._failing: StoreError | None = None
        self._broken: StoreError | None = None
        self.trouble: StoreError | None = None
        """The worst of it; None if all is well."""

    @property
    def passes(self) -> bool:
        """Return whether there is trouble that may be over by itself."""
        return self._broken is None and self.trouble is not None

    def start(self) -> None:
        self.full, self._failing, self._broken = False, None, None
        self._judge()

    def note(self, error: StoreError, *, writing: bool) -> None:
        """Judge an operation that failed. An error of one actor's batch or of one read is no trouble of the store."""
        if isinstance(error, StoreCorrupt):
            if self._broken is None:
                log.critical("%s is damaged: nothing new is accepted or begun. %s", self._path, error)
            self._broken = self._broken or error
        elif error.owner_lost or (writing and isinstance(error, StoreUnavailable)):
            if self._failing is None:
                log.error("%s cannot be used: nothing new is accepted or begun until it can. %s", self._path, error)
            self._failing = error
        self._judge()

    def now_full(self, error: StoreFull) -> None:
        if not self.full:
            log.error("%s has no space: no new work is accepted until it has. %s", self._path, error)
        self.full, self._why_full = True, error
        self.refusals += 1
        self._judge()

    def has_space(self, refusals: int) -> None:
        """Note that space was found when the store had been full `refusals` times."""
        if refusals != self.refusals:
            return
        if self.full:
            log.warning("%s has space again", self._path)
        self.full = False
        self._judge()

    def works(self) -> None:
        """Note that a transaction was written."""
        if self._failing is not None:
            log.warning("%s can be used again", self._path)
        self._failing = None
        self._judge()

    def _judge(self) -> None:
        full = StoreFull(str(self._why_full)) if self.full else None
        self.trouble = self._broken or self._failing or full
        self._changed()
