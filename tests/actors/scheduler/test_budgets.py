"""What is counted against a job or an instance: losses until a retry from the dead, dead jobs in the quota."""

from __future__ import annotations

from typing import Any

import pytest

from tests.actors.scheduler.stage import Stage, staged
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.transport import Answer
from tocsin.errors import QuotaExceededError

GONE = Answer(410, {}, b"")


async def lose(stage: Stage, times: int) -> None:
    """Workers take the job of queue q and are not heard of again."""
    for _ in range(times):
        [claimed] = await stage.jobs.claim("q", lease_ms=1_000, wait=1)
        await stage.sleep(2)
        assert (await stage.jobs.history(claimed.id))[-1].outcome == "lost"


async def standing(stage: Stage, id: str) -> tuple[Any, ...]:
    record = await stage.jobs.get(id)
    assert record is not None
    return record.state, record.losses, record.reason


@staged()
async def test_a_job_that_was_lost_to_death_begins_anew_when_it_is_retried(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="a", queue="q")
    await lose(stage, 5)
    assert await standing(stage, "a") == ("dead", 5, "lost")
    assert (await stage.jobs.dead_retry("a")).retried
    assert await standing(stage, "a") == ("waiting", 0, None)
    await stage.jobs.run_after(0, "work:run", id="b", queue="q")
    together = await stage.jobs.claim("q", max=2, lease_ms=30_000, wait=0)  # it need not run alone
    assert {one.id for one in together} == {"a", "b"}
    for one in together:
        if one.id == "b":
            await stage.jobs.complete(one.id, one.lease)
    await stage.sleep(31)  # the lease of `a` ends, too
    assert await standing(stage, "a") == ("waiting", 1, None)
    await lose(stage, 3)
    assert await standing(stage, "a") == ("waiting", 4, None)
    await lose(stage, 1)
    assert await standing(stage, "a") == ("dead", 5, "lost")


@staged()
async def test_a_bulk_retry_forgets_losses_too(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="a", queue="q")
    await lose(stage, 5)
    await stage.jobs.dead_retry_all(reason="lost")
    await stage.sleep(1)

    assert await standing(stage, "a") == ("waiting", 0, None)


@staged(max_jobs=3)
async def test_dead_jobs_count_in_the_quota_until_they_are_retried_or_removed(stage: Stage) -> None:
    stage.reply = lambda one: GONE
    for n in range(2):
        await stage.jobs.run_after(0, "work:run", id=f"d{n}")
    await stage.sleep(1)
    assert (await stage.jobs.status()).dead == 2
    await stage.jobs.run_after("1h", "work:run", id="live")
    with pytest.raises(QuotaExceededError, match="holds 3 jobs, dead ones included, and may hold 3"):
        await stage.jobs.run_after("1h", "work:run")
    [refused] = await stage.jobs.submit_many([Job(path="work:run", after=3600)])
    assert isinstance(refused, QuotaExceededError)
    await stage.jobs.schedules.put("s", "work:run", every=10)
    await stage.sleep(11)
    [slot] = (await stage.jobs.schedules.occurrences("s")).occurrences
    assert (slot.state, slot.reason) == ("skipped", "quota")
    await stage.jobs.schedules.delete("s")
    await stage.jobs.dead_cancel("d0")
    await stage.jobs.run_after("1h", "work:run")
    with pytest.raises(QuotaExceededError):
        await stage.jobs.run_after("1h", "work:run")
