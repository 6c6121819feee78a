"""Memory of the calls that are kept while jobs of their ids run. Few schedulers have any: the others have no such
object."""

from __future__ import annotations

from dataclasses import dataclass, field

from tocsin.actors.scheduler.model.later_rows import LaterRow


@dataclass(slots=True)
class Later:
    """Calls that are kept."""

    kept: dict[str, LaterRow] = field(default_factory=dict)
    """By id: their rows, without args."""
    freed: list[str] = field(default_factory=list)
    """Ids whose run has ended, so that the call is to become the job before the turn ends."""
