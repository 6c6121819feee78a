"""Check groups: counts are those of their members, all are found, and what they are to be woken for is so."""

from __future__ import annotations

from collections import Counter

from tocsin.actors.scheduler.integrity.invariants_of_jobs import Look
from tocsin.actors.scheduler.model.groups import GROUP, OPEN, GroupRow
from tocsin.actors.scheduler.model.rows import timer_key
from tocsin.actors.scheduler.state.path_counts import path_key


async def check_groups(look: Look) -> None:
    """Compare groups with the jobs that were looked at (`Look.grouped`)."""
    known: dict[str, GroupRow] = {}
    async for shapes in look.shapes(b"group"):
        known.update((shape.names[0], shape.row) for shape in shapes)
    listed: Counter[str] = Counter()
    async for shapes in look.shapes(b"member"):
        listed.update(shape.names[0] for shape in shapes)
    async for _ in look.shapes(b"groupjobs"):
        pass  # what cannot be read is noted by the reading
    timers = {timer_key(row.rings_at, GROUP, name): name for name, row in known.items() if row.rings_at}
    there = await look.get(list(timers))
    for key, name in timers.items():
        if key not in there:
            look.found.add("TIMER_MISSING", name, f"group {name} is to be dropped and has no timer")
    waiting = {timer_key(1, GROUP, name): name for name, row in known.items() if row.state == OPEN and row.is_complete}
    asked = await look.get(list(waiting)) if waiting else {}
    for key, name in waiting.items():
        if key not in asked:
            look.found.add("GROUP", name, f"group {name} is complete, and is still open")
    for name, row in known.items():
        look.paths.update(path_key(target) for target in row.pending())
        living, dead = look.grouped[(row.uid, False)], look.grouped[(row.uid, True)]
        if look.is_recounted:
            continue
        if row.open != living or row.dead < dead:
            words = f"says {row.open} open and {row.dead} dead members, there are {living} and {dead}"
            look.found.add("GROUP", name, f"group {name} {words}")
        if listed[row.uid] != living + dead:
            look.found.add("GROUP", name, f"group {name} lists {listed[row.uid]} members, there are {living + dead}")
