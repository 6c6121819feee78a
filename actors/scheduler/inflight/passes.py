"""Passes: each opens one WebSocket of a browser, which can send no header with it. Kept in memory, by digest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

LIFE_S: Final = 60.0
MOST: Final = 10_000
"""If more are given out within a minute, the oldest are forgotten."""


class Passes(Protocol):
    """Passes of all processes of one store."""

    async def keep(self, digest: str, holder: str) -> None:
        """Keep a pass for 60 seconds; `holder` says for whom."""
        ...

    async def take(self, digest: str) -> str | None:
        """Return for whom a pass is, and forget it; None if there is none."""
        ...


class LocalPasses:
    """Passes in the process that holds the store."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: dict[str, tuple[float, str]] = {}

    async def keep(self, digest: str, holder: str) -> None:
        now = self._monotonic()
        while self._kept:
            oldest = next(iter(self._kept))
            if now - self._kept[oldest][0] < LIFE_S and len(self._kept) < MOST:
                break
            del self._kept[oldest]
        self._kept[digest] = now, holder

    async def take(self, digest: str) -> str | None:
        at, holder = self._kept.pop(digest, (float("-inf"), ""))
        return holder if self._monotonic() - at < LIFE_S else None
