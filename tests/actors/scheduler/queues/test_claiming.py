"""Claims: what a worker gets, in which order, how it waits, and what becomes of what it never got."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, ids, on_simulated_host
from tocsin.dispatch.pulled import WorkerInfo
from tocsin.dispatch.retry import Retry
from tocsin.errors import HostClosedError, InvalidInputError, StaleLeaseError


def worker(name: str) -> WorkerInfo:
    return WorkerInfo(id=name)


# ---- What is given -------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_job_with_a_queue_is_pulled_and_never_called_back(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "mail:send", {"to": "a"}, id="x", queue="mail", priority=3, labels=["l"])
    await sim.sleep(5)
    [one] = await sim.jobs.claim("mail", worker=worker("w1"))
    record = await sim.jobs.get("x")

    assert sim.deliveries == []
    assert (one.id, one.function_path, one.args, one.attempt, one.attempts) == ("x", "mail:send", {"to": "a"}, 1, 0)
    assert (one.queue, one.priority, one.labels, one.instance_name) == ("mail", 3, ("l",), "t")
    assert one.lease_until == sim.now + 60_000 and one.webhook_id == f"x:{one.incarnation}"
    assert record is not None and record.state == "running" and record.lease is not None
    assert (record.lease.kind, record.lease.worker, record.lease.host) == ("pulled", "w1", None)
    assert await sim.jobs.complete("x", one.lease, result={"sent": True})
    assert await sim.jobs.get("x") is None
    assert [row.outcome for row in await sim.jobs.history("x")] == ["done"]


@on_simulated_host()
async def test_nothing_is_given_before_it_is_due(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(10, "work:run", id="x", queue="q")
    assert await sim.jobs.claim("q", wait=9) == []
    began = sim.now
    [one] = await sim.jobs.claim("q", wait=60)

    assert one.id == "x" and 900 <= sim.now - began <= 1_010 and one.scheduled_for <= sim.now


@on_simulated_host()
async def test_what_is_due_takes_nothing_along_that_is_not(sim: SimulatedHost) -> None:
    """They stand in the same line, one behind the other."""
    for name, after in (("now", 0), ("later", 10)):
        await sim.jobs.run_after(after, "a:b", id=name, queue="q")

    assert [one.id for one in await sim.jobs.claim("q", max=10)] == ["now"]
    await sim.sleep(10)
    assert [one.id for one in await sim.jobs.claim("q", max=10)] == ["later"]


@on_simulated_host()
async def test_jobs_come_by_priority_due_and_id(sim: SimulatedHost) -> None:
    at = sim.now
    for name, due, priority in (("c", 0, 0), ("b", 0, 0), ("late", 20_000, 0), ("old", -25_000, 0), ("top", 1_000, 1)):
        await sim.jobs.run_at(at + due, "work:run", id=name, queue="q", priority=priority)
    await sim.sleep(30)

    assert ids(await sim.jobs.claim("q", max=10)) == ["top", "old", "b", "c", "late"]


@on_simulated_host()
async def test_a_claim_takes_as_many_as_it_asks_for(sim: SimulatedHost) -> None:
    for n in range(7):
        await sim.jobs.run_after(0, "work:run", id=f"j{n}", queue="q")
    took = [ids(await sim.jobs.claim("q", max=3, wait=0)) for _ in range(4)]

    assert [len(some) for some in took] == [3, 3, 1, 0]
    assert len({one for some in took for one in some}) == 7


@on_simulated_host()
async def test_queues_have_turns(sim: SimulatedHost) -> None:
    """One with a long backlog does not hold up the others."""
    for n in range(50):
        await sim.jobs.run_after(0, "work:run", id=f"big{n}", queue="big")
    for name in ("a", "b", "c"):
        await sim.jobs.run_after(0, "work:run", id=name, queue=name)
    took = [ids(await sim.jobs.claim(max=1, wait=0))[0] for _ in range(8)]

    assert {"a", "b", "c"} <= set(took[:5])


@on_simulated_host()
async def test_a_claim_of_all_queues_leaves_out_what_it_excludes(sim: SimulatedHost) -> None:
    for name in ("a", "b", "c"):
        await sim.jobs.run_after(0, "work:run", id=name, queue=name)

    assert sorted(ids(await sim.jobs.claim(max=10, exclude=["b"]))) == ["a", "c"]
    assert ids(await sim.jobs.claim(["b", "x"], max=10)) == ["b"]


@on_simulated_host()
async def test_two_named_queues_have_turns_too(sim: SimulatedHost) -> None:
    for n in range(10):
        await sim.jobs.run_after(0, "work:run", id=f"a{n}", queue="a")
        await sim.jobs.run_after(0, "work:run", id=f"b{n}", queue="b")
    took = [ids(await sim.jobs.claim(["a", "b"], wait=0))[0][0] for _ in range(6)]

    assert took.count("a") == 3


# ---- Waiting -------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_waiting_claim_is_woken_by_the_turn_that_makes_a_job_ready(sim: SimulatedHost) -> None:
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=100))
    await sim.sleep(50)
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    began = sim.now
    [one] = await waiting

    assert one.id == "x" and sim.now - began < 50


@on_simulated_host()
async def test_a_claim_may_wait_for_an_instance_that_was_never_written(sim: SimulatedHost) -> None:
    waiting = asyncio.create_task(sim.jobs.claim(wait=100))
    await sim.sleep(1)
    assert not await sim.host.runtime.provider.exists("scheduler/t")
    await sim.jobs.run_after(1, "work:run", id="x", queue="q")

    assert ids(await waiting) == ["x"]


@on_simulated_host()
async def test_waiting_claims_write_nothing_and_ask_nothing(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(3_600, "work:run", queue="other")
    waiting = [asyncio.create_task(sim.jobs.claim(f"q{n % 10}", wait=290)) for n in range(1_000)]
    await sim.sleep(10)
    before = sim.host.runtime.provider.stats()
    await sim.sleep(200)

    assert sim.host.runtime.provider.stats() == before
    assert [await one for one in waiting] == [[]] * 1_000


@on_simulated_host()
async def test_who_came_first_gets_the_job(sim: SimulatedHost) -> None:
    waiting = []
    for n in range(5):
        waiting.append(asyncio.create_task(sim.jobs.claim("q" if n % 2 else "*", wait=100)))
        await sim.sleep(0.1)
    for n in range(5):
        await sim.jobs.run_after(0, "work:run", id=f"j{n}", queue="q")
    got = [ids(await one)[0] for one in waiting]

    assert got == ["j0", "j1", "j2", "j3", "j4"]


@on_simulated_host()
async def test_a_stopping_host_answers_who_waits_and_takes_no_more_claims(sim: SimulatedHost) -> None:
    waiting = asyncio.create_task(sim.jobs.claim("q", wait=100))
    await sim.sleep(1)
    jobs = sim.jobs
    await sim.close()

    assert await waiting == []
    with pytest.raises(HostClosedError):
        await jobs.claim("q")
    await sim.open()


@on_simulated_host()
async def test_what_a_cancelled_claim_was_about_to_get_goes_back_uncharged(sim: SimulatedHost) -> None:
    """At every step between the claim and its answer."""
    for steps in range(40):
        job = await sim.jobs.run_after(0, "work:run", queue="q")
        claim = asyncio.create_task(sim.jobs.claim("q", lease_ms=3_600_000))
        for _ in range(steps):
            await asyncio.sleep(0)
        finished = not claim.cancel()
        if finished:
            [one] = claim.result()
        else:
            with pytest.raises(asyncio.CancelledError):
                await claim
            await sim.sleep(1)
            [one] = await sim.jobs.claim("q", wait=1)
        assert one.id == job and one.attempts == 0
        await sim.jobs.complete(one.id, one.lease)


@on_simulated_host()
async def test_a_claim_whose_time_is_over_while_its_jobs_are_on_their_way_gets_them(sim: SimulatedHost) -> None:
    for _ in range(20):
        await sim.jobs.run_after(0.05, "work:run", queue="q")
        got = await sim.jobs.claim("q", wait=0.05)
        got = got or await sim.jobs.claim("q", wait=0)
        assert len(got) == 1
        await sim.jobs.complete(got[0].id, got[0].lease)


# ---- Leases --------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_lease_that_ends_gives_the_job_to_another_worker_and_counts_a_loss(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    [first] = await sim.jobs.claim(lease_ms=5_000, worker=worker("w1"))
    waiting = asyncio.create_task(sim.jobs.claim(wait=100, worker=worker("w2")))
    began = sim.now
    [second] = await waiting
    record = await sim.jobs.get("x")

    assert 5_000 <= sim.now - began < 5_100 and (second.attempt, second.attempts) == (2, 0)
    assert record is not None and record.losses == 1
    assert record.last_error is not None and "worker was lost" in record.last_error.message
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("x", first.lease)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.extend("x", first.lease, 5_000)
    await sim.jobs.complete("x", second.lease)


@on_simulated_host()
async def test_a_lease_that_is_over_settles_nothing_though_no_alarm_has_come(sim: SimulatedHost) -> None:
    """The wall clock steps over the end of the lease: what comes first is the settlement."""
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    [one] = await sim.jobs.claim(lease_ms=5_000)
    sim.clock.step(6_000)
    with pytest.raises(StaleLeaseError):
        await sim.jobs.complete("x", one.lease, ok=False)
    [again] = await sim.jobs.claim()

    assert again.attempt == 2
    await sim.jobs.complete("x", again.lease)


@on_simulated_host()
async def test_late_success_counts_while_the_job_waits(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    [one] = await sim.jobs.claim(lease_ms=5_000)
    await sim.sleep(10)

    assert await sim.jobs.complete("x", one.lease)
    assert await sim.jobs.claim(wait=1) == [] and await sim.jobs.get("x") is None
    [attempt] = await sim.jobs.history("x")
    assert (attempt.outcome, attempt.lateness_ms, attempt.ended - attempt.started) == ("done", 0, 10_000)


@on_simulated_host()
async def test_extending_holds_the_lease(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    [one] = await sim.jobs.claim(lease_ms=5_000)
    for _ in range(5):
        await sim.sleep(4)
        assert await sim.jobs.extend("x", one.lease, 5_000) == sim.now + 5_000
    settled = await sim.jobs.settle("x", one.lease)

    assert (settled.settled, settled.state) == (True, "done")


@on_simulated_host()
async def test_a_cancelled_job_is_said_to_be_when_its_lease_is_extended(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q", pool="p")
    [one] = await sim.jobs.claim()
    cancelled = await sim.jobs.cancel("x")
    with pytest.raises(StaleLeaseError) as refusal:
        await sim.jobs.extend("x", one.lease, 5_000)
    held = (await sim.jobs.pool("p")).in_flight
    settled = await sim.jobs.settle("x", one.lease)

    assert cancelled.was_running and refusal.value.details["cancelled"] and held == 1
    assert settled.state == "cancelled" and (await sim.jobs.pool("p")).in_flight == 0


@on_simulated_host()
async def test_a_job_that_loses_every_worker_is_dead(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    for n in range(5):
        assert ids(await sim.jobs.claim(lease_ms=1_000, wait=100, worker=worker(f"w{n}"))) == ["x"]
    await sim.sleep(2)
    dead = await sim.jobs.get("x")

    assert dead is not None and (dead.state, dead.reason, dead.attempts) == ("dead", "lost", 0)


@on_simulated_host()
async def test_a_job_that_has_lost_four_workers_goes_to_one_that_has_nothing_else(sim: SimulatedHost) -> None:
    """And that one gets nothing more meanwhile: the job may be what kills them."""
    await sim.jobs.run_after(0, "work:run", id="killer", queue="q")
    for n in range(4):
        await sim.jobs.claim(lease_ms=1_000, wait=100, worker=worker(f"w{n}"))
    await sim.sleep(1.5)
    await sim.jobs.run_after(0, "work:run", id="mine", queue="other")
    assert ids(await sim.jobs.claim("other", worker=worker("busy"))) == ["mine"]
    assert await sim.jobs.claim("q", wait=1, worker=worker("busy")) == []
    await sim.jobs.run_after(0, "work:run", id="next", queue="q")
    got = ids(await sim.jobs.claim("q", max=5, worker=worker("idle")))
    assert got == ["killer"]
    assert await sim.jobs.claim("*", max=5, wait=1, worker=worker("idle")) == []

    assert ids(await sim.jobs.claim("q", max=5, worker=worker("another"))) == ["next"]


# ---- Settling ------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_failed_attempt_climbs_the_ladder_and_says_so(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q", retry=Retry(max_retries=1, base_ms=10_000))
    [one] = await sim.jobs.claim()
    first = await sim.jobs.settle("x", one.lease, ok=False, error="boom")
    again = await sim.jobs.settle("x", one.lease, ok=False, error="boom")
    [two] = await sim.jobs.claim(wait=100)
    second = await sim.jobs.settle("x", two.lease, ok=False, error="boom again")
    dead = await sim.jobs.get("x")

    assert (first.state, first.next_attempt_at) == ("retrying", sim.now) and again == first
    assert (second.state, second.reason) == ("dead", "exhausted")
    assert dead is not None and dead.last_error is not None and dead.last_error.message == "boom again"


@on_simulated_host()
async def test_an_attempt_given_back_is_not_charged(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    for _ in range(20):
        [one] = await sim.jobs.claim(wait=0)
        back = await sim.jobs.settle("x", one.lease, ok=False, charge=False, delay=0, error="interrupted by shutdown")
        assert back.state == "retrying"
    record = await sim.jobs.get("x")

    assert record is not None and (record.attempts, record.attempt) == (0, 20)


@on_simulated_host()
async def test_what_is_never_charged_is_charged_a_day_past_due(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    await sim.sleep(86_400)
    for _ in range(6):
        [one] = await sim.jobs.claim(wait=0)
        last = await sim.jobs.settle("x", one.lease, ok=False, charge=False, delay=0)

    assert (last.state, last.reason) == ("dead", "exhausted")


@on_simulated_host()
async def test_what_cannot_be_claimed_is_refused_by_name(sim: SimulatedHost) -> None:
    for bad, words in (
        ({"queue": ""}, "queue"), ({"queue": "a b"}, r"queue\[0\]"), ({"queue": []}, "queue: name one"),
        ({"max": 0}, r"max must be 1\.\.100"), ({"max": True}, "max must be an integer"),
        ({"lease_ms": 999}, r"lease_ms must be 1000\.\.3600000"),
        ({"wait": 301}, r"wait \(in ms\) must be 0\.\.300000"),
        ({"wait": -1}, "wait"), ({"queue": "q", "exclude": ["x"]}, "exclude goes with"),
        ({"exclude": ["!"]}, r"exclude\[0\]"), ({"worker": worker("a b")}, r"worker\.id"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=words):
            await sim.jobs.claim(**bad)
    assert not sim.host._service.inflight("t").waiting_claims.busy


@on_simulated_host()
async def test_a_claim_that_comes_in_the_middle_of_a_turn_is_served_by_it_or_by_the_next(sim: SimulatedHost) -> None:
    """Claims stand in line without a turn of their own, so one may come while a turn reads what callbacks are due."""
    for steps in range(40):
        due = sim.now + 100
        await sim.jobs.run_at(due, "work:run", queue="q")
        await sim.jobs.run_at(due, "work:called")
        await sim.sleep(0.1)
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            [one] = await sim.jobs.claim("q", wait=5)
        await sim.jobs.complete(one.id, one.lease)
