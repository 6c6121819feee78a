"""How long a callback may take where its job does not say it: as long as the instance says, or the host."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.actors.scheduler.stage import Stage, staged
from tocsin import ActorHost
from tocsin.actors.scheduler.model.records import InstanceState
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, SettingsError

HOUR_MS = 3_600_000


@staged(timeout_ms=300_000)
async def test_a_job_without_a_deadline_has_the_instance_s_or_else_the_host_s(stage: Stage) -> None:
    seen: dict[str, int] = {}

    def reply(one: Delivery) -> Answer:
        seen[one.id] = int(one.headers["tocsin-deadline"]) - stage.now
        return Answer(200, {}, b"")

    stage.reply = reply
    await stage.jobs.run_after(0, "a:b", id="host")
    await stage.jobs.run_after(0, "a:b", id="own", timeout_ms=5_000)
    await stage.sleep(1)
    assert await stage.jobs.set_instance(timeout_ms=900_000) == InstanceState("t", False, 900_000)
    await stage.jobs.run_after(0, "a:b", id="instance")
    await stage.jobs.run_after(0, "a:b", id="own-again", timeout_ms=5_000)
    await stage.host.scheduler("other").run_after(0, "a:b", id="elsewhere")
    await stage.sleep(1)
    await stage.jobs.pause()
    await stage.jobs.run_after(0, "a:b", id="later")
    await stage.jobs.set_instance(paused=False, timeout_ms=0)
    await stage.sleep(1)

    assert seen == {
        "host": 300_000, "own": 5_000, "instance": 900_000, "own-again": 5_000, "elsewhere": 300_000, "later": 300_000,
    }  # fmt: skip


@staged(timeout_ms=2_000)
async def test_the_instance_s_deadline_outlives_the_host_and_its_lease_is_longer_by_a_margin(stage: Stage) -> None:
    await stage.jobs.set_instance(timeout_ms=HOUR_MS)
    await stage.jobs.pause()
    await stage.jobs.pause(False)
    await stage.close()
    await stage.open(timeout_ms=2_000)
    [shown] = (await stage.host.instances()).instances
    assert shown.timeout_ms == HOUR_MS
    stage.reply = lambda one: hours(2)
    await stage.jobs.run_after(0, "a:b", id="long")
    await stage.sleep(HOUR_MS / 1000 - 1)
    record = await stage.jobs.get("long")
    assert record is not None and record.lease is not None
    assert record.state == "running" and len(stage.deliveries) == 1
    await stage.sleep(10)
    record = await stage.jobs.get("long")
    assert record is not None and record.lease is not None
    assert record.lease.until - (stage.times("long")[0] + 1_800_000_000_000) == HOUR_MS + 15_000


async def hours(n: int) -> Answer:
    await asyncio.sleep(n * 3_600)
    return Answer(200, {}, b"")


@pytest.mark.parametrize("value", [999, 3_600_001, True, "60s", None])
def test_a_deadline_of_a_host_has_limits(value: Any) -> None:
    with pytest.raises(SettingsError, match="timeout_ms must be"):
        ActorHost.open("memory:", timeout_ms=value)


@staged()
async def test_a_deadline_of_an_instance_has_limits(stage: Stage) -> None:
    for value in (1, 999, 3_600_001, False, True, 1.5, "1m"):
        with pytest.raises(InvalidInputError, match="timeout_ms must be"):
            await stage.jobs.set_instance(timeout_ms=value)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="give paused, timeout_ms or both"):
        await stage.jobs.set_instance()
