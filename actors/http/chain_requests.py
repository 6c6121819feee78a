"""`then` of a request: the jobs that follow, checked."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.http.body import reading_args
from tocsin.actors.http.wire import whole
from tocsin.actors.http.wire_jobs import FollowingRequest
from tocsin.actors.scheduler.client.jobs import JobsPort
from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.validation import naming


def followers(port: JobsPort, then: Sequence[FollowingRequest] | None) -> list[Follower] | None:
    """Check a `then`; None if nothing follows. Refusals say where: `then[0]: ...`."""
    if not then:
        return None
    return [_follower(port, one, f"then[{n}]") for n, one in enumerate(then)]


def _follower(port: JobsPort, request: FollowingRequest, place: str) -> Follower:
    with naming(place), reading_args():
        return port.follower(
            function_path=request.function_path,  # type: ignore[arg-type]  # the port checks every value
            workflow=request.workflow,  # type: ignore[arg-type]
            raw_args=bytes(request.args),
            delay_ms=whole(0 if request.delay_ms is None else request.delay_ms),  # type: ignore[arg-type]
            options={**request.options(), "then": followers(port, request.then)},
        )
