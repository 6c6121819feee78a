"""`then` of a request: the jobs that follow, checked."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.actors.http.body import reading_args
from tocsin.actors.http.wire import whole
from tocsin.actors.http.wire_jobs import FollowingRequest
from tocsin.actors.scheduler.client.chain_requests import Following
from tocsin.actors.scheduler.model.followers import Follower
from tocsin.actors.scheduler.model.validation import naming, raw_args


def followers(scheduler: Following, then: Sequence[FollowingRequest] | None) -> list[Follower] | None:
    """None if nothing follows. Refusals say where: `then[0]: ...`."""
    if not then:
        return None
    return [_follower(scheduler, one, f"then[{n}]") for n, one in enumerate(then)]


def _follower(scheduler: Following, request: FollowingRequest, place: str) -> Follower:
    with naming(place), reading_args():
        return scheduler.follower(
            function_path=request.function_path,  # type: ignore[arg-type]  # the handle checks every value
            workflow=request.workflow,  # type: ignore[arg-type]
            args=raw_args(bytes(request.args)),
            delay_ms=whole(0 if request.delay_ms is None else request.delay_ms),  # type: ignore[arg-type]
            options={**request.options(), "then": followers(scheduler, request.then)},
        )
