"""Answers of operations that are not records: one struct for each, so that the OpenAPI document is made of
what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from tocsin.actors.http.job_records import JobRecord
from tocsin.actors.http.shapes import shape
from tocsin.actors.scheduler.model.backfill_records import Backfill
from tocsin.actors.scheduler.model.records import Attempt, ClockState, Queue, Reason
from tocsin.actors.scheduler.model.schedule_records import SchedulePut
from tocsin.dispatch.pulled import Claimed


class _Reply(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


class Refusal(_Reply, frozen=True):
    """Why a job of a batch was refused: `{code, message, ...}`, as in the answer to one that came alone."""

    error: Any


class BatchResults(_Reply, frozen=True):
    """One answer for each job, in the order of the request."""

    results: Annotated[
        Sequence[Any],
        shape(
            {
                "type": "array",
                "items": {
                    "anyOf": [{"$ref": "#/components/schemas/Scheduled"}, {"$ref": "#/components/schemas/Refusal"}]
                },
            },
            "Accepted, or why not.",
            needed=True,
        ),
    ]


class ChangePage(_Reply, frozen=True):
    """Frames of the live feed, in order. `seq`: where it goes on; `ended`: the instance was removed. Asked with
    `Accept: text/event-stream`, they come as events, as they are made: `id` is the `seq`, `event` the `type`."""

    frames: Annotated[
        Sequence[Any],
        shape({"type": "array", "items": {"$ref": "#/components/schemas/Change"}}, "What changed.", needed=True),
    ]
    seq: str
    ended: bool = False


class WsToken(_Reply, frozen=True):
    """A token for `GET /ws?token=`: of this instance only, once, and for `lifeMs`."""

    token: str
    life_ms: int


class Found(_Reply, frozen=True):
    """The job, dead ones included; without a member if there is none of that id."""

    record: JobRecord | None = None


class ClockFound(_Reply, frozen=True):
    """The test clock; without a member if the instance runs on the live clock."""

    clock: ClockState | None = None


class Reasons(_Reply, frozen=True):
    """Every reason why the job is not running now; none if it may start at this instant."""

    id: str
    reasons: Sequence[Reason]


class ClaimedJobs(_Reply, frozen=True):
    """The jobs that the worker has now; none if there was none in time."""

    jobs: Sequence[Claimed]


class Heard(_Reply, frozen=True):
    """Nothing more is to be said."""


class QueueList(_Reply, frozen=True):
    """The queues that hold jobs, by name."""

    queues: Sequence[Queue]


class History(_Reply, frozen=True):
    """How its attempts ended, the oldest first."""

    id: str
    attempts: Sequence[Attempt]


class DeadCancelled(_Reply, frozen=True):
    """The answer: whether there was such a dead job."""

    removed: bool


class Extended(_Reply, frozen=True):
    """Until when the lease holds now, epoch ms."""

    lease_until: int


class RedriveStopped(_Reply, frozen=True):
    """The answer: whether there was a bulk retry to stop."""

    stopped: bool


class ScheduleDeleted(_Reply, frozen=True):
    """The answer: whether there was such a schedule."""

    deleted: bool


class Backfills(_Reply, frozen=True):
    """The backfills of a schedule, the newest first."""

    backfills: Sequence[Backfill]


class BackfillStopped(_Reply, frozen=True):
    """The answer: whether there was a backfill to stop."""

    stopped: bool


class SetRegistered(_Reply, frozen=True):
    """The set of an owner, as it is stored now. The owner's names outside it were `removed` (`prune`) or are
    `orphaned`: kept, and not in the set."""

    schedules: Sequence[SchedulePut]
    orphaned: Sequence[str]
    removed: Sequence[str]


class Stays(_Reply, frozen=True):
    """The answer: whether the instance was about to leave by this move, and stays."""

    stays: bool


class PoolDeleted(_Reply, frozen=True):
    """The answer: whether there was a pool to delete."""

    deleted: bool


class CatalogEntry(_Reply, frozen=True):
    """One path or workflow, and the JSON Schema of its args as they are on the wire. `schema_left_out`: it is too long
    to be listed; the args are checked all the same."""

    function_path: str | None = None
    workflow: str | None = None
    args: Any = None
    schema_left_out: bool = False


class CatalogListed(_Reply, frozen=True):
    """Paths, then workflows, by name. `checked`: only these are scheduled, and only with args that fit; false: this
    host has no catalog, and anything goes. `left_out`: of so many more not even the name fits."""

    checked: bool
    entries: Sequence[CatalogEntry]
    left_out: int = 0


class Alive(_Reply, frozen=True):
    """The process answers."""

    ok: bool


class Ready(_Reply, frozen=True):
    """The host is open and its store answers. `reasons`: codes of what is wrong with the host all the same."""

    ready: bool
    reasons: Sequence[str] = ()
