"""Callbacks that may start are claimed at the end of every turn: those of suspects in their share, then all others."""

from __future__ import annotations

from tocsin.actors.scheduler.inflight.lanes import Lanes
from tocsin.actors.scheduler.model.suspects import ALONE, FEW, LEVELS, SOME
from tocsin.actors.scheduler.state.job_queues import JobQueues
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.actors.scheduler.transitions.claim import claim, claim_suspects

CLAIM_ROUNDS = 4
CLAIMS_PER_TURN = 512
"""With what else a turn may write it stays inside one commit of the store."""


async def start(turn: Turn, lanes: Lanes, began: float) -> None:
    """Claim as many as may start; who cannot stands in line for a permit. Suspects come first: they have a bounded
    share, and in a pool they would else never find a slot that others leave."""
    await _start_suspects(turn, lanes, began)
    lines = turn.state.lines
    if ready := lines.any_ready(turn.now):
        with lanes.take(CLAIMS_PER_TURN) as permits:
            turn.ctx.if_lost(lanes.lost, permits.claims)
            for _ in range(CLAIM_ROUNDS):
                if not permits.unused or not ready or turn.is_full:
                    break
                permits.use(await claim(turn, permits.unused))
                ready = lines.any_ready(turn.now)
        turn.ctx.after_commit(lanes.launch, permits.claims, began)
    if lanes.places and not ready:
        lanes.leave(0)


async def _start_suspects(turn: Turn, lanes: Lanes, began: float) -> None:
    lines = turn.state.lines
    if not lines.suspects_ready(turn.now):
        if lanes.places:
            lanes.leave(ALONE, SOME)
        return
    for level in LEVELS:
        if turn.is_full:
            break
        if level == SOME and lanes.waits_for_room:
            continue
        if waiting := sum(stream.count for stream in lines.suspects_ready(turn.now, level)):
            with lanes.take(min(waiting, CLAIMS_PER_TURN), level) as permits:
                turn.ctx.if_lost(lanes.lost, permits.claims)
                if permits.unused:
                    permits.use(await claim_suspects(turn, level, permits.unused))
            turn.ctx.after_commit(lanes.launch, permits.claims, began)
    ready = {level for level in LEVELS if lines.suspects_ready(turn.now, level)}
    if ALONE not in ready:
        lanes.leave(ALONE)
    if not ready & {FEW, SOME}:
        lanes.leave(SOME)


def start_nothing(lanes: Lanes) -> None:
    """Leave every line for permits: who stands in one waits to be woken, and without space in the store it is the alarm
    that looks again."""
    lanes.leave(0, *LEVELS)


def could_start(lines: JobQueues, now: int, lanes: Lanes) -> bool:
    """Whether callbacks are left that another turn might start: nothing else will wake the scheduler for them."""
    if lines.any_ready(now) and lanes.could_take():
        return True
    return any(lanes.could_take(level) for level in LEVELS if lines.suspects_ready(now, level))
