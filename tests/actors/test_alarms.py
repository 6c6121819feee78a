"""Alarms: one per actor, at least once, gone when its handler succeeded, kept over restarts."""

from __future__ import annotations

import pytest

from tests.actors.counter import ONE, call, failures, running, until
from tocsin.actors.runtime.ids import ActorId
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio


async def test_an_alarm_rings_once_and_is_gone() -> None:
    async with running() as host:
        await call(host, ONE, "ring_at", host.clock.now_ms())
        await call(host, ONE, "wait_rung")

        assert await call(host, ONE, "rung") == 1
        assert await call(host, ONE, "alarm_at") is None


async def test_a_removed_alarm_does_not_ring() -> None:
    async with running() as host:
        await call(host, ONE, "ring_at", host.clock.now_ms() + 50)
        await call(host, ONE, "ring_at", None)
        other = ActorId("Counter", "two")
        await call(host, other, "ring_at", host.clock.now_ms() + 60)
        await call(host, other, "wait_rung")

        assert await call(host, ONE, "rung") == 0


async def test_a_failing_alarm_leaves_no_trace_and_is_counted() -> None:
    async with running() as host:
        await call(host, ONE, "fail_alarms", True)
        due = host.clock.now_ms()
        await call(host, ONE, "ring_at", due)
        await until(lambda: failures(host), 1)

        assert await call(host, ONE, "rung") == 0
        assert await call(host, ONE, "alarm_at") == due


async def test_alarms_are_rung_by_the_next_host_on_the_same_store() -> None:
    provider = MemoryProvider()
    async with running(provider) as host:
        await call(host, ONE, "ring_at", host.clock.now_ms() + 60)
    again = MemoryProvider(provider.disk)
    async with running(again) as host:
        await call(host, ONE, "wait_rung")

        assert await call(host, ONE, "rung") == 1
