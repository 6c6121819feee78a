"""Check calls that are put off: each kept one has a job that runs, or a timer; each period has a timer."""

from __future__ import annotations

from typing import Final

from tocsin.actors.scheduler.integrity.invariants_of_jobs import Look
from tocsin.actors.scheduler.model.damage import json_fault
from tocsin.actors.scheduler.model.later_rows import LATER, THROTTLE, LaterRow, later_args_key
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import timer_key
from tocsin.actors.scheduler.state.path_counts import keys_of

TIMERS: Final = (LATER, THROTTLE)


async def check_calls(look: Look) -> None:
    kept: dict[str, LaterRow] = {}
    async for shapes in look.shapes(b"later"):
        kept.update((shape.names[0], shape.row) for shape in shapes)
        look.paths.update(key for shape in shapes for key in keys_of(shape.row.job))
    rung: set[str] = set()
    idle = [name for name in kept if all(lease.orphan for _, _, lease in look.by_id.get(name, ()))]
    if idle:
        async for shapes in look.shapes(b"timer"):
            rung.update(shape.names[2] for shape in shapes if shape.names[1] == LATER)
    for name in idle:
        if name not in rung:
            look.found.add("TIMER_MISSING", name, f"a call of {name} is kept, no job of it runs, and it has no timer")
    pieces = 0
    for name, row in kept.items():
        there = await look.get([later_args_key(name, n) for n in range(row.job.args_rows)])
        pieces += len(there)
        if len(there) < row.job.args_rows:
            look.found.add("ARGS_LOST", name, f"the call kept for {name} has too few pieces of args")
        elif json_fault(parts_of(row.job, row.job.args + b"".join(there[key] for key in sorted(there))).args):
            look.found.add("ARGS_LOST", name, f"the args of the call kept for {name} are not JSON")
    async for shapes in look.shapes(b"laterargs"):
        for shape in shapes:
            name, n = shape.names
            if name not in kept or int(n) >= kept[name].job.args_rows:
                look.found.add("ARGS_EXTRA", name, f"laterargs/{name}/{n} belongs to no kept call")
    async for shapes in look.shapes(b"throttle"):
        timers = {timer_key(shape.row.until, THROTTLE, shape.names[0]): shape.names[0] for shape in shapes}
        known = await look.get(list(timers))
        for key, name in timers.items():
            if key not in known:
                look.found.add("TIMER_MISSING", name, f"the period of {name} is to end and has no timer")
