"""Ids, cancel, lanes, permits, stops and crashes: a scheduler's life beyond a single attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import date
from decimal import Decimal

import msgspec
import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.records import Scheduled
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.dispatch.values import decode
from tocsin.errors import DuplicateScheduleIdError, InvalidInputError, PayloadTooLargeError, StoreFull, TocsinError


async def after(seconds: float, answer: Answer = OK) -> Answer:
    await asyncio.sleep(seconds)
    return answer


# ---- Ids -----------------------------------------------------------------------------------------


@staged()
async def test_an_id_is_taken_while_its_job_is_pending_running_or_dead(stage: Stage) -> None:
    await stage.jobs.run_after("1m", "work:run", id="pending")
    stage.reply = lambda one: after(30)
    await stage.jobs.run_after(0, "work:run", id="running")
    await stage.sleep(1)
    stage.reply = lambda one: Answer(410, {}, b"")
    await stage.jobs.run_after(0, "work:run", id="dead")
    await stage.sleep(1)
    for state in ("pending", "running", "dead"):
        with pytest.raises(DuplicateScheduleIdError, match=f"taken by a {state} job"):
            await stage.jobs.run_after(0, "work:run", id=state)
    stage.reply = lambda one: OK
    await stage.sleep(120)

    assert await stage.jobs.run_after("1s", "work:run", id="pending") == "pending"
    await stage.sleep(5)


@staged()
async def test_keep_answers_the_job_that_is_there(stage: Stage) -> None:
    first = Job(path="work:run", args={"n": 1}, at=stage.now + 60_000, options={"id": "x", "on_conflict": "keep"})
    other = Job(path="work:run", args={"n": 2}, at=stage.now + 60_000, options={"id": "x", "on_conflict": "keep"})
    answers = [(await stage.jobs.submit_many([job]))[0] for job in (first, first, other)]

    assert [(a.created, a.identical, a.state) for a in answers if isinstance(a, Scheduled)] == [
        (True, None, None),
        (False, True, "pending"),
        (False, False, "pending"),
    ]


@staged()
async def test_replace_swaps_a_waiting_job_and_refuses_a_running_one(stage: Stage) -> None:
    await stage.jobs.run_after("1m", "work:run", {"n": 1}, id="x", pool="p")
    await stage.jobs.run_after("2s", "work:run", {"n": 2}, id="x", on_conflict="replace")
    stage.reply = lambda one: after(10)
    await stage.sleep(3)
    with pytest.raises(DuplicateScheduleIdError, match="running"):
        await stage.jobs.run_after("1s", "work:run", id="x", on_conflict="replace")
    await stage.sleep(120)

    assert [one.body["args"] for one in stage.deliveries] == [{"n": 2}]


@staged()
async def test_a_reused_id_runs_its_own_job_and_the_first_answer_changes_nothing(stage: Stage) -> None:
    """D1 and D2 of the system ours descends from: cancel and schedule again while the first attempt runs."""
    stage.reply = lambda one: after(20 if one.body["args"] == {"n": 1} else 0)
    await stage.jobs.run_after(0, "work:run", {"n": 1}, id="x")
    await stage.sleep(1)
    cancelled = await stage.jobs.cancel("x")
    await stage.jobs.run_after("5s", "work:run", {"n": 2}, id="x")
    await stage.sleep(60)

    assert (cancelled.cancelled, cancelled.was_running) == (True, True)
    assert [one.body["args"] for one in stage.deliveries] == [{"n": 1}, {"n": 2}]
    assert len({one.webhook_id for one in stage.deliveries}) == 2
    assert await stage.jobs.get("x") is None


@staged()
async def test_a_cancelled_job_whose_attempt_fails_does_not_come_back(stage: Stage) -> None:
    stage.reply = lambda one: after(5, Answer(500, {}, b""))
    job_id = await stage.jobs.run_after(0, "work:run", pool="p")
    await stage.sleep(1)
    await stage.jobs.cancel(job_id)
    held = await stage.jobs.status()
    await stage.sleep(600)

    assert held.pools[0].in_flight == 1  # until the attempt answers
    assert len(stage.deliveries) == 1
    assert (await stage.jobs.status()).pools == []
    assert (await stage.jobs.cancel(job_id)).cancelled is False


@staged()
async def test_cancel_leaves_dead_letters_to_dead_cancel(stage: Stage) -> None:
    stage.reply = lambda one: Answer(410, {}, b"")
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.sleep(1)

    assert (await stage.jobs.cancel("x")).cancelled is False
    assert await stage.jobs.dead_cancel("x") is True
    assert await stage.jobs.dead_cancel("x") is False
    assert await stage.jobs.get("x") is None


# ---- Refusals ------------------------------------------------------------------------------------


@staged()
async def test_a_batch_answers_each_job_for_itself(stage: Stage) -> None:
    await stage.jobs.run_after("1m", "work:run", id="taken")
    answers = await stage.jobs.submit_many(
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
    assert (await stage.jobs.status()).backlog == 3


@staged()
async def test_refused_arguments_say_which_and_change_nothing(stage: Stage) -> None:
    from datetime import datetime

    jobs = stage.jobs
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

    assert stage.disk.maps == {}


@staged()
async def test_typed_args_arrive_as_they_were_given(stage: Stage) -> None:
    args = {"amount": Decimal("19.90"), "until": date(2027, 1, 1), "key": b"\x00", "n": 2**80}
    job_id = await stage.jobs.run_after("1s", "work:run", args)
    record = await stage.jobs.get(job_id)
    await stage.sleep(2)

    assert record is not None and record.args == args
    assert decode(msgspec.json.encode(stage.receiver.deliveries[0].body["args"])) == args


@staged()
async def test_large_args_arrive_whole(stage: Stage) -> None:
    text = "é" * 100_000
    await stage.jobs.run_after(0, "work:run", text, id="x")
    await stage.jobs.run_after("1m", "work:run", text, id="y")
    listed = (await stage.jobs.list()).records
    await stage.sleep(1)
    await stage.jobs.cancel("y")

    assert [one.body["args"] for one in stage.deliveries] == [text]
    assert all(one.args == text for one in listed)


@staged()
async def test_reading_and_cancelling_create_no_instance(stage: Stage) -> None:
    assert await stage.jobs.get("x") is None
    assert (await stage.jobs.cancel("x")).cancelled is False
    assert (await stage.jobs.dead_retry("x")).retried is False
    assert await stage.jobs.dead_cancel("x") is False
    assert (await stage.jobs.list()).records == []
    assert (await stage.jobs.status()).backlog == 0
    assert stage.disk.maps == {}


# ---- Lanes and permits ---------------------------------------------------------------------------


@staged(lanes=3)
async def test_lanes_bound_what_is_in_flight_and_a_freed_one_goes_on_at_once(stage: Stage) -> None:
    running, most = 0, 0

    async def work(one: Delivery) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(2 if one.id == "slow" else 1)
        running -= 1
        return OK

    stage.reply = work
    await stage.jobs.run_after(0, "work:run", id="slow", priority=9)
    await stage.jobs.submit_many([Job(path="work:run", after=0, options={"id": f"j{n}"}) for n in range(8)])
    await stage.sleep(10)

    assert most == 3
    assert [at for at, _ in stage.arrivals] == [0, 0, 0, 1000, 1000, 2000, 2000, 2000, 3000]


@staged(lanes=8, max_in_flight=4)
async def test_permits_are_shared_round_robin_among_schedulers(stage: Stage) -> None:
    stage.reply = lambda one: after(1)
    for name in ("a", "b", "c", "d"):
        await stage.host.scheduler(name).submit_many([Job(path="work:run", after="1s") for _ in range(40)])
    await stage.sleep(22)
    seen = Counter(one.body["instanceName"] for one in stage.deliveries)

    assert sum(seen.values()) >= 80
    assert max(seen.values()) - min(seen.values()) <= 8
    await stage.sleep(40)
    assert len(stage.deliveries) == 160


@staged(lanes=2)
async def test_a_full_pool_holds_up_nobody_outside_it(stage: Stage) -> None:
    stage.reply = lambda one: after(30)
    await stage.jobs.submit_many(
        [Job(path="work:run", after="1s", options={"pool": "p"}) for _ in range(50)]
        + [Job(path="work:run", after="2s", options={"id": "free"})]
    )
    await stage.sleep(3)
    status = await stage.jobs.status()

    assert stage.times("free") == [2_000]
    assert [(one.name, one.in_flight, one.queued) for one in status.pools] == [("p", 1, 49)]
    assert await stage.faults() == []


@staged(lanes=1)
async def test_start_order_is_due_minus_thirty_seconds_per_priority(stage: Stage) -> None:
    stage.reply = lambda one: after(1)
    await stage.jobs.run_after(0, "work:run", id="first")
    for name, delay, priority in (("low", -20, -1), ("early", -10, 0), ("urgent", 0, 2), ("plain", 0, 0)):
        await stage.jobs.run_at(stage.now + delay * 1000, "work:run", id=name, priority=priority)
    await stage.sleep(10)

    assert [one.id for one in stage.deliveries] == ["first", "urgent", "early", "plain", "low"]


# ---- Stops, crashes and clocks -------------------------------------------------------------------


@staged(drain_s=2.0)
async def test_a_graceful_stop_lets_attempts_end_and_does_not_charge_those_it_ends(stage: Stage) -> None:
    stage.reply = lambda one: after(1 if one.id == "quick" else 100)
    await stage.jobs.run_after(0, "work:run", id="quick")
    await stage.jobs.run_after(0, "work:run", id="slow")
    await stage.sleep(0.5)
    await stage.close()
    await stage.open()
    held = await stage.jobs.get("slow")

    assert await stage.jobs.get("quick") is None
    assert held is not None and held.lease is not None
    assert (held.attempts, held.lease.kind) == (0, "unknown")
    stage.reply = lambda one: Answer(500, {}, b"")
    await stage.sleep(80)
    assert stage.times("slow")[1:] == [75_000]
    again = await stage.jobs.get("slow")
    assert again is not None and again.attempts == 1, "its second attempt, which failed"
    stage.reply = lambda one: OK
    await stage.sleep(30)
    assert await stage.jobs.get("slow") is None


@staged()
async def test_five_lost_hosts_end_a_job_dead(stage: Stage) -> None:
    stage.reply = lambda one: after(1000)
    await stage.jobs.run_after(0, "work:run", id="x", timeout_ms=1_000)
    for _ in range(5):
        await stage.sleep(0.5)
        await stage.crash()
        await stage.open()
        await stage.sleep(15.6)  # to just behind the end of the lease: the next attempt runs
    record = await stage.jobs.get("x")

    assert record is not None
    assert (record.state, record.reason, record.losses, record.attempts) == ("dead", "lost", 5, 0)


@staged()
async def test_a_clock_an_hour_ahead_does_not_claim_a_live_attempt_again(stage: Stage) -> None:
    stage.reply = lambda one: after(20)
    await stage.jobs.run_after(0, "work:run", id="x", timeout_ms=30_000)
    await stage.sleep(1)
    stage.clock.step(3_600_000)
    await stage.sleep(60)

    assert len(stage.times("x")) == 1
    assert await stage.jobs.get("x") is None


@staged()
async def test_a_clock_an_hour_back_fires_nothing_twice(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.jobs.run_after("10s", "work:run", id="y")
    await stage.sleep(1)
    stage.clock.step(-3_600_000)
    await stage.sleep(3_700)

    assert [one.id for one in stage.deliveries] == ["x", "y"]


@staged(idle_after_s=1.0)
async def test_an_idle_scheduler_leaves_memory_and_its_alarm_still_rings(stage: Stage) -> None:
    await stage.jobs.run_after("1h", "work:run", id="x")
    await stage.sleep(60)
    from tocsin.actors.runtime.ids import ActorId

    assert stage.host.runtime.active(ActorId("scheduler", "t")) is None
    await stage.sleep(3_600)
    assert stage.times("x") == [3_600_000]


@staged()
async def test_a_full_store_takes_and_starts_nothing_new_but_ends_what_runs(stage: Stage) -> None:
    stage.reply = lambda one: after(5)
    await stage.jobs.run_after(0, "work:run", id="running")
    await stage.jobs.run_after("2s", "work:run", id="waiting")
    await stage.sleep(1)
    stage.disk_full(True)
    with pytest.raises(StoreFull, match="no space is left"):
        await stage.jobs.run_after(0, "work:run")
    await stage.sleep(20)
    running, waiting = await stage.jobs.get("running"), await stage.jobs.get("waiting")
    stage.disk_full(False)
    await stage.sleep(8)

    assert running is None
    assert waiting is not None and waiting.state == "waiting"
    assert len(stage.times("waiting")) == 1
