"""Test clocks by each way to a scheduler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.actors.client.doors import each_door, house
from tocsin.actors.scheduler.model import records
from tocsin.errors import ConflictError, InvalidInputError, NotFoundError, NotYetError

pytestmark = pytest.mark.anyio


@each_door
async def test_a_test_clock_is_made_advanced_and_frozen(door: str) -> None:
    async with house(door) as found:
        jobs = found.jobs
        assert await jobs.clock.get() is None
        with pytest.raises(NotFoundError):
            await jobs.clock.advance("1h")
        start = datetime(2020, 1, 1, tzinfo=UTC)
        begun = await jobs.clock.create(start)
        assert (begun, await jobs.clock.create(start)) == (records.ClockState(1_577_836_800_000, False),) * 2
        await jobs.run_after("1h", "a:b", id="a", queue="q", expires_at=start + timedelta(hours=2))
        record = await jobs.get("a")
        assert record is not None and record.scheduled_for == begun.now + 3_600_000
        assert (await jobs.clock.start("30m")).target == begun.now + 1_800_000
        assert (await jobs.clock.wait("10s")).now == begun.now + 1_800_000
        state = await jobs.clock.advance(to=start + timedelta(minutes=45), timeout="10s")
        assert state == await jobs.clock.get() == await jobs.clock.freeze() == (await jobs.status()).clock
        await jobs.clock.start("1h")
        with pytest.raises(NotYetError, match="is to come to"):
            await jobs.clock.wait(0.5)  # a job of a queue is waited for
        with pytest.raises(ConflictError, match="goes on"):
            await jobs.clock.advance("1h")
        assert (await jobs.clock.freeze()).now == begun.now + 3_600_000
        with pytest.raises(InvalidInputError):
            await jobs.clock.advance()
        await jobs.remove()
        await jobs.run_after("1h", "a:b", queue="q")
        with pytest.raises(ConflictError, match="live clock"):
            await jobs.clock.create(start)
