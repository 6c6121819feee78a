"""Hold rows in memory and read them like a store, so that a small store is read only once for many questions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tocsin.storage.api import MAX_SCAN_BYTES, Range, Row, StoreView

PAGE = 5_000


class InMemoryView(StoreView):
    """Rows in key order."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._keys = [key for key, _ in rows]
        self._values = dict(rows)

    def prefixes(self) -> set[bytes]:
        """Return what keys begin with, up to their first slash; a key without a slash is returned whole."""
        return {key[: key.find(b"/") + 1] or key for key in self._keys}

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {key: self._values[key] for key in keys if key in self._values}

    async def scan_many(
        self, ranges: Sequence[Range], *, max_bytes: int = MAX_SCAN_BYTES, reverse: bool = False
    ) -> list[list[Row]]:
        """Return all rows of each range. They are in memory, so `max_bytes` bounds nothing."""
        return [self._range(*one, reverse) for one in ranges]

    def _range(self, start: bytes, end: bytes, limit: int, reverse: bool) -> list[Row]:
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, end)
        keys = self._keys[max(low, high - limit) : high][::-1] if reverse else self._keys[low : min(high, low + limit)]
        return [(key, self._values[key]) for key in keys]


async def hold(view: StoreView) -> StoreView:
    """Return a view of the rows in memory if they are few, else the view they came from."""
    rows = await view.scan(b"\x01", b"\xff", limit=PAGE)
    size = sum(len(key) + len(value) for key, value in rows)
    return InMemoryView(rows) if len(rows) < PAGE and size < MAX_SCAN_BYTES else view
