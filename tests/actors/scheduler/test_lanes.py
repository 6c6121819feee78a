"""Lanes by themselves, on event loops that start tasks in different ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.inflight.activity import Activities
from tocsin.actors.scheduler.inflight.circuit import Circuit
from tocsin.actors.scheduler.inflight.lanes import Lanes
from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.model.rows import AtRow, JobRow, LeaseRow
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.dispatch.callback import AttemptOutcome, Verdict

DONE = AttemptOutcome(Verdict.DONE)
JOB = JobRow("a", "1", 0, 0, b"{}", function_path="w:r")
LEASE = LeaseRow(60_000, "fired", "host", "1", "", "", 0, 60_000, 0, AtRow(0))
CLAIM = Claim("1.1.x", JOB, LEASE, b"{}")
Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def start_soon(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


def start_eagerly(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run up to the first wait at once, as `asyncio.eager_task_factory` does. Nothing waits in these tests."""
    with pytest.raises(StopIteration):
        work.send(None)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended.set_result(None)
    return ended  # type: ignore[return-value]


IDLE = Activities(lambda: 0, lambda: 0.0, ())


class Home:
    """Takes the events of lanes."""

    def post(self, event: Event[None]) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("start", [start_soon, start_eagerly])
def test_an_attempt_that_ends_at_once_leaves_its_lane_and_its_permit_free(start: Start) -> None:
    async def send(claim: Claim, instance: str) -> AttemptOutcome:
        return DONE

    async def run() -> None:
        permits = Permits(4, Circuit(lambda: 0.0, lambda: 0), lambda: 0.0)
        lanes = Lanes(Home(), "t", 2, permits, send, start, lambda: 0.0, IDLE)
        with lanes.take(8) as permitted:
            assert permitted.unused == 2 and permits.free == 2
            permitted.use([CLAIM])
        assert lanes.in_flight == 1 and permits.free == 3
        lanes.launch(permitted.claims, 0.0)
        await asyncio.gather(*lanes.running())

        assert lanes.running() == [] and lanes.in_flight == 0 and permits.free == 4
        finished = lanes.take_finished()
        assert [(one.token, one.outcome) for one in finished] == [(CLAIM.token, DONE)] and lanes.busy
        lanes.settled(finished)
        assert not lanes.busy

    asyncio.run(run())


def test_a_block_that_fails_gives_back_the_permits_it_has_not_used() -> None:
    async def send(claim: Claim, instance: str) -> AttemptOutcome:
        raise AssertionError("nothing is sent")

    async def run() -> None:
        permits = Permits(4, Circuit(lambda: 0.0, lambda: 0), lambda: 0.0)
        lanes = Lanes(Home(), "t", 4, permits, send, start_soon, lambda: 0.0, IDLE)
        with pytest.raises(RuntimeError), lanes.take(4) as permitted:
            permitted.use([CLAIM])
            raise RuntimeError("the turn fails")
        assert lanes.in_flight == 1 and permits.free == 3
        lanes.lost(permitted.claims)
        assert lanes.in_flight == 0 and permits.free == 4 and not lanes.busy

    asyncio.run(run())
