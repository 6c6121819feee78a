"""Note in memory what a turn changes of groups; at its end each of them is read, counted and written once."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.model.groups import GroupRow

KEPT: Final = 64
"""Groups whose rows stay in memory between turns."""
Delta = dict[str, int]


class Groups:
    """The groups that one scheduler has used lately."""

    def __init__(self) -> None:
        self.rows: dict[str, GroupRow] = {}
        """As they are now, but for `deltas`."""
        self.stored: dict[str, GroupRow] = {}
        """As they are in the store, or in the layer of this turn."""
        self.deltas: dict[tuple[str, str], Delta] = {}
        """By name and uid: what this turn has added to its counts."""
        self.changed: set[str] = set()
        """Groups to be looked at when the turn ends."""
        self.started = 0
        """About how many bytes of what follows groups were started in this turn."""

    @property
    def touched(self) -> bool:
        return bool(self.deltas or self.changed)

    def members(self, name: str) -> int:
        """Return how many members a group has that was read, those that joined in this turn included."""
        joined = sum(by.get("members", 0) for (one, _), by in self.deltas.items() if one == name)
        return self.rows[name].members + joined

    def put(self, name: str, row: GroupRow) -> None:
        """Change a group; it is written when the turn ends."""
        self.rows[name] = row
        self.changed.add(name)

    def end_turn(self) -> None:
        """Keep no more rows than may be kept."""
        self.started = 0
        if len(self.rows) > KEPT:
            self.rows.clear()
            self.stored.clear()
