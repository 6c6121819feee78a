"""Frames of the live feed: what watchers of one scheduler are told, each encoded once for all of them.

A frame tells how jobs stand, and never what they carry: its members are listed here one by one, and args, results and
answers of receivers are not among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from tocsin.actors.scheduler.model.job_record import Found
from tocsin.actors.scheduler.model.outcomes import ErrorInfo, Value
from tocsin.actors.scheduler.model.records import LeaseInfo, ScheduleSlot, Status

MESSAGE_MAX: Final = 256
"""Characters of an error's message; `get` and `history` have all of it."""
Kind = Literal["snapshot", "change", "resync"]


class ChangedError(Value, frozen=True, rename="camel", omit_defaults=True):
    """How the last attempt that did not succeed ended; the message is cut after 256 characters."""

    at: int
    message: str
    status: int | None = None
    code: str | None = None


class ChangedJob(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job as it stands, without its args: those are got by its id.

    Members are those of a `Record`. `pending` becomes `waiting` by time alone, when `next_attempt_at` has passed: no
    frame tells that, because nothing is written.
    """

    id: str
    incarnation: str
    state: str
    scheduled_for: int
    attempt: int
    attempts: int
    enqueued_at: int
    next_attempt_at: int | None = None
    function_path: str | None = None
    workflow: str | None = None
    pool: str | None = None
    queue: str | None = None
    priority: int = 0
    labels: tuple[str, ...] = ()
    expires_at: int | None = None
    last_error: ChangedError | None = None
    lease: LeaseInfo | None = None
    reason: str | None = None
    parked_at: int | None = None
    last_status: int | None = None
    schedule: ScheduleSlot | None = None
    parent: str | None = None


class Gone(Value, frozen=True, rename="camel"):
    """A job that is no more. `how`: it is `done`, `cancelled` or `expired`, or was a dead one that was `removed`."""

    id: str
    how: str


class FeedCounts(Value, frozen=True, rename="camel"):
    """Jobs not started, started, dead."""

    backlog: int
    in_flight: int
    dead: int


class Change(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One frame. `seq` says where the feed goes on behind it (`since`).

    A `change` has the jobs that changed as they stand now, those that are gone, and the counts of the instance. A
    `snapshot` has the first 100 jobs by their next attempt, and the status; `truncated` if there are more. `resync`
    says that what was known before may have changed unnoticed: forget it. A snapshot follows.
    """

    type: Kind
    seq: str
    jobs: Sequence[ChangedJob]
    gone: Sequence[Gone]
    counts: FeedCounts | None = None
    status: Status | None = None
    truncated: bool = False


class FeedPage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Frames, in order, each as JSON text. `seq`: behind the last of them. `ended`: the instance was removed."""

    frames: Sequence[msgspec.Raw]
    seq: str
    ended: bool = False


def job_of(found: Found, now: int) -> ChangedJob:
    """Return a job as a frame tells it."""
    job = found.job
    # What is behind its own args is not read here, and not told.
    bare = Found(msgspec.structs.replace(job, chained=()), found.at, found.dead, found.leases, damaged=True)
    record = bare.record(now)
    error = record.last_error
    return ChangedJob(
        id=job.id,
        incarnation=job.incarnation,
        state=record.state,
        scheduled_for=record.scheduled_for,
        attempt=record.attempt,
        attempts=record.attempts,
        enqueued_at=job.enqueued_at,
        next_attempt_at=record.next_attempt_at,
        function_path=job.function_path,
        workflow=job.workflow,
        pool=job.pool or None,
        queue=job.queue or None,
        priority=job.priority,
        labels=job.labels,
        expires_at=job.expires_at,
        last_error=None if error is None else _error(error),
        lease=record.lease,
        reason=record.reason,
        parked_at=record.parked_at,
        last_status=record.last_status,
        schedule=record.schedule,
        parent=job.parent,
    )


def _error(error: ErrorInfo) -> ChangedError:
    return ChangedError(error.at, error.message[:MESSAGE_MAX], error.status, error.code)


_encoder: Final = msgspec.json.Encoder(enc_hook=str)
_decoder: Final = msgspec.json.Decoder(Change)


def written(frame: Change) -> bytes:
    """Return a frame as JSON text."""
    return _encoder.encode(frame)


def read_frame(text: msgspec.Raw | bytes | str) -> Change:
    """Return a frame that was written."""
    return _decoder.decode(bytes(text) if isinstance(text, msgspec.Raw) else text)


_HEAD: Final = re.compile(rb'\{"type":"([a-z]+)","seq":"([0-9a-f]+-[0-9]+)"')


def head_of(text: bytes) -> tuple[str, str]:
    """Return the type and the `seq` of a frame as it was written, without reading the rest of it."""
    found = _HEAD.match(text)
    assert found is not None, "a frame begins with its type and its place"
    return found[1].decode(), found[2].decode()
