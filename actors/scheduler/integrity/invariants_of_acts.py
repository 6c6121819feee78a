"""Check what is kept of bulk actions: each has its timer, and nothing is kept of an action that is not there."""

from __future__ import annotations

from tocsin.actors.scheduler.integrity.invariants_of_jobs import Look
from tocsin.actors.scheduler.model.acts import UNDO, ActRow
from tocsin.actors.scheduler.model.rows import timer_key


async def check_acts(look: Look) -> None:
    known: dict[str, ActRow] = {}
    async for shapes in look.shapes(b"act"):
        known.update((shape.names[0], shape.row) for shape in shapes)
    being_undone = {row.undoes for row in known.values() if row.undoes}
    timers = {timer_key(row.rings_at, UNDO, name): name for name, row in known.items() if row.rings_at}
    there = await look.get(list(timers))
    for key, name in timers.items():
        if key not in there:
            look.found.add("TIMER_MISSING", name, f"action {name} is to be forgotten and has no timer")
    for name, row in known.items():
        if not row.rings_at and name not in being_undone:
            look.found.add("TIMER_MISSING", name, f"action {name} is being undone by none, and has no timer")
    kept: set[tuple[str, str]] = set()
    async for shapes in look.shapes(b"trash"):
        for shape in shapes:
            action, about = shape.names
            if action not in known:
                look.found.add("TRASH", f"{action}/{about}", f"trash/{action}/{about} belongs to no action")
            if shape.row.job is not None and shape.row.job.args_rows:
                kept.add((action, about))
    async for shapes in look.shapes(b"trashargs"):
        for shape in shapes:
            action, about, n = shape.names
            if (action, about) not in kept and action not in known:
                look.found.add("TRASH", f"{action}/{about}", f"trashargs/{action}/{about}/{n} belongs to no action")
