"""An operator frees the slot of an attempt of which nobody will hear."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidScheduleIdError, StaleLeaseError

ACCEPTED = Answer(202, {"tocsin-accepted": "1"}, b"")


async def accepted(sim: SimulatedHost, id: str = "x", **options: object) -> str:
    """Schedule a job whose receiver accepts it, and is not heard of again; its lease."""
    before = sim.reply
    sim.reply = lambda one: ACCEPTED
    await sim.jobs.run_after(0, "work:run", id=id, pool="p", **options)  # type: ignore[arg-type]
    await sim.sleep(1)
    sim.reply = before
    return sim.deliveries[-1].lease


@on_simulated_host()
async def test_the_slot_is_free_at_once_and_the_job_goes_on_as_when_its_lease_ends(sim: SimulatedHost) -> None:
    await accepted(sim)
    await sim.jobs.run_after(0, "work:run", id="next", pool="p")
    await sim.sleep(1)
    assert [one.id for one in sim.deliveries] == ["x"]

    freed = await sim.jobs.free_slot("x")
    await sim.sleep(1)
    assert (freed.freed, freed.id, freed.pool, freed.state) == (True, "x", "p", "retrying")
    assert freed.next_attempt_at == sim.now - 1_000 + 30_000
    assert [one.id for one in sim.deliveries] == ["x", "next"]
    record = await sim.jobs.get("x")
    assert record is not None and record.attempts == 1 and record.last_error is not None
    assert "its slot was freed before its lease ended" in record.last_error.message

    await sim.sleep(40)
    assert [one.id for one in sim.deliveries] == ["x", "next", "x"]
    ended = [(one.outcome, one.error) for one in await sim.jobs.history("x")]
    assert [outcome for outcome, _ in ended] == ["lapsed", "done"]
    assert "freed" in str(ended[0][1])


@on_simulated_host()
async def test_it_is_named_and_audited_with_its_pool_and_lease(sim: SimulatedHost) -> None:
    lease = await accepted(sim)
    jobs = sim.host.scheduler(sim.jobs.name, by="alice")
    await jobs.free_slot("x")
    (entry,) = (await sim.jobs.audit(action="free_slot")).actions
    assert entry.by.user == "alice" and entry.about == "x" and entry.changed == 1
    assert entry.given == {"pool": "p", "kind": "accepted", "lease": lease}
    (attempt,) = await sim.jobs.history("x")
    assert "user alice" in str(attempt.error)

    await jobs.free_slot("x")  # nothing holds it: nothing is noted
    assert len((await sim.jobs.audit(action="free_slot")).actions) == 1


@on_simulated_host()
async def test_a_late_success_counts_once_while_the_job_waits_and_is_stale_afterwards(sim: SimulatedHost) -> None:
    lease = await accepted(sim)
    await sim.jobs.free_slot("x")
    assert await sim.jobs.complete("x", lease) is True
    assert await sim.jobs.get("x") is None
    assert await sim.jobs.complete("x", lease) is True  # the same answer again
    assert sum(one.outcome == "done" for one in await sim.jobs.history("x")) == 1

    lease = await accepted(sim, "y")
    await sim.jobs.free_slot("y")
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("y", lease, ok=False)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.extend("y", lease, 5_000)
    sim.reply = lambda one: ACCEPTED
    await sim.sleep(40)  # its next attempt has begun
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("y", lease)
    assert await sim.jobs.complete("y", sim.deliveries[-1].lease) is True


@on_simulated_host()
async def test_an_attempt_without_an_answer_is_freed_and_keeps_the_instant_of_its_retry(sim: SimulatedHost) -> None:
    async def never(one: Delivery) -> Answer:
        await asyncio.sleep(3_600)
        return OK

    sim.reply = never
    await sim.jobs.run_after(0, "work:run", id="x", pool="p", timeout_ms=1_000)
    await sim.sleep(2)
    (holder,) = (await sim.jobs.pool("p")).holders
    assert holder.kind == "unknown"
    freed = await sim.jobs.free_slot("x")
    assert freed.state == "retrying" and not (await sim.jobs.pool("p")).holders
    assert freed.next_attempt_at is not None and 28_000 <= freed.next_attempt_at - sim.now <= 30_000
    (attempt,) = await sim.jobs.history("x")
    assert attempt.outcome == "unknown" and "freed" in str(attempt.error)


@on_simulated_host()
async def test_a_job_without_a_retry_left_is_dead_when_its_slot_is_freed(sim: SimulatedHost) -> None:
    await accepted(sim, retry=Retry(max_retries=0))
    freed = await sim.jobs.free_slot("x")
    assert (freed.state, freed.reason, freed.next_attempt_at) == ("dead", "exhausted", None)


@on_simulated_host()
async def test_the_slot_of_a_cancelled_job_is_freed_and_its_id_may_be_held_by_another(sim: SimulatedHost) -> None:
    old = await accepted(sim)
    await sim.jobs.cancel("x")
    await sim.jobs.run_after(0, "work:run", id="x", pool="p")
    await sim.sleep(1)
    (holder,) = (await sim.jobs.pool("p")).holders
    assert holder.orphan
    assert [one.lease for one in sim.deliveries] == [old]

    freed = await sim.jobs.free_slot("x")
    assert (freed.freed, freed.state, freed.pool) == (True, "cancelled", "p")
    await sim.sleep(1)
    assert len(sim.deliveries) == 2 and await sim.jobs.get("x") is None
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("x", old)


@on_simulated_host()
async def test_an_attempt_that_runs_is_refused(sim: SimulatedHost) -> None:
    gate = asyncio.Event()

    async def wait(one: Delivery) -> Answer:
        await gate.wait()
        return OK

    sim.reply = wait
    await sim.jobs.run_after(0, "work:run", id="x", pool="p")
    await sim.jobs.run_after(0, "work:pull", id="q", queue="q")
    await sim.sleep(1)
    await sim.jobs.claim("q", wait=0)
    for id, said in (("x", "is being called"), ("q", "worker")):
        with pytest.raises(ConflictError, match=said):
            await sim.jobs.free_slot(id)
    await sim.jobs.cancel("x")
    with pytest.raises(ConflictError, match="is being called"):
        await sim.jobs.free_slot("x")  # cancelled, but this host calls for it
    gate.set()
    assert (await sim.jobs.free_slot("nobody")).freed is False
    with pytest.raises(InvalidScheduleIdError):
        await sim.jobs.free_slot("a b")
