"""Lanes by themselves, on event loops that start tasks in different ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from tocsin.actors.runtime.events import Event
from tocsin.actors.scheduler.inflight.activity import Activities
from tocsin.actors.scheduler.inflight.circuit import Circuit
from tocsin.actors.scheduler.inflight.lanes import Lanes
from tocsin.actors.scheduler.inflight.permits import Permits
from tocsin.actors.scheduler.model.rows import AtRow, JobRow, LeaseRow
from tocsin.actors.scheduler.transitions.claim import Claim
from tocsin.actors.scheduler.transitions.settle import AttemptResult
from tocsin.actors.testing import simulate
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.errors import StoreLocked, StoreUnavailable

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

    async def send_on(self, ends: Sequence[AttemptResult]) -> None:
        raise AssertionError(f"no other host is there: {ends}")


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


class Away:
    """Where the scheduler has gone: another host has it, until it comes back."""

    def __init__(self) -> None:
        self.gone, self.unreached = True, 0
        self.lanes: Lanes
        self.sent: list[str] = []
        self.settled: list[str] = []

    def post(self, event: Event[None]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.gone:
            done.set_exception(StoreLocked("another host has this now"))
        else:
            finished = self.lanes.take_finished()
            self.settled += [one.token for one in finished]
            self.lanes.settled(finished)
            done.set_result(None)
        return done

    async def send_on(self, ends: Sequence[AttemptResult]) -> None:
        if self.unreached:
            self.unreached -= 1
            raise StoreUnavailable("nobody has it just now")
        self.sent += [one.token for one in ends]


def away_lanes() -> tuple[Away, Lanes]:
    async def send(claim: Claim, instance: str) -> AttemptOutcome:
        return DONE

    owner = Away()
    owner.lanes = Lanes(
        owner, "t", 4, Permits(4, Circuit(lambda: 0.0, lambda: 0), lambda: 0.0), send, start_soon, lambda: 0.0, IDLE
    )
    return owner, owner.lanes


def test_attempts_that_end_when_another_host_has_their_scheduler_are_sent_there_and_live_until_then() -> None:
    async def main() -> None:
        owner, lanes = away_lanes()
        owner.unreached = 2
        with lanes.take(1) as permitted:
            permitted.use([CLAIM])
        lanes.launch(permitted.claims, 0.0)
        await asyncio.gather(*lanes.running())
        assert lanes.is_live(CLAIM.token) and not owner.sent
        await lanes.wait_settled()
        assert owner.sent == [CLAIM.token] and not lanes.busy and not owner.settled

    simulate(0, lambda random: main())


def test_ends_from_another_host_are_answered_when_they_are_settled_and_refused_where_the_scheduler_is_not() -> None:
    async def main() -> None:
        owner, lanes = away_lanes()
        end = AttemptResult(CLAIM.job, CLAIM.token, DONE)
        with pytest.raises(StoreLocked):
            await lanes.settle_for([end])
        assert not lanes.busy and not owner.sent, "whoever asked looks where it is now"
        owner.gone = False
        await lanes.settle_for([end])
        assert owner.settled == [CLAIM.token] and not lanes.busy

    simulate(0, lambda random: main())
