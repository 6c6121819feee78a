"""An owner's set of schedules, put as a whole: usually what an app declares in its code, at its start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tocsin.actors.scheduler.model.asked_by import AskedBy
from tocsin.actors.scheduler.model.schedule_rows import definition_key
from tocsin.actors.scheduler.schedules.change import NewSchedule, put, remove
from tocsin.actors.scheduler.schedules.schedule import Schedule, load
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import audit
from tocsin.errors import ConflictError
from tocsin.storage.api import after

PAGE: Final = 1_000
NAMED: Final = 10
"""Of the schedules that a registration changed, so many are named in the audit log."""
LEFT_AT_ONCE: Final = 100
"""Of the names that a set leaves out, so many are dealt with in one turn."""


def owned_name(owner: str, name: str) -> str:
    """Return a name of a set: it begins with the owner's."""
    return f"{owner}:{name}"


async def register(
    turn: Turn, owner: str, news: Sequence[NewSchedule], by: AskedBy | None = None
) -> tuple[list[Schedule], str]:
    """Register the set, and return what to name it by. ConflictError, and nothing is changed, if somebody else holds
    a name of it."""
    for name, one in (await load(turn, [new.name for new in news])).items():
        if one.definition.owner != owner:
            holder = "nobody's registration" if one.definition.owner is None else repr(one.definition.owner)
            raise ConflictError(
                f"schedule {name!r} is there already, of {holder}: nothing of this set was registered; rename yours, "
                "or delete the one that is there"
            )
    made, changed = await put(turn, news)
    token = turn.incarnation()
    names = ", ".join(one.name for one in changed[:NAMED]) + (", …" if len(changed) > NAMED else "")
    audit.note(turn, by, "schedules.register", owner, {"schedules": len(made), "names": names}, len(changed))
    turn.state.occurrences.registered[owner] = token
    return made, token


async def leave(
    turn: Turn,
    owner: str,
    names: frozenset[str],
    token: str,
    prune: bool,
    start: str | None,
    by: AskedBy | None = None,
) -> tuple[list[str], str | None]:
    """Remove a page of the owner's names outside its set with `prune`, else keep and mark them as orphaned.

    Return those names, and where to go on. Nothing once the owner has registered anew: the later set counts.
    """
    if turn.state.occurrences.registered.get(owner, token) != token:
        return [], None
    prefix = definition_key(owned_name(owner, ""))
    first = prefix if start is None else definition_key(start) + b"\x00"
    rows = await turn.state.storage.scan(first, after(prefix), limit=PAGE)
    there = [key[5:].decode() for key, _ in rows]
    outside = [name for name in there if name not in names]
    found = await load(turn, outside[:LEFT_AT_ONCE])
    left = [one for one in found.values() if one.definition.owner == owner]
    if prune:
        await remove(turn, left)
        for one in left:
            audit.note(turn, by, "schedules.delete", one.name, {"owner": owner, "prune": True})
    for one in left:
        if not prune:
            one.move(orphaned=True)
            one.save(turn)
    if len(outside) > LEFT_AT_ONCE:
        return [one.name for one in left], outside[LEFT_AT_ONCE - 1]
    return [one.name for one in left], there[-1] if len(rows) == PAGE else None
