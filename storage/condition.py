"""What is wrong with a store, so that nothing new is accepted or begun on it; said in the log once per change."""

from __future__ import annotations

import logging
from pathlib import Path

from tocsin.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable

log = logging.getLogger("tocsin.storage")


class Condition:
    """From bad to worse: `full` and `failing` pass by themselves, `broken` lasts until somebody acts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.full = False
        self._why_full: StoreError | None = None
        self.refusals = 0
        """How often it was full: what was seen before the last time says nothing of now."""
        self.failing: StoreError | None = None
        self.broken: StoreError | None = None

    @property
    def trouble(self) -> StoreError | None:
        """The worst of it; None if all is well."""
        if (worst := self.broken or self.failing) is not None:
            return worst
        return StoreFull(str(self._why_full)) if self.full else None

    @property
    def passes(self) -> bool:
        """There is trouble that may be over by itself."""
        return self.broken is None and (self.full or self.failing is not None)

    def start(self) -> None:
        self.full, self.failing, self.broken = False, None, None

    def note(self, error: StoreError, *, writing: bool) -> None:
        """An operation failed so. What one actor's batch or one bad read did is no trouble of the store."""
        if isinstance(error, StoreCorrupt):
            if self.broken is None:
                log.critical("%s is damaged: nothing new is accepted or begun. %s", self._path, error)
            self.broken = self.broken or error
        elif error.owner_lost or (writing and isinstance(error, StoreUnavailable)):
            if self.failing is None:
                log.error("%s cannot be used: nothing new is accepted or begun until it can. %s", self._path, error)
            self.failing = error

    def now_full(self, error: StoreFull) -> None:
        if not self.full:
            log.error("%s has no space: no new work is accepted until it has. %s", self._path, error)
        self.full, self._why_full = True, error
        self.refusals += 1

    def has_space(self, refusals: int) -> None:
        """Seen when it had been full so often."""
        if refusals != self.refusals:
            return
        if self.full:
            log.warning("%s has space again", self._path)
        self.full = False

    def works(self) -> None:
        """A transaction was written."""
        if self.failing is not None:
            log.warning("%s can be used again", self._path)
        self.failing = None
