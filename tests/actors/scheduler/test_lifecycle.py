"""Ids, cancel, lanes, permits, stops and crashes: a scheduler's life beyond a single attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import date
from decimal import Decimal

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.dispatch.values import decode
from tocsin.errors import DuplicateScheduleIdError, InvalidInputError, PayloadTooLargeError, StoreFull, TocsinError

# ---- Ids -----------------------------------------------------------------------------------------


@on_simulated_host()
async def test_an_id_is_taken_while_its_job_is_pending_running_or_dead(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1m", "work:run", id="pending")
    sim.reply = lambda one: after(30)
    await sim.jobs.run_after(0, "work:run", id="running")
    await sim.sleep(1)
    sim.reply = lambda one: Answer(410, {}, b"")
    await sim.jobs.run_after(0, "work:run", id="dead")
    await sim.sleep(1)
    for state in ("pending", "running", "dead"):
        with pytest.raises(DuplicateScheduleIdError, match=f"taken by a {state} job"):
            await sim.jobs.run_after(0, "work:run", id=state)
    sim.reply = lambda one: OK
    await sim.sleep(120)

    assert await sim.jobs.run_after("1s", "work:run", id="pending") == "pending"
    await sim.sleep(5)


@on_simulated_host()
async def test_keep_answers_the_job_that_is_there(sim: SimulatedHost) -> None:
    first = Job(path="work:run", args={"n": 1}, at=sim.now + 60_000, options={"id": "x", "on_conflict": "keep"})
    other = Job(path="work:run", args={"n": 2}, at=sim.now + 60_000, options={"id": "x", "on_conflict": "keep"})
    answers = [(await sim.jobs.submit_many([job]))[0] for job in (first, first, other)]

    assert [(a.created, a.identical, a.state) for a in answers if isinstance(a, Scheduled)] == [
        (True, None, None),
        (False, True, "pending"),
        (False, False, "pending"),
    ]


@on_simulated_host()
async def test_replace_swaps_a_waiting_job_and_refuses_a_running_one(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1m", "work:run", {"n": 1}, id="x", pool="p")
    await sim.jobs.run_after("2s", "work:run", {"n": 2}, id="x", on_conflict="replace")
    sim.reply = lambda one: after(10)
    await sim.sleep(3)
    with pytest.raises(DuplicateScheduleIdError, match="running"):
        await sim.jobs.run_after("1s", "work:run", id="x", on_conflict="replace")
    await sim.sleep(120)

    assert [one.body["args"] for one in sim.deliveries] == [{"n": 2}]


@on_simulated_host()
async def test_a_reused_id_runs_its_own_job_and_the_first_answer_changes_nothing(sim: SimulatedHost) -> None:
    """D1 and D2 of the system ours descends from: cancel and schedule again while the first attempt runs."""
    sim.reply = lambda one: after(20 if one.body["args"] == {"n": 1} else 0)
    await sim.jobs.run_after(0, "work:run", {"n": 1}, id="x")
    await sim.sleep(1)
    cancelled = await sim.jobs.cancel("x")
    await sim.jobs.run_after("5s", "work:run", {"n": 2}, id="x")
    await sim.sleep(60)

    assert (cancelled.cancelled, cancelled.was_running) == (True, True)
    assert [one.body["args"] for one in sim.deliveries] == [{"n": 1}, {"n": 2}]
    assert len({one.webhook_id for one in sim.deliveries}) == 2
    assert await sim.jobs.get("x") is None


@on_simulated_host()
async def test_a_cancelled_job_whose_attempt_fails_does_not_come_back(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(5, Answer(500, {}, b""))
    job_id = await sim.jobs.run_after(0, "work:run", pool="p")
    await sim.sleep(1)
    await sim.jobs.cancel(job_id)
    held = await sim.jobs.status()
    await sim.sleep(600)

    assert held.pools[0].in_flight == 1  # until the attempt answers
    assert len(sim.deliveries) == 1
    assert (await sim.jobs.status()).pools == []
    assert (await sim.jobs.cancel(job_id)).cancelled is False


@on_simulated_host()
async def test_cancel_leaves_dead_letters_to_dead_cancel(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"")
    await sim.jobs.run_after(0, "work:run", id="x")
    await sim.sleep(1)

    assert (await sim.jobs.cancel("x")).cancelled is False
    assert await sim.jobs.dead_cancel("x") is True
    assert await sim.jobs.dead_cancel("x") is False
    assert await sim.jobs.get("x") is None


# ---- Refusals ------------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_batch_answers_each_job_for_itself(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1m", "work:run", id="taken")
    answers = await sim.jobs.submit_many(
        [
            Job(path="work:run", after="1m", options={"id": "a"}),
            Job(path="work:run", after="1m", options={"id": "a"}),
            Job(path="work:run", after="1m", options={"id": "taken"}),
            Job(path="work:run", after=-1),
            Job(path="work:run", after="1m", args={"when": object()}),
            Job(path="work:run", after="1m"),
        ]
    )

    assert [isinstance(one, TocsinError) for one in answers] == [False, True, True, True, True, False]
    assert (await sim.jobs.status()).backlog == 3


@on_simulated_host()
async def test_refused_arguments_say_which_and_change_nothing(sim: SimulatedHost) -> None:
    from datetime import datetime

    jobs = sim.jobs
    for call, words in (
        (jobs.run_after(float("nan"), "w:r"), "delay must be finite"),
        (jobs.run_after(True, "w:r"), "delay must be"),
        (jobs.run_after("5 parsecs", "w:r"), "delay must look like"),
        (jobs.run_at(datetime(2027, 1, 1), "w:r"), "at must be an aware datetime"),
        (jobs.run_at(1_800_000_000, "w:r"), "at looks like seconds"),
        (jobs.run_at(10**15, "w:r"), "at must be"),
        (jobs.run_after(1, ""), "path must be a text"),
        (jobs.run_after(1, "w:r", {"items": [1, {"when": object()}]}), r"args.items\[1\].when is an object"),
        (jobs.run_after(1, "w:r", [{1}]), r"args\[0\] is a set"),
        (jobs.run_after(1, "w:r", pool="a/b"), "pool must be 1 to 128"),
        (jobs.run_after(1, "w:r", max_concurrency=3), "give pool as well"),
        (jobs.run_after(1, "w:r", priority=10), r"priority must be -9..9, not 10"),
        (jobs.run_after(1, "w:r", timeout_ms=1), r"timeout_ms must be 1000..3600000, not 1"),
        (jobs.run_after(1, "w:r", labels=["x"] * 21), "at most 20"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            await call
    with pytest.raises(PayloadTooLargeError, match="262144"):
        await jobs.run_after(1, "w:r", "x" * 300_000)

    assert sim.disk.maps == {}


@on_simulated_host()
async def test_typed_args_arrive_as_they_were_given(sim: SimulatedHost) -> None:
    args = {"amount": Decimal("19.90"), "until": date(2027, 1, 1), "key": b"\x00", "n": 2**80}
    job_id = await sim.jobs.run_after("1s", "work:run", args)
    record = await sim.jobs.get(job_id)
    await sim.sleep(2)

    assert record is not None and record.args == args
    assert decode(msgspec.json.encode(sim.receiver.deliveries[0].body["args"])) == args


@on_simulated_host()
async def test_large_args_arrive_whole(sim: SimulatedHost) -> None:
    text = "é" * 100_000
    await sim.jobs.run_after(0, "work:run", text, id="x")
    await sim.jobs.run_after("1m", "work:run", text, id="y")
    listed = (await sim.jobs.list()).records
    await sim.sleep(1)
    await sim.jobs.cancel("y")

    assert [one.body["args"] for one in sim.deliveries] == [text]
    assert all(one.args == text for one in listed)


@on_simulated_host()
async def test_reading_and_cancelling_create_no_instance(sim: SimulatedHost) -> None:
    assert await sim.jobs.get("x") is None
    assert (await sim.jobs.cancel("x")).cancelled is False
    assert (await sim.jobs.dead_retry("x")).retried is False
    assert await sim.jobs.dead_cancel("x") is False
    assert (await sim.jobs.list()).records == []
    assert (await sim.jobs.status()).backlog == 0
    assert sim.disk.maps == {}


# ---- Lanes and permits ---------------------------------------------------------------------------


@on_simulated_host(lanes=3)
async def test_lanes_bound_what_is_in_flight_and_a_freed_one_goes_on_at_once(sim: SimulatedHost) -> None:
    running, most = 0, 0

    async def work(one: Delivery) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(2 if one.id == "slow" else 1)
        running -= 1
        return OK

    sim.reply = work
    await sim.jobs.run_after(0, "work:run", id="slow", priority=9)
    await sim.jobs.submit_many([Job(path="work:run", after=0, options={"id": f"j{n}"}) for n in range(8)])
    await sim.sleep(10)

    assert most == 3
    assert [at for at, _ in sim.arrivals] == [0, 0, 0, 1000, 1000, 2000, 2000, 2000, 3000]


@on_simulated_host(lanes=8, max_in_flight=4)
async def test_permits_are_shared_round_robin_among_schedulers(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(1)
    for name in ("a", "b", "c", "d"):
        await sim.host.scheduler(name).submit_many([Job(path="work:run", after="1s") for _ in range(40)])
    await sim.sleep(22)
    seen = Counter(one.body["instanceName"] for one in sim.deliveries)

    assert sum(seen.values()) >= 80
    assert max(seen.values()) - min(seen.values()) <= 8
    await sim.sleep(40)
    assert len(sim.deliveries) == 160


@on_simulated_host(lanes=2)
async def test_a_full_pool_holds_up_nobody_outside_it(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(30)
    await sim.jobs.submit_many(
        [Job(path="work:run", after="1s", options={"pool": "p"}) for _ in range(50)]
        + [Job(path="work:run", after="2s", options={"id": "free"})]
    )
    await sim.sleep(3)
    status = await sim.jobs.status()

    assert sim.times("free") == [2_000]
    assert [(one.name, one.in_flight, one.queued) for one in status.pools] == [("p", 1, 49)]
    assert await sim.faults() == []


@on_simulated_host(lanes=1)
async def test_start_order_is_due_minus_thirty_seconds_per_priority(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(1)
    await sim.jobs.run_after(0, "work:run", id="first")
    for name, delay, priority in (("low", -20, -1), ("early", -10, 0), ("urgent", 0, 2), ("plain", 0, 0)):
        await sim.jobs.run_at(sim.now + delay * 1000, "work:run", id=name, priority=priority)
    await sim.sleep(10)

    assert [one.id for one in sim.deliveries] == ["first", "urgent", "early", "plain", "low"]


# ---- Stops, crashes and clocks -------------------------------------------------------------------


@on_simulated_host(drain_s=2.0)
async def test_a_graceful_stop_lets_attempts_end_and_does_not_charge_those_it_ends(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(1 if one.id == "quick" else 100)
    await sim.jobs.run_after(0, "work:run", id="quick")
    await sim.jobs.run_after(0, "work:run", id="slow")
    await sim.sleep(0.5)
    await sim.close()
    await sim.open()
    held = await sim.jobs.get("slow")

    assert await sim.jobs.get("quick") is None
    assert held is not None and held.lease is not None
    assert (held.attempts, held.lease.kind) == (0, "unknown")
    sim.reply = lambda one: Answer(500, {}, b"")
    await sim.sleep(80)
    assert sim.times("slow")[1:] == [75_000]
    again = await sim.jobs.get("slow")
    assert again is not None and again.attempts == 1, "its second attempt, which failed"
    sim.reply = lambda one: OK
    await sim.sleep(30)
    assert await sim.jobs.get("slow") is None


@on_simulated_host()
async def test_five_lost_hosts_end_a_job_dead(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(1000)
    await sim.jobs.run_after(0, "work:run", id="x", timeout_ms=1_000)
    for _ in range(5):
        await sim.sleep(0.5)
        await sim.crash()
        await sim.open()
        await sim.sleep(15.6)  # to just behind the end of the lease: the next attempt runs
    record = await sim.jobs.get("x")

    assert record is not None
    assert (record.state, record.reason, record.losses, record.attempts) == ("dead", "lost", 5, 0)


@on_simulated_host()
async def test_a_clock_an_hour_ahead_does_not_claim_a_live_attempt_again(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(20)
    await sim.jobs.run_after(0, "work:run", id="x", timeout_ms=30_000)
    await sim.sleep(1)
    sim.clock.step(3_600_000)
    await sim.sleep(60)

    assert len(sim.times("x")) == 1
    assert await sim.jobs.get("x") is None


@on_simulated_host()
async def test_a_clock_an_hour_back_fires_nothing_twice(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x")
    await sim.jobs.run_after("10s", "work:run", id="y")
    await sim.sleep(1)
    sim.clock.step(-3_600_000)
    await sim.sleep(3_700)

    assert [one.id for one in sim.deliveries] == ["x", "y"]


@on_simulated_host(idle_after_s=1.0)
async def test_an_idle_scheduler_leaves_memory_and_its_alarm_still_rings(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "work:run", id="x")
    await sim.sleep(60)
    from tocsin.actors.runtime.ids import ActorId

    assert sim.host.runtime.active(ActorId("scheduler", "t")) is None
    await sim.sleep(3_600)
    assert sim.times("x") == [3_600_000]


@on_simulated_host()
async def test_a_full_store_takes_and_starts_nothing_new_but_ends_what_runs(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(5)
    await sim.jobs.run_after(0, "work:run", id="running")
    await sim.jobs.run_after("2s", "work:run", id="waiting")
    await sim.sleep(1)
    sim.disk_full(True)
    with pytest.raises(StoreFull, match="no space is left"):
        await sim.jobs.run_after(0, "work:run")
    await sim.sleep(20)
    running, waiting = await sim.jobs.get("running"), await sim.jobs.get("waiting")
    sim.disk_full(False)
    await sim.sleep(8)

    assert running is None
    assert waiting is not None and waiting.state == "waiting"
    assert len(sim.times("waiting")) == 1
