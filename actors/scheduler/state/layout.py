"""Which layout the rows of a scheduler have (docs/rows.md): the one place that reads its number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tocsin.actors.scheduler.model.rows import META_COUNTERS, META_LAYOUT

OLDEST: Final = b"1"


def layout_of(meta: Mapping[bytes, bytes]) -> bytes | None:
    """As it is written; None: there are no rows yet. `meta` has the rows `meta/layout` and `meta/counters`, if they are
    there.

    A scheduler that was removed, and used again before its next activation, got no number from earlier versions: what
    such a one lacks is not known, so it counts as the oldest.
    """
    return meta.get(META_LAYOUT, OLDEST if META_COUNTERS in meta else None)
