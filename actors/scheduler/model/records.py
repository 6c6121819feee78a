"""Records for callers: plain values, camelCase in JSON, snake_case in Python. Optional members are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tocsin.actors.scheduler.model.activity import Activity as Activity
from tocsin.actors.scheduler.model.activity import ActivityMinute as ActivityMinute
from tocsin.actors.scheduler.model.by import By as By
from tocsin.actors.scheduler.model.by import by_of as by_of
from tocsin.actors.scheduler.model.by import pause_of as pause_of
from tocsin.actors.scheduler.model.cluster import ClusterStatus as ClusterStatus
from tocsin.actors.scheduler.model.origin_records import OriginStatus as OriginStatus
from tocsin.actors.scheduler.model.outcomes import Attempt as Attempt
from tocsin.actors.scheduler.model.outcomes import ErrorInfo as ErrorInfo
from tocsin.actors.scheduler.model.outcomes import Outcome as Outcome
from tocsin.actors.scheduler.model.outcomes import Value as Value
from tocsin.actors.scheduler.model.pool_records import Holder as Holder
from tocsin.actors.scheduler.model.pool_records import Pool as Pool
from tocsin.actors.scheduler.model.pool_records import PoolStatus as PoolStatus
from tocsin.actors.scheduler.model.put_off_record import PutOff as PutOff
from tocsin.actors.scheduler.model.retry_in_force import in_force
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.dispatch import values
from tocsin.dispatch.job_options import RecordMembers
from tocsin.dispatch.pulled import WorkerSnapshot, raw_member
from tocsin.dispatch.retry import OlderRetry, Retry
from tocsin.dispatch.scheduled import Cancelled as Cancelled
from tocsin.dispatch.scheduled import Scheduled as Scheduled
from tocsin.errors import StoreCorrupt


class LeaseInfo(Value, frozen=True, rename="camel", omit_defaults=True):
    """The running attempt's lease: until when (epoch ms), and on which host, or of which worker if that was said."""

    until: int
    kind: str
    host: str | None = None
    worker: str | None = None


class Following(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job that another starts when it is done, or dead, `delay_ms` later, and what follows that."""

    id: str = ""
    function_path: str | None = None
    workflow: str | None = None
    queue: str | None = None
    origin: str | None = None
    url: str | None = None
    delay_ms: int = 0
    then: Sequence[Following] = ()
    on_dead: Sequence[Following] = ()


class Initiator(Value, frozen=True, rename="camel", omit_defaults=True):
    """Who scheduled a job: `token` is the name of the token the request came with; `user` is what the embedding app's
    own middleware called its user, or what a Python caller gave as `initiator=`."""

    token: str | None = None
    user: str | None = None


def initiator_of(stored: tuple[str, str]) -> Initiator | None:
    token, user = stored
    return Initiator(token or None, user or None) if token or user else None


class ScheduleSlot(Value, frozen=True, rename="camel", omit_defaults=True):
    """Of which schedule a job is an occurrence, and for which slot (epoch ms). `first_slot` and `coalesced` if it
    stands for earlier slots too: the first of them, and how many they are (left out if they were not counted).
    """

    name: str
    slot: int
    first_slot: int | None = None
    coalesced: int | None = None
    triggered: bool = False


class _Standing(RecordMembers, frozen=True, rename=raw_member, omit_defaults=True):
    """Which job a record is of, and how that stands: what is before its options."""

    id: str
    incarnation: str
    scheduled_for: int
    state: str
    attempt: int
    attempts: int
    enqueued_at: int
    raw_args: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    args_damaged: bool = False
    next_attempt_at: int | None = None
    function_path: str | None = None
    workflow: str | None = None


class Record(_Standing, frozen=True, kw_only=True, rename=raw_member, omit_defaults=True):
    """A job. `state` is `pending` (not yet due), `waiting` (due, for a lane or a slot), `running` or `dead`.

    All instants are epoch ms. `attempt` counts dispatches, `attempts` charged failures. Dead ones have no next
    attempt, but `reason`, `parked_at`, `last_status` and `last_response` (the first 2 KiB). `args_damaged`: its args
    were damaged in the store, and are left out.
    """

    expires_at: int | None = None
    losses: int = 0
    last_error: ErrorInfo | None = None
    lease: LeaseInfo | None = None
    reason: str | None = None
    parked_at: int | None = None
    last_status: int | None = None
    last_response: str | None = None
    initiator: Initiator | None = None
    schedule: ScheduleSlot | None = None
    keep_result_ms: int | None = None
    parent: str | None = None
    then: Sequence[Following] = ()
    on_dead: Sequence[Following] = ()
    put_off: PutOff | None = None
    group: str | None = None

    @property
    def args(self) -> Any:
        """Return the args as the Python values that were given. StoreCorrupt if they were damaged in the store."""
        return given_args(self.raw_args, f"the args of job {self.id!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return what the HTTP API answers: JSON-ready, camelCase, args as plain JSON, the whole retry ladder."""
        found = super().to_dict()
        return found if self.retry is None else {**found, "retry": in_force(self.retry).to_dict()}


def retry_of_record(job: JobRow) -> Retry | None:
    if job.retry is None or not job.older_retry:
        return job.retry
    return OlderRetry(*msgspec.structs.astuple(job.retry))


def given_args(raw: msgspec.Raw | msgspec.UnsetType, what: str) -> Any:
    if isinstance(raw, msgspec.UnsetType):
        raise StoreCorrupt(f"{what} were damaged in the store: restore a backup, or give them anew")
    return values.decode(bytes(raw))


class Firing(Record, frozen=True, kw_only=True, rename=raw_member, omit_defaults=True):
    """A job about to be sent, as `authorize_fire` is asked about it: its record, and the instance it belongs to."""

    instance: str = ""


class Page(Value, frozen=True, rename="camel", omit_defaults=True):
    """A page of records; `cursor` asks for the next one and is there when `truncated` is True."""

    records: Sequence[Record]
    truncated: bool
    cursor: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what the HTTP API answers."""
        return {**super().to_dict(), "records": [one.to_dict() for one in self.records]}


class LanesStatus(Value, frozen=True, rename="camel"):
    """Callbacks in flight from this scheduler on this host, and how many there may be."""

    in_flight: int
    limit: int


class HealthReason(Value, frozen=True, rename="camel"):
    """One cause of health that is not green: `code` for programs, `message` for people, and `since` when, epoch ms, as
    far as this host knows."""

    code: str
    message: str
    since: int


class ClockState(Value, frozen=True, rename="camel", omit_defaults=True):
    """A test clock: `now` is where it stands, epoch ms. While it is advanced `target` is where to, and `waits_for` says
    in words what has to end before time goes on."""

    now: int
    advancing: bool
    target: int | None = None
    waits_for: str | None = None


class Status(Value, frozen=True, rename="camel", omit_defaults=True):
    """Counts are exact, but `due`, which stops counting at 10,000. `oldest_due_ms`: for how long the longest
    waiting due job has been due, ms. `pools`: at most 1,000, the longest first; `more_pools` if there are more."""

    backlog: int
    in_flight: int
    due: int
    oldest_due_ms: int | None
    dead: int
    lanes: LanesStatus
    health: str
    pools: Sequence[PoolStatus]
    more_pools: bool = False
    alarm_failures: int = 0
    retired: int = 0
    """Dead letters dropped for their age, since ever."""
    trouble: str | None = None
    """The store's trouble, during which nothing new is accepted or started."""
    wal_bytes: int = 0
    """The length of the store's write-ahead log."""
    paused: bool = False
    """The whole instance: nothing of it starts, and health says nothing of it."""
    reasons: Sequence[HealthReason] = ()
    """Why health is not green, the worst first."""
    clock: ClockState | None = None
    paused_at: int | None = None
    paused_by: By | None = None
    moved_to: str | None = None
    """The place where the instance is now: nothing of it changes here any more."""
    moving_to: str | None = None
    """The place that it is about to move to: it takes no new work."""
    known: bool = True
    """False if there is nothing in this instance: it was never used, or was removed. Reading makes none."""
    origins: Sequence[OriginStatus] = ()
    """The named origins of the host, by name."""
    cluster: ClusterStatus | None = None
    """The hosts of the store, where several share it."""


class Instance(Value, frozen=True, rename="camel"):
    """One instance of a host, and how many jobs it has: not started, started, dead. `timeout_ms`: its own deadline for
    callbacks whose jobs have none; without it the host's counts. `moved_to`: the place where it is now, and nothing of
    it changes here; `moving_to`: the place that it is about to move to."""

    name: str
    backlog: int
    in_flight: int
    dead: int
    paused: bool
    timeout_ms: int | None = None
    moved_to: str | None = None
    moving_to: str | None = None


class InstanceState(Value, frozen=True, rename="camel"):
    """The instance's pause, since when (epoch ms) and by whom; and the deadline of callbacks whose jobs have none."""

    name: str
    paused: bool
    timeout_ms: int | None = None
    paused_at: int | None = None
    paused_by: By | None = None


class InstancePage(Value, frozen=True, rename="camel", omit_defaults=True):
    """A page of instances; `cursor` asks for the next one and is there when `truncated` is True."""

    instances: Sequence[Instance]
    truncated: bool
    cursor: str | None = None
    away: Sequence[str] = ()
    """The stores, of several, that do not answer: their instances are left out."""


class Rescheduled(Value, frozen=True, rename="camel", omit_defaults=True):
    """The answer to a reschedule; a running job is not moved."""

    rescheduled: bool
    scheduled_for: int | None = None
    was_running: bool | None = None


class Matched(Value, frozen=True, rename="camel", omit_defaults=True):
    """How many jobs a filter matched, and how many of them were cancelled. `action_id` undoes that, until `undo_until`
    (epoch ms; left out if it cannot be undone)."""

    matched: int
    cancelled: int
    action_id: str | None = None
    undo_until: int | None = None


class Removed(Value, frozen=True, rename="camel"):
    """The counts of a removed instance."""

    jobs: int
    rows: int


class Queue(Value, frozen=True, rename="camel", omit_defaults=True):
    """A queue: how many of its jobs wait (`due` of them now, counted to 10,000), for how long the longest due one has
    waited, ms, how many workers have, and how many claims wait for a job of it on this host."""

    name: str
    waiting: int
    due: int
    in_flight: int
    workers_waiting: int
    oldest_due_ms: int | None = None
    fair: bool = False
    weights: dict[str, int] | None = None
    max_per_key: int | None = None


class Pending(Value, frozen=True, rename="camel"):
    """The answer to `pending`: whether jobs of a prefix are left, and how many: live ones, and those that follow
    them."""

    pending: bool
    count: int


class Redrive(Value, frozen=True, rename="camel", omit_defaults=True):
    """A bulk retry of dead letters: how many matched when it was asked for, how many it has retried."""

    redrive_id: str
    matched: int
    retried: int
    running: bool
    stopped: bool = False
    waits_for: str | None = None
    """The id of an earlier one that retries jobs of the same pool: this one begins when that has ended."""


class Reason(Value, frozen=True, rename="camel", omit_defaults=True):
    """Why a job is not running: `code` for programs, `message` for people, `at` if an instant ends it (epoch ms).

    `since`: when it began, epoch ms; `by`: who has paused it. `holders`: the jobs that have its slots or lanes;
    `behind`: how many jobs of its line go before it, counted to 1,000.
    """

    code: str
    message: str
    at: int | None = None
    pool: str | None = None
    holders: Sequence[str] | None = None
    since: int | None = None
    by: By | None = None
    behind: int | None = None


class DeadRetried(Value, frozen=True, rename="camel", omit_defaults=True):
    """The answer to a retry of a dead letter; `retried` is False if there is none of that id."""

    retried: bool
    id: str | None = None
    scheduled_for: int | None = None


class WorkerRecord(WorkerSnapshot, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A worker as it says it is; `heartbeat_at` is when this host heard of it last. `lost`: that was over 30 s ago."""

    lost: bool = False


class WorkerPage(Value, frozen=True, rename="camel", omit_defaults=True):
    """A page of workers; `cursor` asks for the next one and is there when `truncated` is True."""

    workers: Sequence[WorkerRecord]
    truncated: bool
    cursor: str | None = None
