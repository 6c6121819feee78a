"""A simulated crash ends a host at once and for good, and what comes after it finds on disk what was written."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from tocsin import ActorHost
from tocsin.errors import HostClosedError, InvalidInputError, StoreClosed, TocsinError
from tocsin.storage.memory import MemoryProvider
from tocsin.testing import (
    FakeReceiver,
    FaultyProvider,
    MemoryDisk,
    Process,
    SimNetwork,
    Stuck,
    VirtualClock,
    crash,
    simulate,
)

SECRET = "whsec_" + "YSBzZWNyZXQgZm9yIGNyYXNoZXMgb25seSA6LSk="


class Scene:
    """One disk and one receiver; hosts come and go."""

    def __init__(self, random: Random) -> None:
        self.random, self.clock, self.disk = random, VirtualClock(), MemoryDisk()
        self.receiver = FakeReceiver([SECRET], now_ms=self.clock.now_ms)

    def host(self, alive: Callable[[], bool] = lambda: True) -> ActorHost:
        return ActorHost.open(
            FaultyProvider(self.disk, self.random, alive=alive), origin="https://receiver.example", secrets=[SECRET],
            transport=SimNetwork(self.receiver, self.random, alive=alive), clock=self.clock, random=self.random,
        )  # fmt: skip


def test_a_schedule_of_every_second_goes_on_after_three_crashes() -> None:
    async def main(random: Random) -> None:
        scene = Scene(random)
        for _ in range(3):
            async with scene.host() as host:
                await host.scheduler("t").schedules.put("tick", every=1, path="x", misfire="all", overlap="allow")
                await scene.clock.sleep(5)
                await crash(host)
        async with scene.host() as host:
            await scene.clock.sleep(100)
            assert len((await host.scheduler("t").schedules.occurrences("tick")).occurrences) > 50

    for seed in range(5):
        simulate(seed, main)


def test_what_was_being_written_is_there_or_not_and_what_was_answered_is_there() -> None:
    found: Counter[bool] = Counter()

    async def main(random: Random) -> None:
        scene = Scene(random)
        async with scene.host() as host:
            jobs = host.scheduler("t")
            await jobs.run_after(3_600, "x", id="answered")
            last = asyncio.ensure_future(jobs.run_after(3_600, "x", id="last"))
            await asyncio.sleep(random.random() * 0.06)
            heard = last.done()
            await crash(host)
            assert (last.exception() is None) if heard else isinstance(await _error_of(last), TocsinError)
        async with scene.host() as host:
            assert await host.scheduler("t").get("answered") is not None
            there = await host.scheduler("t").get("last") is not None
            assert there or not heard
            if not heard:
                found[there] += 1

    for seed in range(60):
        simulate(seed, main)
    assert found[True] and found[False], found


async def _error_of(task: asyncio.Future[str]) -> BaseException | None:
    await asyncio.wait([task])
    return task.exception()


def test_nothing_of_it_goes_on_and_its_handles_say_so(caplog: pytest.LogCaptureFixture) -> None:
    async def main(random: Random) -> None:
        scene = Scene(random)
        before = asyncio.all_tasks()
        async with scene.host() as host:
            jobs = host.scheduler("t")
            await jobs.run_after(0, "x", id="sent")
            claims = asyncio.ensure_future(jobs.claim("q", wait=300))
            reads = [asyncio.ensure_future(jobs.list()) for _ in range(3)]
            await scene.receiver.wait_for(1)
            began = scene.clock.monotonic()
            await crash(host)
            assert scene.clock.monotonic() == began
            waited = await asyncio.wait_for(asyncio.gather(claims, *reads, return_exceptions=True), 10)
            assert all(isinstance(one, (list, TocsinError)) or hasattr(one, "records") for one in waited), waited
            with pytest.raises(HostClosedError):
                await jobs.run_after(0, "x")
            with pytest.raises(StoreClosed):
                await jobs.get("sent")
        assert scene.clock.monotonic() - began < 1, "a dead host has nothing to drain"
        assert asyncio.all_tasks() == before
        await scene.clock.sleep(1_000)
        assert len(scene.receiver.deliveries) == 1

    with caplog.at_level(logging.WARNING):
        for seed in range(20):
            simulate(seed, main)
    assert caplog.messages == []


def test_only_a_host_on_a_store_that_can_die_can_crash() -> None:
    async def main(random: Random) -> None:
        async with ActorHost.open(MemoryProvider(MemoryDisk()), clock=VirtualClock(), random=random) as host:
            with pytest.raises(InvalidInputError, match="FaultyProvider, not a MemoryProvider"):
                await crash(host)

    simulate(1, main)


def test_a_run_that_leaves_a_silent_host_behind_is_stuck_and_says_what_goes_on() -> None:
    async def main(random: Random) -> None:
        scene = Scene(random)
        for n in range(4):
            process = Process()
            host = await scene.host(process.is_alive).__aenter__()
            await host.scheduler("t").schedules.put("tick", every=1, path="x")
            await scene.clock.sleep(10)
            process.alive = n == 3

    with pytest.raises(Stuck, match=r"stop or crash\(\) what they belong to: task-\d+ at "):
        simulate(5, main)
