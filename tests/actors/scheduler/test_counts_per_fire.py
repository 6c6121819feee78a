"""What a fire costs from due to settled, as counts that no busy machine changes: turns, commits, hops, tasks, futures,
timers, and calls of Python functions.

A receiver that answers in the next round of the loop stands for the network, so all that is counted is ours.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import pytest

import tocsin
from tocsin import ActorHost, Job, Scheduler
from tocsin.actors.runtime.activation import Activation
from tocsin.actors.scheduler.model.names import actor_of
from tocsin.dispatch.transport import Answer
from tocsin.storage.memory import MemoryProvider, MemoryStore

pytestmark = pytest.mark.anyio

SECRET = "whsec_" + "Y291bnRzIG9mIGEgZmlyZSBjb3VudHMgb2Yg"
LANES = 64
OURS = tuple(f"{tocsin.__path__[0].rpartition('/src/')[0]}/{room}" for room in ("actors/", "dispatch/", "src/"))
OK = Answer(200, {"content-length": "2", "content-type": "text/plain"}, b"ok")


class NextRound:
    """Answers everything that was posted in the next round of the loop."""

    def __init__(self) -> None:
        self.posts = 0
        self._waiting: list[asyncio.Future[Answer]] = []

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        connect_timeout: float,
        timeout: float,
        max_body: int,
    ) -> Answer:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._answer)
        self.posts += 1
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append(answer)
        return await answer

    def _answer(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.set_result(OK)

    async def aclose(self) -> None:
        """Hold nothing."""


class Counts(Counter[str]):
    """What was counted while it was on."""

    on = False

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.clear()
        self.on = True
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.on = False

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self["calls"] += 1

    def of(self, owner: type, method: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = getattr(owner, method)

        def counting(one: object, *args: Any, **named: Any) -> Any:
            self[what] += self.on
            return plain(one, *args, **named)

        monkeypatch.setattr(owner, method, counting)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    counts = Counts()
    for owner, method, what in (
        (Activation, "_turn", "turns"),
        (Activation, "_commit", "batches"),
        (MemoryProvider, "write", "commits"),
        (MemoryStore, "get", "hops"),
        (MemoryStore, "scan_many", "hops"),
        (asyncio.BaseEventLoop, "create_task", "tasks"),
        (asyncio.BaseEventLoop, "create_future", "futures"),
        (asyncio.BaseEventLoop, "call_at", "timers"),
    ):
        counts.of(owner, method, what, monkeypatch)
    return counts


@asynccontextmanager
async def hosted() -> AsyncIterator[tuple[ActorHost, Scheduler]]:
    async with ActorHost.open(
        MemoryProvider(), origin="https://app.example", secrets=[SECRET], lanes=LANES, transport=NextRound()
    ) as host:
        jobs = host.scheduler("t")
        await jobs.run_after(0, "work:run")  # what is done once is done
        await settled(host, lambda: True)
        yield host, jobs


async def settled(host: ActorHost, also: Callable[[], bool]) -> None:
    """Wait, a round of the loop at a time, until nothing is due and everything has been settled."""
    activation = host.runtime.active(actor_of("t"))
    assert activation is not None
    until = time.monotonic() + 30
    while time.monotonic() < until:
        await asyncio.sleep(0)
        actor: Any = activation.actor
        if also() and not actor._state.counters.leased and not actor._state.counters.waiting and activation.settled:
            return
    pytest.fail("the jobs did not end")


async def drain(host: ActorHost, jobs: Scheduler, counts: Counts, number: int, **options: Any) -> None:
    """Count what `number` due jobs cost that all wait when firing begins."""
    await jobs.pause()
    for start in range(0, number, 100):
        made = [Job(path="work:run", args={"n": n}, after=0, options=options) for n in range(start, start + 100)]
        await jobs.submit_many(made)
    with counts.counting():
        await jobs.pause(False)
        await settled(host, lambda: True)


async def test_a_drain_at_64_lanes_settles_and_claims_a_lane_full_in_one_turn(counts: Counts) -> None:
    fires = 20 * LANES - 80
    async with hosted() as (host, jobs):
        await drain(host, jobs, counts, fires)
    assert counts["batches"] <= counts["turns"] <= 22  # each settles 64 and claims the next 64
    assert counts["commits"] <= counts["batches"]
    assert counts["hops"] <= 16  # two for each 192 jobs
    assert counts["tasks"] <= fires + 2 * counts["turns"]  # one an attempt
    assert counts["futures"] <= fires + 4 * counts["turns"]  # the receiver's
    assert counts["timers"] <= counts["turns"]
    assert counts["calls"] / fires <= 80


async def test_a_slot_that_is_handed_over_costs_one_turn_and_one_commit(counts: Counts) -> None:
    async with hosted() as (host, jobs):
        await drain(host, jobs, counts, 200, pool="p", max_concurrency=1)
    assert counts["batches"] <= counts["turns"] <= 200 * 1.05
    assert counts["hops"] <= 200 * 0.1
    assert counts["calls"] / 200 <= 300


async def test_a_job_that_is_due_at_once_costs_two_commits_and_no_read(counts: Counts) -> None:
    async with hosted() as (host, jobs):
        with counts.counting():
            for _ in range(50):
                await jobs.run_after(0, "work:run", {"n": 1})
                await settled(host, lambda: True)
    assert counts["commits"] <= 50 * 2 and counts["hops"] == 0
