"""The table of metrics: name, kind, labels and meaning of each. docs/metrics.md shows it, and a test compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. The name of a counter is without `_total`, as the library wants it."""

    name: str
    kind: Kind
    said: str
    labels: tuple[str, ...] = ()
    of_store: bool = True
    """False: every process has it. True: only the one that has the store."""
    of_cluster: bool = False
    """True: only where several hosts share the store, which each of them sees."""

    @property
    def shown(self) -> str:
        """Return the name as Prometheus stores it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _counter(name: str, said: str, *labels: str, of_store: bool = True) -> Family:
    return Family(f"tocsin_{name}", "counter", said, labels, of_store)


def _gauge(name: str, said: str, *labels: str, of_store: bool = True) -> Family:
    return Family(f"tocsin_{name}", "gauge", said, labels, of_store)


def _histogram(name: str, said: str, *labels: str, of_store: bool = True) -> Family:
    return Family(f"tocsin_{name}", "histogram", said, labels, of_store)


def _of_cluster(kind: Kind, name: str, said: str, *labels: str) -> Family:
    return Family(f"tocsin_cluster_{name}", kind, said, labels, of_cluster=True)


CLUSTER: Final = (
    _of_cluster("gauge", "slots", "Slots of the store that this host has."),
    _of_cluster("gauge", "slots_unowned", "Slots that no living host has."),
    _of_cluster("gauge", "hosts", "Hosts of the store, by their state.", "state"),
    _of_cluster("gauge", "mail", "Calls that wait in the store for the owner of their scheduler."),
    _of_cluster("gauge", "mail_oldest_seconds", "For how long the first of them has waited."),
    _of_cluster("gauge", "beat_seconds", "The time since the store took the last sign of life of this host."),
    _of_cluster("gauge", "clock_ahead_seconds", "By how much this computer's clock is ahead of the store's."),
    _of_cluster("counter", "slots_taken", "Slots that this host took."),
    _of_cluster("counter", "slots_handed_over", "Slots that this host released, for others or as it stopped."),
    _of_cluster("counter", "slots_lost", "Slots that others took from this host: it was declared dead, or by hand."),
    _of_cluster("counter", "slots_rolled_back", "Slots whose rows were older than what this host had committed."),
    _of_cluster("counter", "commits_fenced", "Commits of this host that were refused: another one had the slot."),
    _of_cluster("counter", "commits_lost", "Commits that a server of the store has lost after it had accepted them."),
    _of_cluster("counter", "hosts_reaped", "Hosts that this one declared dead."),
    _of_cluster("counter", "deaths", "How often this host was declared dead itself, and began anew."),
    _of_cluster("counter", "mail_sent", "Calls that this host left in the store for others."),
    _of_cluster("counter", "mail_done", "Calls of others that this host took from the store and did."),
)

FAMILIES: Final = (
    _counter("jobs_accepted", "Jobs accepted, those that follow others too."),
    _counter("jobs_ended", "Jobs that ended, by how.", "how"),
    _counter("jobs_died", "Jobs that became dead letters, by the reason.", "reason"),
    _counter("dead_letters_retried", "Dead letters that were retried."),
    _gauge("jobs", "Jobs that are there: waiting, running or dead.", "state"),
    _gauge("jobs_due", "Waiting jobs that are due now; counting stops at 10,000."),
    _gauge("oldest_due_seconds", "For how long the first due job has been due; paused instances left out.", "kind"),
    _gauge("schedulers", "Schedulers, without those that have a test clock."),
    _gauge("schedulers_unread", "Schedulers whose jobs have changed since they were counted last."),
    _gauge("test_clocks", "Schedulers with a test clock: no other metric of jobs counts them."),
    _gauge("scheduler_jobs", "Jobs of the 20 schedulers with the most waiting ones, by state.", "scheduler", "state"),
    _gauge("queue_waiting_jobs", "Waiting jobs of the 20 longest queues, all schedulers together.", "queue"),
    _gauge("pool_waiting_jobs", "Waiting jobs of the 20 longest pools, all schedulers together.", "pool"),
    _gauge("pools_cooling", "Pools that start nothing until a receiver's Retry-After is over."),
    _counter("attempts_started", "Callbacks sent, and jobs given to workers.", "kind"),
    _counter("attempts_ended", "Attempts that ended, by outcome.", "outcome"),
    _histogram("attempt_lateness_seconds", "From when an attempt was due to when it started."),
    _histogram("attempt_duration_seconds", "How long callbacks took, and jobs of workers.", "kind"),
    _counter("leases_expired", "Leases that ended before their attempts were settled, by the kind of lease.", "kind"),
    _gauge("permits", 'How many callbacks this host may have in flight, by named origin; "": to its own.', "origin"),
    _gauge("permits_in_use", "Callbacks in flight from this host, by named origin.", "origin"),
    _gauge("scheduler_lanes", "How many callbacks one scheduler may have in flight."),
    _gauge("schedulers_waiting_for_permits", "Schedulers with due callbacks that wait for others' to end."),
    _gauge("claims_waiting", "Claims of workers that wait for a job."),
    _gauge("workers", "Workers heard of within five minutes, by the status they told, or lost.", "status"),
    _gauge("feeds_watched", "Watchers of live feeds."),
    _gauge("circuit_open", "1 while the origin of callbacks cannot be reached, else 0; by its name.", "origin"),
    _gauge("origin_cooling", "1 while an origin has asked for no callbacks, else 0.", "origin"),
    _gauge("alarms_failing", "Schedulers and other actors whose alarm failed last time."),
    _counter("store_transactions", "Transactions of the store."),
    _counter("store_batches", "Batches of turns in them."),
    _counter("store_batches_failed", "Batches that could not be written."),
    _counter("store_rows", "Rows put and deleted.", "op"),
    _histogram("store_commit_seconds", "How long transactions took, until they were on disk."),
    _histogram("store_transaction_batches", "How many batches each transaction held."),
    _gauge("store_wal_bytes", "The length of the log in front of the store's file."),
    _gauge("store_holder", "1 in the process that has the store, 0 in one that follows.", of_store=False),
    _gauge("health", "1 for the level of the host's health: green, amber or red.", "level", of_store=False),
    _gauge("health_reason", "1 for each reason why health is not green.", "code", of_store=False),
    _histogram("loop_lag_seconds", "How late timers of the event loop rang.", of_store=False),
    _counter("http_requests", "Requests answered, by route and status.", "method", "route", "status", of_store=False),
    _gauge("http_connections_open", "Open connections of `tocsin serve`.", of_store=False),
    _gauge("build_info", "1, with the versions of tocsin and Python.", "version", "python", of_store=False),
    *CLUSTER,
)
BY_NAME: Final = {one.name.removeprefix("tocsin_"): one for one in FAMILIES}
