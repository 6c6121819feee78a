"""Find what waits and should not: late jobs, and leases that are over, from summaries of lines and the leases.

A paused instance or pool, a full pool and one without a token are meant to hold jobs, suspects wait for their share,
and a test clock is never late: none of these counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tocsin.actors.scheduler.model.flow_rows import PoolFlow, QueueRow
from tocsin.actors.scheduler.model.line_names import ORIGIN, base_in, level_in, queue_in, shard_in
from tocsin.actors.scheduler.model.rate_rows import RateRow, opens_at
from tocsin.actors.scheduler.model.rows import LeaseRow, PoolRow
from tocsin.actors.scheduler.state.job_queues import slots_left

Buckets = Mapping[tuple[str, str, int], tuple[int, int]]
"""How many wait and when the first is due, by pool, line of a queue, and priority."""
OVER_FOR_MS: Final = 60_000
"""A lease that ended this long ago should have been handled."""
AGAIN_MS: Final = 60_000
"""A job that could not be sent is due again sooner than this."""


NO_RATES: Final[Mapping[str, RateRow]] = {}
NO_QUEUES: Final[Mapping[str, QueueRow]] = {}


@dataclass(frozen=True, slots=True)
class Standing:
    """How long jobs of one scheduler are overdue that could start, ms, and how many leases are over."""

    late_ms: int = 0
    """Of callbacks to the host's own origin."""
    queue: str = ""
    """The queue whose first job waits longest, and for how long that is due."""
    queue_late_ms: int = 0
    callbacks_due: bool = False
    """True if any callback to the host's own origin is due, whatever holds it, or is about to be tried again."""
    to_named: Mapping[str, int] = field(default_factory=dict)
    """For how long the first callback to each named origin is overdue, ms, of those that are due; 0 if it could not
    start."""
    leases_over: int = 0
    """How many ended over a minute ago, by the wall clock, and are still there."""


def is_held_back(flow: PoolFlow | QueueRow | None, running: int) -> bool:
    """Return whether so many jobs of a shard key run that no more of it may in this pool, or queue."""
    return flow is not None and flow.fair and flow.per_key is not None and running >= flow.per_key


def standing(
    buckets: Buckets,
    pools: Mapping[str, PoolRow],
    leases: Sequence[LeaseRow],
    now: int,
    wall: int,
    *,
    paused: bool,
    is_test_clock: bool,
    rates: Mapping[str, RateRow] = NO_RATES,
    queues: Mapping[str, QueueRow] = NO_QUEUES,
) -> Standing:
    """Work it out from rows of one snapshot."""
    held = Counter(lease.pool for lease in leases)
    keys = Counter((lease.pool, lease.shard) for lease in leases if lease.shard)
    of_queues = Counter((lease.queue, lease.shard) for lease in leases if lease.shard)
    late: dict[str, int] = {}
    named: dict[str, int] = {}
    due = False
    for (pool, line, _), (waiting, first) in buckets.items():
        base = base_in(line)
        due = due or (not base and waiting > 0 and first <= now + AGAIN_MS)
        if not waiting or first > now:
            continue
        of_base = named if base.startswith(ORIGIN) else late
        of_base.setdefault(base, 0)
        shard, queue = shard_in(line), queue_in(line)
        if pool and (row := pools.get(pool)) is not None and is_held_back(row.flow, keys[pool, shard]):
            continue
        if queue and is_held_back(queues.get(queue), of_queues[queue, shard]):
            continue
        if not level_in(line) and (not pool or slots_left(row := pools.get(pool), held[pool])):
            opened = opens_at(row.flow, rates.get(pool)) if pool and row is not None else 0
            of_base[base] = max(of_base[base], now - max(first, opened))
    if paused or is_test_clock:
        late, named = {}, {}
    callbacks = late.pop("", 0)
    queue = max(late, key=lambda name: (late[name], name), default="")
    over = sum(lease.until + OVER_FOR_MS <= wall for lease in leases)
    return Standing(
        callbacks,
        queue,
        late.get(queue, 0),
        due and not paused and not is_test_clock,
        {base[1:]: ms for base, ms in named.items()},
        over,
    )
