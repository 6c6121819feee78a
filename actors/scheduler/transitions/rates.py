"""Rates and cooling of pools, as turns set them."""

from __future__ import annotations

from msgspec.structs import replace

from tocsin.actors.scheduler.model.flow_rows import PoolFlow
from tocsin.actors.scheduler.model.pool_settings import TAKEN_AWAY, WIDE
from tocsin.actors.scheduler.model.rows import PoolRow
from tocsin.actors.scheduler.state.meters import Meters, is_metered
from tocsin.actors.scheduler.state.turn import Turn
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.rate import Stored


def put_pool(turn: Turn, name: str, row: PoolRow) -> None:
    """Write the row of a pool, and let its meter follow."""
    lines = turn.state.lines
    if lines.meters is None and is_metered(row.flow):
        lines.meters = Meters()
        lines.meters.begin(turn.now, None if turn.state.clock is not None else turn.began)
    if lines.meters is not None:
        lines.meters.set(name, row.flow)
    turn.state.put_pool(name, row)


def end_cooling(turn: Turn, name: str) -> bool:
    """Let the jobs of a pool start again; return whether it cooled."""
    lines = turn.state.lines
    if lines.meters is None or not lines.meters.warm(name):
        return False
    lines.pool_changed(name)
    return True


def cool_pool(turn: Turn, pool: str, origin: str, outcome: AttemptOutcome) -> None:
    """Let a pool cool whose receiver was busy and has said for how long, or its origin, if the pool is meant to."""
    if outcome.verdict is not Verdict.BUSY or not outcome.retry_after_ms:
        return
    row = turn.state.lines.pools.get(pool)
    if row is None or row.flow is None:
        return
    if row.flow.cool == "pool" and (meters := turn.state.lines.meters) is not None:
        meters.cool(pool, outcome.retry_after_ms)
    elif row.flow.cool == "origin":
        turn.state.to_cool = [*turn.state.to_cool, (origin, outcome.retry_after_ms)]


def rated(row: PoolRow | None, rate: Stored) -> PoolRow | None:
    """Return the row of a pool once a job has named this rate. It stays as it is if an operator has set its rate, or
    taken it away. A pool that is made by its rate has no other bound."""
    flow = PoolFlow() if row is None or row.flow is None else row.flow
    if flow.rate == rate or flow.rate_by == TAKEN_AWAY or (flow.rate is not None and flow.rate_by == "put"):
        return row
    row = PoolRow(WIDE, set_by="rate") if row is None else row
    return replace(row, flow=replace(flow, rate=rate, rate_by="job"))
