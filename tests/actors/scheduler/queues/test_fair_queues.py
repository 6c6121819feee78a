"""Fair queues: jobs with different shard keys have turns without a pool, by weights, with a cap for each key."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.flow_rows import PoolFlow, QueueRow
from tocsin.actors.scheduler.model.row_kinds import read_row
from tocsin.actors.scheduler.model.rows import BadRow, PoolRow, encode
from tocsin.errors import InvalidInputError


def of(key: str, count: int, *, queue: str = "q", **options: object) -> list[Job]:
    return [
        Job(path="work:run", after=0, options={"id": f"{key}-{n:05d}", "queue": queue, "shard_key": key, **options})
        for n in range(count)
    ]


async def worked(sim: SimulatedHost, count: int, *, most: int = 1, queue: str = "q") -> list[str]:
    """Claim so many jobs, settle each, and return their keys in the order in which they went."""
    keys: list[str] = []
    while len(keys) < count:
        claimed = await sim.jobs.claim(queue, max=most, wait=0)
        assert claimed, f"nothing could be claimed after {keys}"
        for one in claimed:
            keys.append(one.id.partition("-")[0])
            await sim.jobs.complete(one.id, one.lease)
    return keys


@on_simulated_host()
async def test_keys_have_turns_in_a_queue_without_a_pool(sim: SimulatedHost) -> None:
    await sim.jobs.set_queue("q", fair=True)
    await sim.jobs.submit_many(of("many", 50))
    await sim.jobs.submit_many(of("few", 3))
    await sim.jobs.submit_many([*of("a", 3, queue="other"), *of("b", 3, queue="other")])

    assert await worked(sim, 6) == ["many", "few"] * 3
    assert Counter(await worked(sim, 47, most=10)) == {"many": 47}
    assert await worked(sim, 6, queue="other") == ["a", "a", "a", "b", "b", "b"], "another queue is not fair"


@on_simulated_host()
async def test_a_claim_of_several_jobs_takes_them_by_turns(sim: SimulatedHost) -> None:
    await sim.jobs.set_queue("q", fair=True, weights={"gold": 3})
    for key in ("gold", "tin"):
        await sim.jobs.submit_many(of(key, 40))

    assert Counter(await worked(sim, 40, most=8)) == {"gold": 30, "tin": 10}


@on_simulated_host()
async def test_it_is_switched_on_and_off_with_jobs_waiting(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many(of("a", 300))
    await sim.jobs.submit_many(of("b", 300))
    assert await worked(sim, 4) == ["a"] * 4

    await sim.jobs.set_queue("q", fair=True)
    await sim.sleep(5)
    assert sorted(Counter(await worked(sim, 40)).items()) == [("a", 20), ("b", 20)]

    await sim.jobs.set_queue("q", fair=False)
    await sim.sleep(5)
    assert await worked(sim, 276) == ["a"] * 276, "they are in the order of their due instants again"
    assert await worked(sim, 280) == ["b"] * 280
    assert not await sim.jobs.claim("q", wait=0)


@on_simulated_host()
async def test_a_restart_changes_nothing(sim: SimulatedHost) -> None:
    await sim.jobs.set_queue("q", fair=True, weights={"a": 2}, max_per_key=3)
    await sim.jobs.submit_many(of("a", 20))
    await sim.jobs.submit_many(of("b", 20))
    held = await sim.jobs.claim("q", max=4, wait=0, lease_ms=600_000)
    await sim.crash()
    await sim.open()

    [queue] = await sim.jobs.queues()
    assert (queue.fair, queue.weights, queue.max_per_key) == (True, {"a": 2}, 3)
    held += await sim.jobs.claim("q", max=10, wait=0, lease_ms=600_000)
    assert Counter(one.id[0] for one in held) == {"a": 3, "b": 3}, "leases from before the crash count"
    for one in held:
        await sim.jobs.complete(one.id, one.lease)
    assert sorted(Counter(await worked(sim, 12)).items()) == [("a", 8), ("b", 4)]


@on_simulated_host()
async def test_no_more_jobs_of_a_key_run_at_once_than_its_cap_and_why_says_so(sim: SimulatedHost) -> None:
    await sim.jobs.set_queue("q", fair=True, max_per_key=2)
    await sim.jobs.submit_many(of("a", 5))
    held = await sim.jobs.claim("q", max=10, wait=0, lease_ms=600_000)
    assert len(held) == 2 and not await sim.jobs.claim("q", wait=0)

    why = {one.code: one for one in await sim.jobs.why("a-00004")}
    assert "2 jobs with shard key 'a' run in queue q, and no more than 2 may at once" in why["KEY_FULL"].message
    assert (why["KEY_FULL"].holders, why["KEY_FULL"].pool) == (["a-00000", "a-00001"], None)
    await sim.jobs.complete(held[0].id, held[0].lease)
    assert len(await sim.jobs.claim("q", max=10, wait=0)) == 1
    await sim.jobs.set_queue("q", max_per_key=0)
    assert len(await sim.jobs.claim("q", max=10, wait=0)) == 2


@on_simulated_host()
async def test_the_turns_of_a_fair_pool_go_before_and_both_caps_hold(sim: SimulatedHost) -> None:
    await sim.jobs.set_queue("q", fair=True, weights={"a": 3}, max_per_key=2)
    await sim.jobs.set_pool("p", max_concurrency=10, fair=True, weights={"b": 3}, max_per_key=4)
    await sim.jobs.submit_many(of("a", 20, pool="p"))
    await sim.jobs.submit_many(of("b", 20, pool="p"))

    assert Counter(await worked(sim, 20)) == {"a": 5, "b": 15}
    held = await sim.jobs.claim("q", max=10, wait=0)
    assert Counter(one.id[0] for one in held) == {"a": 2, "b": 2}


@on_simulated_host()
async def test_its_settings_are_checked_noted_and_taken_back(sim: SimulatedHost) -> None:
    for wrong in ({}, {"fair": 1}, {"weights": {"a": 0}}, {"max_per_key": -1}, {"rate": "none"}):
        with pytest.raises(InvalidInputError):
            await sim.jobs.set_queue("q", **wrong)
    with pytest.raises(InvalidInputError):
        await sim.jobs.set_queue("no/queue", fair=True)
    queue = await sim.jobs.set_queue("q", fair=True, weights={"a": 2})
    assert (queue.name, queue.fair, queue.weights, queue.waiting) == ("q", True, {"a": 2}, 0)
    await sim.jobs.set_queue("q", fair=True)
    [noted] = (await sim.jobs.audit()).actions
    assert (noted.action, noted.about, noted.changed) == ("set_queue", "q", 1)
    queue = await sim.jobs.set_queue("q", fair=False, weights={})
    assert (queue.fair, queue.weights) == (False, None)
    assert not await sim.jobs.queues()


@on_simulated_host()
async def test_what_was_set_goes_with_the_instance_that_is_removed(sim: SimulatedHost) -> None:
    await sim.jobs.set_queue("q", fair=True)
    await sim.jobs.submit_many(of("a", 3))
    await sim.jobs.remove()
    assert not await sim.jobs.queues()
    await sim.jobs.submit_many([*of("a", 3), *of("b", 3)])

    assert await worked(sim, 6) == ["a", "a", "a", "b", "b", "b"]


def test_a_row_with_a_weight_that_is_none_is_not_read() -> None:
    for key, row in (
        (b"queue/q", QueueRow(fair=True, weights={"a": 0})),
        (b"pool/p", PoolRow(1, flow=PoolFlow(fair=True, weights={"a": 0}))),
    ):
        with pytest.raises(BadRow, match="no turns"):
            read_row(key, encode(row))
