"""Turn the measures of a process into what Prometheus reads. Nothing of its library is touched before a scrape."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from tocsin.actors.http.metrics.families import BY_NAME, Family
from tocsin.actors.http.metrics.traffic import Traffic
from tocsin.actors.scheduler.actor.measures import ClusterMeasures, Measures, Schedulers
from tocsin.actors.scheduler.inflight.activity import OUTCOMES
from tocsin.actors.scheduler.model.counters import ENDS, FLOWS
from tocsin.actors.scheduler.model.health import AMBER, GREEN, LEVELS, RED, level
from tocsin.actors.scheduler.model.reasons import DEAD_REASONS
from tocsin.actors.scheduler.queries.host_counts import HostCounts
from tocsin.storage.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

LATENESS_MS: Final = (
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 14_400_000,
)  # fmt: skip
UNDONE: Final = "undone"
"""The reason of letters that are dead again since their retry was undone: their death was told when it came."""
STATES: Final = ("waiting", "running", "dead")
KINDS_OF_LEASES: Final = ("fired", "accepted", "unknown", "pulled")
Samples = Mapping[Any, float]
"""Values by labels, in the order of their names: tuples of texts."""


def written(measures: Measures, traffic: Traffic, accept: str) -> tuple[bytes, str]:
    """Write the metrics of a process as this Accept header wants them; return text and content type."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    return encode(_registry(measures, traffic)), content_type


def _registry(measures: Measures, traffic: Traffic) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, ProcessCollector

    class Collector:
        def collect(self) -> Iterator[Metric]:
            return metrics(measures, traffic)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    ProcessCollector(registry=registry)
    return registry


def metrics(measures: Measures, traffic: Traffic) -> Iterator[Metric]:
    """Yield every metric that this process has."""
    if measures.schedulers is not None:
        yield from _of_schedulers(measures.schedulers)
    yield _values("store_holder", {(): measures.schedulers is not None})
    now = level(measures.health)
    yield _values("health", {(one,): one == now for one in (GREEN, AMBER, RED)})
    codes = {one.code for one in measures.health}
    yield _values("health_reason", {(code,): code in codes for code in sorted({*LEVELS, *codes})})
    yield _histogram("loop_lag_seconds", {(): measures.loop_lag})
    yield _values("http_requests", traffic.requests())
    if traffic.connections is not None:
        yield _values("http_connections_open", {(): traffic.connections()})
    yield _values("build_info", {(version("tocsin"), platform.python_version()): 1})


def _of_schedulers(here: Schedulers) -> Iterator[Metric]:
    totals, grown = here.totals, dict(zip(FLOWS, here.totals.grown, strict=True))
    yield _values("jobs_accepted", {(): grown["accepted"]})
    yield _values("jobs_ended", {**{(how,): grown[how] for how in ENDS}, ("removed",): totals.removed})
    died = {(reason,): totals.reasons[reason] for reason in DEAD_REASONS}
    yield _values("jobs_died", {**died, (UNDONE,): grown["died"] - sum(died.values())})
    yield _values("dead_letters_retried", {(): grown["retried"]})
    if here.counts is not None:
        yield from _of_counts(here.counts)
    yield _values("test_clocks", {(): here.test_clocks})
    yield _values("attempts_started", {(kind,): count for kind, count in totals.started.items()})
    yield _values(
        "attempts_ended",
        {(outcome,): totals.attempts[outcome] for outcome in {**dict.fromkeys(OUTCOMES), **totals.attempts}},
    )
    yield _histogram("attempt_lateness_seconds", {(): totals.late}, LATENESS_MS, 1000)
    took = {(kind,): found for kind, found in totals.took.items()}
    yield _histogram("attempt_duration_seconds", took, LATENESS_MS, 1000)
    yield _values("leases_expired", {(kind,): totals.expired[kind] for kind in KINDS_OF_LEASES})
    yield from _of_host(here)
    yield from _of_store(here)


def _of_counts(counts: HostCounts) -> Iterator[Metric]:
    yield _values("jobs", {("waiting",): counts.waiting, ("running",): counts.running, ("dead",): counts.dead})
    yield _values("jobs_due", {(): counts.due})
    oldest = {(kind,): counts.oldest_ms.get(kind, 0) / 1000 for kind in ("callback", "worker")}
    yield _values("oldest_due_seconds", oldest)
    yield _values("schedulers", {(): counts.instances})
    yield _values("schedulers_unread", {(): counts.unread})
    by_state = {
        (name, state): count
        for name, held in counts.by_instance.items()
        for state, count in zip(STATES, held, strict=True)
    }
    yield _values("scheduler_jobs", by_state)
    yield _values("queue_waiting_jobs", {(name,): count for name, count in counts.by_queue.items()})
    yield _values("pool_waiting_jobs", {(name,): count for name, count in counts.by_pool.items()})
    yield _values("pools_cooling", {(): counts.pools_cooling})


def _of_host(here: Schedulers) -> Iterator[Metric]:
    yield _values("permits", {(name,): count for name, count in here.permits.items()})
    yield _values("permits_in_use", {(name,): count for name, count in here.permits_in_use.items()})
    yield _values("scheduler_lanes", {(): here.lanes_each})
    yield _values("schedulers_waiting_for_permits", {(): here.waiting_for_permits})
    yield _values("claims_waiting", {(): here.waiting_claims})
    yield _values("workers", {(status,): count for status, count in here.workers.items()})
    yield _values("feeds_watched", {(): here.watched})
    yield _values("circuit_open", {(name,): is_open for name, is_open in here.circuit_is_open.items()})
    yield _values("origin_cooling", {(name,): cools for name, cools in here.origins_cool.items()})
    yield _values("alarms_failing", {(): here.failing_alarms})


def _of_store(here: Schedulers) -> Iterator[Metric]:
    store = here.store
    yield _values("store_transactions", {(): store.commits})
    yield _values("store_batches", {(): store.batches})
    yield _values("store_batches_failed", {(): store.failed})
    yield _values("store_rows", {("put",): store.rows_put, ("delete",): store.rows_deleted})
    if store.commit_s is not None:
        yield _histogram("store_commit_seconds", {(): store.commit_s})
    if store.batches_each is not None:
        yield _histogram("store_transaction_batches", {(): store.batches_each})
    yield _values("store_wal_bytes", {(): store.wal_bytes})
    if here.cluster is not None:
        yield from _of_cluster(here.cluster)


def _of_cluster(cluster: ClusterMeasures) -> Iterator[Metric]:
    facts, counts = cluster.facts, cluster.counts
    if facts is not None:
        states = Counter(one.state for one in facts.hosts)
        yield _values("cluster_slots", {(): cluster.slots})
        yield _values("cluster_slots_unowned", {(): facts.unowned})
        yield _values("cluster_hosts", {(state,): states[state] for state in ("up", "draining")})
        yield _values("cluster_mail", {(): facts.mail})
        yield _values("cluster_mail_oldest_seconds", {(): facts.oldest_mail_ms / 1000})
        yield _values("cluster_beat_seconds", {(): facts.beat_ms / 1000})
    yield _values("cluster_clock_ahead_seconds", {(): cluster.clock_ahead_ms / 1000})
    yield _values("cluster_slots_taken", {(): counts.taken})
    yield _values("cluster_slots_handed_over", {(): counts.handed_over})
    yield _values("cluster_slots_lost", {(): counts.lost})
    yield _values("cluster_slots_rolled_back", {(): counts.rolled_back})
    yield _values("cluster_commits_fenced", {(): counts.fenced})
    yield _values("cluster_commits_lost", {(): counts.commits_lost})
    yield _values("cluster_hosts_reaped", {(): counts.reaped})
    yield _values("cluster_deaths", {(): counts.died})
    yield _values("cluster_mail_sent", {(): counts.mail_sent})
    yield _values("cluster_mail_done", {(): counts.mail_done})


# ---- Families ------------------------------------------------------------------------------------


def _values(name: str, samples: Samples) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    family = BY_NAME[name]
    kinds: Mapping[str, Callable[..., Any]] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    found = kinds[family.kind](family.name, family.said, labels=family.labels)
    for labels, value in samples.items():
        found.add_metric(labels, float(value))
    metric: Metric = found
    return metric


def _histogram(
    name: str, samples: Mapping[Any, Histogram], edges: tuple[float, ...] | None = None, per: float = 1
) -> Metric:
    """Make a histogram with these edges, or those of its own; `per` of its units are one second."""
    from prometheus_client.metrics_core import HistogramMetricFamily

    family: Family = BY_NAME[name]
    found = HistogramMetricFamily(family.name, family.said, labels=family.labels)
    for labels, histogram in samples.items():
        own = histogram.edges if edges is None else edges
        counts = zip(own, histogram.up_to(own), strict=True)
        buckets = [(str(edge / per), float(count)) for edge, count in counts]
        found.add_metric(labels, [*buckets, ("+Inf", float(histogram.count))], sum_value=histogram.total / per)
    return found
