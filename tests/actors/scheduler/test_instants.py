"""Bounds of time, at the very millisecond and across midnight."""

from __future__ import annotations

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.dispatch.transport import Answer
from tocsin.errors import StaleLeaseError

DAY_MS = 86_400_000
ACCEPTED = Answer(202, {"tocsin-accepted": "1"}, b"")


def without_alarms(stage: Stage) -> None:
    """What happens now is another event's doing, in the very millisecond in which the alarm would ring."""
    stage.host.runtime.alarms.stop()


@pytest.mark.parametrize(("early_ms", "sent"), [(0, False), (1, True)])
def test_a_job_is_not_sent_at_the_very_millisecond_it_expires(early_ms: int, sent: bool) -> None:
    @staged()
    async def test(stage: Stage) -> None:
        stage.reply = lambda one: ACCEPTED if one.id == "holds" else OK
        await stage.jobs.run_after(0, "work:run", id="holds", pool="p")
        await stage.sleep(1)
        expires = stage.now + 10_000
        await stage.jobs.run_after(0, "work:run", id="waits", pool="p", expires_at=expires)
        without_alarms(stage)
        await stage.sleep((10_000 - early_ms) / 1000)
        assert stage.now == expires - early_ms
        await stage.jobs.complete("holds", stage.deliveries[0].lease)  # its slot is free: the next one is claimed
        await stage.sleep(5)

        assert bool(stage.times("waits")) is sent
        stage.host.runtime.alarms.start()

    test()


@staged()
async def test_a_worker_is_not_given_a_job_at_the_very_millisecond_it_expires(stage: Stage) -> None:
    expires = stage.now + 10_000
    await stage.jobs.run_after(0, "work:run", queue="q", expires_at=expires)
    without_alarms(stage)
    await stage.sleep(10)
    assert stage.now == expires

    assert await stage.jobs.claim("q", wait=0) == []
    stage.host.runtime.alarms.start()


@pytest.mark.parametrize("ok", [True, False])
def test_a_completion_is_answered_the_same_on_the_other_side_of_midnight(ok: bool) -> None:
    @staged()
    async def test(stage: Stage) -> None:
        stage.reply = lambda one: ACCEPTED
        await stage.sleep((DAY_MS - stage.now % DAY_MS - 60_000) / 1000)
        await stage.jobs.run_after(0, "work:run", id="x")
        await stage.sleep(55)
        lease, day = stage.deliveries[0].lease, stage.now // DAY_MS
        first = await stage.jobs.settle("x", lease, ok=ok)
        await stage.sleep(20)
        assert stage.now // DAY_MS == day + 1
        assert await stage.jobs.settle("x", lease, ok=ok) == first
        await stage.sleep(600)
        with pytest.raises(StaleLeaseError):
            await stage.jobs.complete("x", lease)
        await stage.jobs.cancel("x")

    test()


@staged()
async def test_success_after_the_lease_keeps_its_start_across_midnight(stage: Stage) -> None:
    stage.reply = lambda one: Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": "30000"}, b"")
    await stage.sleep((DAY_MS - stage.now % DAY_MS - 40_000) / 1000)
    began = stage.now
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.sleep(45)
    await stage.jobs.complete("x", stage.deliveries[0].lease)

    ends = await stage.jobs.history("x")
    assert [(one.outcome, one.started) for one in ends] == [("lapsed", began), ("done", began)]
