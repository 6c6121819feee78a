"""How long a callback may take where its job does not say it: as long as the instance says, or the host."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin import ActorHost
from tocsin.actors.scheduler.model.records import InstanceState
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, SettingsError

HOUR_MS = 3_600_000


@on_simulated_host(timeout_ms=300_000)
async def test_a_job_without_a_deadline_has_the_instance_s_or_else_the_host_s(sim: SimulatedHost) -> None:
    seen: dict[str, int] = {}

    def reply(one: Delivery) -> Answer:
        seen[one.id] = int(one.headers["tocsin-deadline"]) - sim.now
        return Answer(200, {}, b"")

    sim.reply = reply
    await sim.jobs.run_after(0, "a:b", id="host")
    await sim.jobs.run_after(0, "a:b", id="own", timeout_ms=5_000)
    await sim.sleep(1)
    assert await sim.jobs.set_instance(timeout_ms=900_000) == InstanceState("t", False, 900_000)
    await sim.jobs.run_after(0, "a:b", id="instance")
    await sim.jobs.run_after(0, "a:b", id="own-again", timeout_ms=5_000)
    await sim.host.scheduler("other").run_after(0, "a:b", id="elsewhere")
    await sim.sleep(1)
    await sim.jobs.pause()
    await sim.jobs.run_after(0, "a:b", id="later")
    await sim.jobs.set_instance(paused=False, timeout_ms=0)
    await sim.sleep(1)

    assert seen == {
        "host": 300_000, "own": 5_000, "instance": 900_000, "own-again": 5_000, "elsewhere": 300_000, "later": 300_000,
    }  # fmt: skip


@on_simulated_host(timeout_ms=2_000)
async def test_the_instance_s_deadline_outlives_the_host_and_its_lease_is_longer_by_a_margin(
    sim: SimulatedHost,
) -> None:
    await sim.jobs.set_instance(timeout_ms=HOUR_MS)
    await sim.jobs.pause()
    await sim.jobs.pause(False)
    await sim.close()
    await sim.open(timeout_ms=2_000)
    [shown] = (await sim.host.instances()).instances
    assert shown.timeout_ms == HOUR_MS
    sim.reply = lambda one: hours(2)
    await sim.jobs.run_after(0, "a:b", id="long")
    await sim.sleep(HOUR_MS / 1000 - 1)
    record = await sim.jobs.get("long")
    assert record is not None and record.lease is not None
    assert record.state == "running" and len(sim.deliveries) == 1
    await sim.sleep(10)
    record = await sim.jobs.get("long")
    assert record is not None and record.lease is not None
    assert record.lease.until - (sim.times("long")[0] + 1_800_000_000_000) == HOUR_MS + 15_000


async def hours(n: int) -> Answer:
    await asyncio.sleep(n * 3_600)
    return Answer(200, {}, b"")


@pytest.mark.parametrize("value", [999, 3_600_001, True, "60s", None])
def test_a_deadline_of_a_host_has_limits(value: Any) -> None:
    with pytest.raises(SettingsError, match="timeout_ms must be"):
        ActorHost.open("memory:", timeout_ms=value)


@on_simulated_host()
async def test_a_deadline_of_an_instance_has_limits(sim: SimulatedHost) -> None:
    for value in (1, 999, 3_600_001, False, True, 1.5, "1m"):
        with pytest.raises(InvalidInputError, match="timeout_ms must be"):
            await sim.jobs.set_instance(timeout_ms=value)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="give paused, timeout_ms or both"):
        await sim.jobs.set_instance()
