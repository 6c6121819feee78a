"""Callbacks that may start are claimed at the end of every turn: those of suspects in their share, then all others."""

from __future__ import annotations

from tocsin.actors.scheduler.inflight.grants import Grant
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
    if lines.any_ready(turn.now) and (permits := lanes.take(CLAIMS_PER_TURN)):
        grant = Grant(lanes, permits)
        turn.ctx.if_lost(grant.lose)
        for _ in range(CLAIM_ROUNDS):
            if not grant.unused or turn.is_full or not lines.any_ready(turn.now):
                break
            grant.use(await claim(turn, grant.unused))
        grant.return_unused()
        turn.ctx.after_commit(lanes.launch, grant.claims, began)
    if not lines.any_ready(turn.now):
        lanes.no_more_work()


async def _start_suspects(turn: Turn, lanes: Lanes, began: float) -> None:
    if not turn.state.lines.suspects_ready(turn.now):
        lanes.no_more_work(ALONE)
        lanes.no_more_work(SOME)
        return
    for level in LEVELS:
        if turn.is_full:
            break
        if level == SOME and lanes.waits_for_room:
            continue
        waiting = sum(stream.count for stream in turn.state.lines.suspects_ready(turn.now, level))
        if waiting and (jobs := lanes.take_apart(level, min(waiting, CLAIMS_PER_TURN))):
            grant = Grant(lanes, jobs, level)
            turn.ctx.if_lost(grant.lose)
            grant.use(await claim_suspects(turn, level, jobs))
            grant.return_unused()
            turn.ctx.after_commit(lanes.launch, grant.claims, began)
    ready = {level for level in LEVELS if turn.state.lines.suspects_ready(turn.now, level)}
    if ALONE not in ready:
        lanes.no_more_work(ALONE)
    if not ready & {FEW, SOME}:
        lanes.no_more_work(SOME)


def start_nothing(lanes: Lanes) -> None:
    """Who stands in line waits to be woken; without space in the store it is the alarm that looks."""
    for level in (0, *LEVELS):
        lanes.no_more_work(level)


def could_start(lines: JobQueues, now: int, lanes: Lanes) -> bool:
    """Whether callbacks are left that another turn might start: nothing else will wake the scheduler for them."""
    if lines.any_ready(now) and lanes.could_take():
        return True
    return any(lanes.could_take(level) for level in LEVELS if lines.suspects_ready(now, level))
