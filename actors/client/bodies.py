"""Checked jobs and definitions as the bodies of requests. What is left out has its default at the server."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from tocsin.actors.client.checks import Delayed
from tocsin.actors.scheduler.model.followers import Follower, followers_of, on_dead_of, with_ids
from tocsin.actors.scheduler.model.groups import jobs_of_group
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.payload import parts_of
from tocsin.actors.scheduler.model.rows import JobRow
from tocsin.actors.scheduler.model.schedule_rows import DefinitionRow
from tocsin.actors.scheduler.schedules.change import NewSchedule
from tocsin.dispatch.job_options import EXTRAS, extra_of
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.words import camel

_OPTIONS: Final = ("queue", "pool", "max_concurrency", "priority", "labels", "shard_key", "timeout_ms")
_OF_JOB: Final = (*_OPTIONS, "expires_at", "keep_result_ms")
_OF_RULE: Final = (
    *_OPTIONS, "cron", "every_ms", "at", "expires_after_ms", "misfire", "grace_ms", "overlap", "jitter_ms",
)  # fmt: skip


def job_body(new: NewJob, now: int | None = None) -> dict[str, Any]:
    """Return a job as `POST /schedule` takes it. Of several jobs, `now` (epoch ms here) is
    when they are sent: a delay counts from when its job was made, so what has passed of it is taken off."""
    job = new.job
    whole = job.args + b"".join(new.rest_of_args)
    said = _options(job, _OF_JOB)
    said["args"] = msgspec.Raw(parts_of(job, whole).args)
    if job.chained:
        said |= _following(followers_of(job, whole), on_dead_of(job, whole))
    if new.group is not None:
        said["group"] = group_body(new.group)
    due = job.scheduled_for
    if new.debounce is not None:
        said["debounceMs"], most = new.debounce
        if most is not None:
            said["maxWaitMs"] = most
    elif isinstance(due, Delayed):
        said["delayMs"] = max(due.delay_ms - (0 if now is None else max(now - job.enqueued_at, 0)), 0)
    else:
        said["scheduledFor"] = due
    if new.chosen or now is not None or job.trace is not None:
        said["id"] = job.id  # of several jobs callers may know the ids already, and its span names the id of a job
    if new.on_conflict != "error":
        said["onConflict"] = new.on_conflict
    if new.throttle is not None:
        said["throttleMs"], merges = new.throttle
        said["onThrottle"] = "merge" if merges else "refuse"
    if job.trace is not None:
        said["traceparent"] = job.trace[0]
        if job.trace[1]:
            said["tracestate"] = job.trace[1]
    return said


def group_body(new: NewGroup) -> dict[str, Any]:
    """Return a group as `POST /groups` takes it."""
    said: dict[str, Any] = {"name": new.name} if new.size is None else {"name": new.name, "size": new.size}
    return said | _following(jobs_of_group(new.then), jobs_of_group(new.on_dead))


def _following(then: Sequence[Follower], on_dead: Sequence[Follower]) -> dict[str, Any]:
    said = {"then": [_follower(one) for one in then], "onDead": [_follower(one) for one in on_dead]}
    return {name: jobs for name, jobs in said.items() if jobs}


def _follower(one: Follower) -> dict[str, Any]:
    said = _options(one.job, _OF_JOB)
    said["args"] = msgspec.Raw(one.job.args)
    if one.delay_ms:
        said["delayMs"] = one.delay_ms
    return said | _following(one.then, one.on_dead)


def schedule_body(new: NewSchedule) -> dict[str, Any]:
    """Return a definition as `PUT /schedules/{name}` takes it."""
    row = new.definition
    said = _options(row, _OF_RULE)
    said["args"] = msgspec.Raw(row.args + b"".join(new.rest_of_args))
    said["timezone"] = row.timezone
    said["catchUpLimit"] = row.catch_up_limit
    said |= _following(with_ids(row.then, repeat("")), with_ids(row.on_dead, repeat("")))
    for name in ("paused", "revision"):
        if (value := getattr(new, name)) is not None:
            said[name] = value
    return said


def _options(row: JobRow | DefinitionRow, names: Sequence[str]) -> dict[str, Any]:
    """Return the target and what was given of these members."""
    said: dict[str, Any] = {}
    for name in ("function_path", "workflow", *names):
        value = getattr(row, name)
        if value != _LEFT_OUT[type(row)][name]:
            said[camel(name)] = value
    if row.extras is not None:
        said.update(
            (camel(name), msgspec.to_builtins(value)) for name in EXTRAS if (value := extra_of(row.extras, name))
        )
        if row.extras.group is not None:
            said["group"] = row.extras.group
    if row.retry is not None:
        said["retry"] = _retry(row.retry, older=isinstance(row, JobRow) and row.older_retry)
    return said


def _retry(retry: Retry, *, older: bool) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(retry)
    if older and "maxRetries" in said:
        said["maxAttempts"] = said.pop("maxRetries")
    return said


_LEFT_OUT: Final = {
    kind: {field.name: field.default for field in msgspec.structs.fields(kind)} for kind in (JobRow, DefinitionRow)
}
