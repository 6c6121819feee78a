"""Read which layout the rows of a scheduler have (docs/rows.md). No other module reads the number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tocsin.actors.scheduler.model.rows import META_COUNTERS, META_LAYOUT

OLDEST: Final = b"1"


def layout_of(meta: Mapping[bytes, bytes]) -> bytes | None:
    """Return the number as it is written; None: there are no rows yet. `meta` holds the rows `meta/layout` and
    `meta/counters`, if they exist.

    Earlier versions wrote no number for a scheduler that was removed and used again before its next activation. What
    its rows lack is not known, so they count as the oldest layout.
    """
    return meta.get(META_LAYOUT, OLDEST if META_COUNTERS in meta else None)
