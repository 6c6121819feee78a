"""Test clocks over crashes and restarts of their host."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, after
from tests.actors.scheduler.test_clocks import DAY_MS, HOUR_MS, START, START_MS, clocked
from tocsin import ActorHost, MemoryProvider, Worker
from tocsin.actors.scheduler.model.clock import CLOCK
from tocsin.actors.testing import simulate
from tocsin.errors import StoreCorrupt


def test_an_advance_goes_on_after_a_crash_and_nothing_is_lost() -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        jobs = await clocked(sim)
        await jobs.schedules.put("daily", cron="0 9 * * *", path="daily")
        await jobs.run_after("50h", "once", id="once")
        sim.reply = lambda delivery: after(1)
        await jobs.clock.start("5d")
        await sim.sleep(1.5)
        await sim.crash()

        await sim.open()
        jobs = sim.host.scheduler("sim")
        began = await jobs.clock.get()
        assert began is not None and began.advancing and began.now < START_MS + 5 * DAY_MS
        assert (await jobs.clock.wait("10m")).now == START_MS + 5 * DAY_MS
        arrived = {(one.body["functionPath"], one.body["scheduledFor"]) for one in sim.deliveries}
        assert arrived == {
            ("once", START_MS + 50 * HOUR_MS), *(("daily", START_MS + n * DAY_MS + 9 * HOUR_MS) for n in range(5)),
        }  # fmt: skip
        assert (await jobs.status()).backlog == 0
        await jobs.run_after("1h", "work:run", id="early")
        await sim.crash()

        await sim.open()  # a frozen clock is known before anything is asked of its instance
        record = await sim.host.scheduler("sim").get("early")
        assert record is not None and record.state == "pending"
        await sim.host.scheduler("sim").run_after("1h", "work:run", id="later")
        record = await sim.host.scheduler("sim").get("later")
        assert record is not None and record.scheduled_for == START_MS + 5 * DAY_MS + HOUR_MS
        await sim.close()
        assert await sim.faults("sim") == []

    simulate(5, main)


@pytest.mark.anyio
async def test_a_clock_that_cannot_be_read_stops_its_instance_instead_of_running_it_live() -> None:
    provider = MemoryProvider()
    async with ActorHost.open(provider, origin="http://127.0.0.1:9", insecure=True) as host:
        await host.scheduler("sim").clock.create(START)
        await host.scheduler("sim").run_after("1h", "work:run")
    provider.disk.maps["scheduler/sim"].apply({CLOCK: b"\xc1"})
    async with ActorHost.open(MemoryProvider(provider.disk), origin="http://127.0.0.1:9", insecure=True) as host:
        with pytest.raises(StoreCorrupt, match="the test clock of this instance cannot be read"):
            await host.scheduler("sim").run_after("1h", "work:run")


@pytest.mark.anyio
async def test_on_a_file_over_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with ActorHost.open(url) as host:
        jobs = host.scheduler("sim")
        await jobs.clock.create(START)
        await jobs.schedules.put("daily", cron="0 9 * * *", path="daily", queue="work")
    async with ActorHost.open(url) as host:
        jobs = host.scheduler("sim")
        done: list[Any] = []
        async with Worker(jobs, {"daily": done.append}):
            assert (await jobs.clock.advance("3d")).now == START_MS + 3 * DAY_MS
        assert len(done) == 3
