"""Take the measures of a host: what it did since it started, and how it stands now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tocsin.actors.scheduler.inflight.activity import Totals
from tocsin.actors.scheduler.inflight.worker_registry import LOST, STATUSES
from tocsin.actors.scheduler.model.records import HealthReason
from tocsin.actors.scheduler.queries.host_counts import HostCounts
from tocsin.errors import StoreError
from tocsin.storage.api import StoreStats
from tocsin.storage.histogram import Histogram
from tocsin.storage.shared import SharedCounts, StoreFacts, shared_of

if TYPE_CHECKING:
    from tocsin.actors.scheduler.actor.service import SchedulerService


@dataclass(frozen=True, slots=True)
class ClusterMeasures:
    """The measures of a shared store, as this host sees it, and what it did with slots itself. `facts` is None if the
    store could not be read lately."""

    facts: StoreFacts | None
    counts: SharedCounts
    slots: int
    clock_ahead_ms: int


@dataclass(frozen=True, slots=True)
class Schedulers:
    """The measures of a host that has the store. `counts` is None if the store could not be read just now."""

    totals: Totals
    counts: HostCounts | None
    test_clocks: int
    permits: Mapping[str, int]
    permits_in_use: Mapping[str, int]
    lanes_each: int
    waiting_for_permits: int
    waiting_claims: int
    workers: Mapping[str, int]
    watched: int
    circuit_is_open: Mapping[str, bool]
    """By the name of the origin; "" is the host's own. So are the others, too."""
    origins_cool: Mapping[str, bool]
    failing_alarms: int
    store: StoreStats
    cluster: ClusterMeasures | None = None


@dataclass(frozen=True, slots=True)
class Measures:
    """The measures of one process. `schedulers` is None where another process has the store."""

    health: Sequence[HealthReason]
    loop_lag: Histogram
    schedulers: Schedulers | None


async def of_schedulers(service: SchedulerService) -> Schedulers:
    """Measure the schedulers of a host that is open."""
    host, permits = service.host, {name: gate.permits for name, gate in service.origins.gates.items()}
    try:
        counts = await service.counting.look(service.clocks.has, service.is_here)
    except StoreError:  # what is in memory is told all the same, and that the store is in trouble
        counts = None
    inflight = service.all_inflight()
    workers = Counter(dict.fromkeys((*STATUSES, LOST), 0))
    workers.update(service.workers.statuses())
    return Schedulers(
        totals=service.activities.totals,
        counts=counts,
        test_clocks=service.clocks.count,
        permits={name: one.limit for name, one in permits.items()},
        permits_in_use={name: one.limit - one.free for name, one in permits.items()},
        lanes_each=service.lanes_limit,
        waiting_for_permits=sum(one.lanes.stands_in_line for one in inflight),
        waiting_claims=sum(one.waiting_claims.count for one in inflight),
        workers=workers,
        watched=service.feeds.watchers,
        circuit_is_open={name: one.circuit.broken is not None for name, one in permits.items()},
        origins_cool={name: one.cools_until is not None for name, one in permits.items()},
        failing_alarms=len(host.alarms.failing),
        store=host.provider.stats(),
        cluster=_of_cluster(service),
    )


def _of_cluster(service: SchedulerService) -> ClusterMeasures | None:
    watch, shared = service.watch, shared_of(service.host.provider)
    if watch is None or shared is None:
        return None
    return ClusterMeasures(watch.facts, shared.counts, watch.slots_here, watch.clock_ahead_ms)


async def measures_of(
    service: SchedulerService, health: Callable[[], Sequence[HealthReason]], follows: bool
) -> Measures:
    """Measure a host; one that follows has no store, and one that is closed none either."""
    here: Schedulers | None = None
    if not follows and service.host.is_open:
        await service.look()
        here = await of_schedulers(service)
    return Measures(health(), service.host.alarms.lag.seen, here)
