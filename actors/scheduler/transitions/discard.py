"""Dead letters cancelled in bulk: a page of them in a turn, kept aside until it is too late to undo that."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.scheduler.model.audit import Act
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions import acts
from tocsin.actors.scheduler.transitions.apply import apply_to_letter
from tocsin.actors.scheduler.transitions.job import Drop


async def discard_many(turn: Turn, letters: Sequence[tuple[str, int]], act: Act | None) -> tuple[int, int]:
    """Cancel dead letters by id and the instant at which they were parked, not what took their ids meanwhile. Return
    how many were cancelled, and how many of `letters` are left for another turn."""
    acting = await acts.begin(turn, act)
    if acting is not None and acting.is_undone:
        return 0, 0
    found = await turn.letters([job_id for job_id, _ in letters])
    discarded = left = 0
    for n, (job_id, parked_at) in enumerate(letters):
        if turn.is_full:
            left = len(letters) - n
            break
        if job_id not in found or found[job_id][1].parked_at != parked_at:
            continue
        job, dead = found[job_id]
        if acting is not None:
            trash = await acts.kept(turn, "discarded", job, dead=dead)
            acting.keep(job_id, trash, await acts.pieces_of(turn, job))
        apply_to_letter(turn, job, dead, Drop())
        discarded += 1
    if acting is not None:
        acting.end(len(letters) - left, discarded)
    return discarded, left
