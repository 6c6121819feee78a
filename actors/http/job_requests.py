"""Jobs of requests, checked by the checks of its port; the outbox, whose rows are such requests, uses it too."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.http.body import reading_args
from tocsin.actors.http.wire import whole
from tocsin.actors.http.wire_jobs import FollowingRequest, GroupRequest, OptionsRequest, ScheduleRequest
from tocsin.actors.scheduler.client.job_checks import JobChecks
from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.groups import new_group as checked_group
from tocsin.actors.scheduler.model.new_group import NewGroup
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.model.validation import naming
from tocsin.dispatch.trace_context import Trace

# mypy: disable-error-code=arg-type
# The port checks every value, whatever its type.


def new_job(
    checks: JobChecks,
    request: ScheduleRequest,
    initiator: tuple[str, str] = ("", ""),
    parent: Trace | None = None,
) -> NewJob:
    """Check a job, with all that follow it. `parent` is the trace of the headers."""
    options = request.options()
    trace = None if request.traceparent is None and request.tracestate is None else request.trace
    if request.then or request.on_dead:
        options |= following(checks, request)
    if isinstance(request.group, GroupRequest):
        with naming("group"):
            options["group"] = new_group(checks, request.group, initiator)
    with reading_args():
        return checks.wire_job(
            function_path=request.function_path,
            workflow=request.workflow,
            raw_args=bytes(request.args),
            scheduled_for=whole(request.scheduled_for),
            delay_ms=whole(request.delay_ms),
            options=options,
            initiator=initiator,
            trace=trace,
            parent=parent,
        )


def new_group(checks: JobChecks, request: GroupRequest, initiator: tuple[str, str] = ("", "")) -> NewGroup:
    """Check a group, with all that follow it."""
    then, on_dead = followers(checks, request.then, "then"), followers(checks, request.on_dead, "onDead")
    return checked_group(request.name, then or (), on_dead or (), whole(request.size), initiator)


def following(checks: JobChecks, request: OptionsRequest | GroupRequest) -> dict[str, list[Follower] | None]:
    """Check what follows a job, done or dead, as options; None where nothing does."""
    return {
        "then": followers(checks, request.then, "then"),
        "on_dead": followers(checks, request.on_dead, "onDead"),
    }


def followers(checks: JobChecks, jobs: Sequence[FollowingRequest] | None, name: str) -> list[Follower] | None:
    """Check a list of jobs that follow; None if there are none. Refusals say where: `then[0]: ...`."""
    if not jobs:
        return None
    return [_follower(checks, one, f"{name}[{n}]") for n, one in enumerate(jobs)]


def _follower(checks: JobChecks, request: FollowingRequest, place: str) -> Follower:
    with naming(place), reading_args():
        return checks.wire_follower(
            function_path=request.function_path,
            workflow=request.workflow,
            raw_args=bytes(request.args),
            delay_ms=whole(0 if request.delay_ms is None else request.delay_ms),
            options=request.options() | following(checks, request),
        )
