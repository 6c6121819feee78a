"""Tell what one turn of a scheduler did, for those who watch its host: noted once the turn is durable, then begun anew.

Nothing is kept of a turn that is lost: its scheduler is read anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Tally(msgspec.Struct):
    """The deeds of one turn. What happens in it is appended, and nothing else: it is counted when somebody asks."""

    before: tuple[int, ...]
    """The counters (`counters.levels`) at the end of the turn before, or when the scheduler was read."""
    after: tuple[int, ...] = ()
    attempts: list[str] = []
    """The outcomes of attempts that ended."""
    expired: Sequence[str] = ()
    """The kinds of leases that ended before their attempts were settled."""
    took: Sequence[float] = ()
    """How long workers took which said themselves how it went, ms."""
    reasons: Sequence[str] = ()
    """The reasons for which jobs died."""
