"""D1 to D13: faults of the system ours descends from, each shown not to exist here.

D11 (names of weekdays matched exactly) is of its cron builder, and has its test when ours has one.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.testing import VirtualClock
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.target import callback_url
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import StaleLeaseError, StoreUnavailable

ACCEPTED = Answer(202, {"tocsin-accepted": "1"}, b"")


@on_simulated_host(lanes=1)
async def test_d1_a_job_that_replaced_a_waiting_one_runs_with_its_own_args_and_is_not_lost(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(5)
    await sim.jobs.run_after(0, "work:run", id="lane")
    await sim.jobs.run_after(0, "work:run", {"n": 1}, id="x")
    await sim.sleep(1)
    await sim.jobs.cancel("x")
    await sim.jobs.run_after(0, "work:run", {"n": 2}, id="x")
    await sim.sleep(60)

    assert [one.body["args"] for one in sim.deliveries if one.id == "x"] == [{"n": 2}]


@on_simulated_host()
async def test_d2_the_answer_of_a_cancelled_attempt_does_not_delete_the_job_that_took_its_id(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: after(10)
    await sim.jobs.run_after(0, "work:run", {"n": 1}, id="x")
    await sim.sleep(1)
    await sim.jobs.cancel("x")
    await sim.jobs.run_after("1m", "work:run", {"n": 2}, id="x")
    await sim.sleep(30)
    record = await sim.jobs.get("x")

    assert record is not None and record.args == {"n": 2}


@on_simulated_host()
async def test_d3_a_lost_holder_of_the_last_slot_does_not_block_its_own_next_attempt(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(1_000)
    await sim.jobs.run_after(0, "work:run", id="x", pool="p", timeout_ms=1_000)
    await sim.sleep(0.5)
    await sim.crash()
    sim.reply = lambda one: OK
    await sim.open()
    await sim.sleep(20)

    assert await sim.jobs.get("x") is None


@on_simulated_host()
async def test_d4_an_attempt_that_fails_inside_the_host_leaks_no_slot(sim: SimulatedHost) -> None:
    def broken(one: Delivery) -> Answer:
        raise RuntimeError("a fault of the transport itself")

    sim.reply = broken
    await sim.jobs.run_after(0, "work:run", id="x", pool="p", retry=Retry(max_retries=0))
    await sim.sleep(1)
    record = await sim.jobs.get("x")

    assert record is not None and record.state == "dead"
    assert (await sim.jobs.pool("p")).in_flight == 0


@on_simulated_host()
async def test_d5_a_late_completion_of_the_first_attempt_does_not_free_the_slot_of_the_second(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": "1000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", pool="p", retry=Retry(base_ms=100))
    await sim.sleep(1.5)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("x", sim.deliveries[0].lease)

    assert (await sim.jobs.pool("p")).in_flight == 1
    await sim.jobs.complete("x", sim.deliveries[1].lease)


@on_simulated_host()
async def test_d6_a_slot_is_handed_over_in_the_instant_it_is_freed(sim: SimulatedHost) -> None:
    sim.reply = lambda one: ACCEPTED
    await sim.jobs.submit_many([Job(path="work:run", after=0, options={"pool": "p"}) for _ in range(5)])
    for n in range(5):
        await sim.sleep(0.7)
        await sim.jobs.complete(sim.deliveries[n].id, sim.deliveries[n].lease)
        await sim.sleep(0.0001)
        assert len(sim.deliveries) == min(n + 2, 5)


@on_simulated_host()
async def test_d7_caps_given_by_many_jobs_at_once_neither_lose_holders_nor_exceed_themselves(
    sim: SimulatedHost,
) -> None:
    running = most = 0

    async def work(one: Delivery) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return OK

    sim.reply = work
    jobs = [sim.jobs.run_after(n / 10, "work:run", pool="p", max_concurrency=3) for n in range(40)]
    await asyncio.gather(*jobs)
    await sim.sleep(60)

    assert most == 3
    assert len(sim.deliveries) == 40


@on_simulated_host()
async def test_d8_a_completion_for_a_pool_nobody_knows_makes_none(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run", id="x")
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("x", "1.1.0")

    assert (await sim.jobs.status()).pools == []


@on_simulated_host()
async def test_d9_a_store_that_will_not_take_a_settlement_makes_no_hot_loop(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(500, {}, b"")
    combiner = sim.host.runtime.provider.combiner  # type: ignore[attr-defined]
    write, tries, failing = combiner._write, 0, False

    async def refuse(writes: object) -> None:
        nonlocal tries
        if failing:
            tries += 1
            raise StoreUnavailable("refused")
        await write(writes)

    combiner._write = refuse
    await sim.jobs.run_after("1s", "work:run", id="x")
    await sim.sleep(1.0001)
    failing = True
    await sim.sleep(600)
    failing = False
    await sim.sleep(60)
    record = await sim.jobs.get("x")

    assert tries < 600
    assert record is not None and record.attempts >= 1


@on_simulated_host()
async def test_d10_what_a_failed_start_did_not_look_at_is_looked_at_by_the_next(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("5s", "work:run", id="x")
    await sim.host.runtime.evict()
    scan = sim.disk.scan_many
    failures = iter([StoreUnavailable("a read failed")])

    def broken(*args: object) -> object:
        for failure in failures:
            raise failure
        return scan(*args)  # type: ignore[arg-type]

    sim.disk.scan_many = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreUnavailable):
        await sim.jobs.cancel("nobody")
    await sim.sleep(30)

    assert len(sim.times("x")) == 1


def test_d12_a_trailing_slash_of_the_origin_is_not_doubled() -> None:
    assert callback_url("https://app.example/", "/_tocsin/callback") == "https://app.example/_tocsin/callback"


@on_simulated_host()
async def test_d13_a_crash_at_any_instant_finds_whole_changes(sim: SimulatedHost) -> None:
    """The simulation tries every await; here the rows of one busy second, after each of thirty crashes."""
    assert isinstance(sim.clock, VirtualClock)
    for n in range(30):
        sim.reply = lambda one: after(0.05, OK if one.attempt > 1 else Answer(500, {}, b""))
        await sim.jobs.submit_many([Job(path="work:run", after=0, options={"pool": "p"}) for _ in range(3)])
        await sim.sleep(0.013 * n)
        await sim.crash()
        assert await sim.faults() == []
        await sim.open()
