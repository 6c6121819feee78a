"""What is counted against a job or an instance: losses until a retry from the dead, dead jobs in the quota."""

from __future__ import annotations

from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.transport import Answer
from tocsin.errors import QuotaExceededError

GONE = Answer(410, {}, b"")


async def lose(sim: SimulatedHost, times: int) -> None:
    """Workers take the job of queue q and are not heard of again."""
    for _ in range(times):
        [claimed] = await sim.jobs.claim("q", lease_ms=1_000, wait=1)
        await sim.sleep(2)
        assert (await sim.jobs.history(claimed.id))[-1].outcome == "lost"


async def standing(sim: SimulatedHost, id: str) -> tuple[Any, ...]:
    record = await sim.jobs.get(id)
    assert record is not None
    return record.state, record.losses, record.reason


@on_simulated_host()
async def test_a_job_that_was_lost_to_death_begins_anew_when_it_is_retried(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="a", queue="q")
    await lose(sim, 5)
    assert await standing(sim, "a") == ("dead", 5, "lost")
    assert (await sim.jobs.dead_retry("a")).retried
    assert await standing(sim, "a") == ("waiting", 0, None)
    await sim.jobs.run_after(0, "work:run", id="b", queue="q")
    together = await sim.jobs.claim("q", max=2, lease_ms=30_000, wait=0)  # it need not run alone
    assert {one.id for one in together} == {"a", "b"}
    for one in together:
        if one.id == "b":
            await sim.jobs.complete(one.id, one.lease)
    await sim.sleep(31)  # the lease of `a` ends, too
    assert await standing(sim, "a") == ("waiting", 1, None)
    await lose(sim, 3)
    assert await standing(sim, "a") == ("waiting", 4, None)
    await lose(sim, 1)
    assert await standing(sim, "a") == ("dead", 5, "lost")


@on_simulated_host()
async def test_a_bulk_retry_forgets_losses_too(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="a", queue="q")
    await lose(sim, 5)
    await sim.jobs.dead_retry_all(reason="lost")
    await sim.sleep(1)

    assert await standing(sim, "a") == ("waiting", 0, None)


@on_simulated_host(max_jobs=3)
async def test_dead_jobs_count_in_the_quota_until_they_are_retried_or_removed(sim: SimulatedHost) -> None:
    sim.reply = lambda one: GONE
    for n in range(2):
        await sim.jobs.run_after(0, "work:run", id=f"d{n}")
    await sim.sleep(1)
    assert (await sim.jobs.status()).dead == 2
    await sim.jobs.run_after("1h", "work:run", id="live")
    with pytest.raises(QuotaExceededError, match="holds 3 jobs, dead ones included, and may hold 3"):
        await sim.jobs.run_after("1h", "work:run")
    [refused] = await sim.jobs.submit_many([Job(path="work:run", after=3600)])
    assert isinstance(refused, QuotaExceededError)
    await sim.jobs.schedules.put("s", "work:run", every=10)
    await sim.sleep(11)
    [slot] = (await sim.jobs.schedules.occurrences("s")).occurrences
    assert (slot.state, slot.reason) == ("skipped", "quota")
    await sim.jobs.schedules.delete("s")
    await sim.jobs.dead_cancel("d0")
    await sim.jobs.run_after("1h", "work:run")
    with pytest.raises(QuotaExceededError):
        await sim.jobs.run_after("1h", "work:run")
