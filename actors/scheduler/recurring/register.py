"""An owner's set of schedules, put as a whole: usually what an app declares in its code, at its start."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tocsin.actors.scheduler.recurring.change import NewSchedule, put, remove
from tocsin.actors.scheduler.recurring.rows import definition_key
from tocsin.actors.scheduler.recurring.schedule import Schedule, load
from tocsin.actors.scheduler.rows import encode
from tocsin.actors.scheduler.turn import Turn
from tocsin.errors import ConflictError
from tocsin.storage.api import after

PAGE = 1_000


def owned_name(owner: str, name: str) -> str:
    """Names of a set begin with their owner's."""
    return f"{owner}:{name}"


async def register(
    turn: Turn, owner: str, news: Sequence[NewSchedule], prune: bool
) -> tuple[list[Schedule], list[str]]:
    """The set, and the names of the owner outside it: removed with `prune`, else kept and marked as orphaned.

    ConflictError, and nothing is changed, if a name of the set is held by somebody else.
    """
    names = {new.name for new in news}
    held = await load(turn, list(names))
    for name, one in held.items():
        if one.definition.owner != owner:
            holder = "nobody's registration" if one.definition.owner is None else repr(one.definition.owner)
            raise ConflictError(
                f"schedule {name!r} is there already, of {holder}: nothing of this set was registered; rename yours, "
                "or delete the one that is there"
            )
    outside = [name for name in await _names(turn, owner) if name not in names]
    rest = await load(turn, outside)
    made = await put(turn, news)
    left: list[str] = []
    for name, one in rest.items():
        if one.definition.owner != owner:
            continue
        left.append(name)
        if prune:
            remove(turn, one)
        elif not one.definition.orphaned:
            one.definition = msgspec.structs.replace(one.definition, orphaned=True)
            turn.book.storage.put(definition_key(name), encode(one.definition))
    return made, left


async def _names(turn: Turn, owner: str) -> list[str]:
    prefix = definition_key(owned_name(owner, ""))
    found: list[str] = []
    start = prefix
    while True:
        rows = await turn.book.storage.scan(start, after(prefix), limit=PAGE)
        found += [key[5:].decode() for key, _ in rows]
        if len(rows) < PAGE:
            return found
        start = rows[-1][0] + b"\x00"
