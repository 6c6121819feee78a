"""`authorize_fire`: asked before each attempt, and what each of its answers does; and whom a job belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.records import Firing, Initiator, Record
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import InvalidInputError, SettingsError

Said = Any
BROKEN = Answer(500, {}, b"broken")


class Rule:
    """Remembers what it was asked; answers what `say` returns for the job, awaited if need be."""

    def __init__(self) -> None:
        self.asked: list[Firing] = []
        self.say: Callable[[Firing], Said] = lambda job: True

    def __call__(self, job: Firing) -> bool | Awaitable[bool]:
        self.asked.append(job)
        said: bool | Awaitable[bool] = self.say(job)
        return said


def ruled(test: Callable[[Stage, Rule], Awaitable[None]], **options: Any) -> Callable[[], None]:
    rule = Rule()

    async def run(stage: Stage) -> None:
        await test(stage, rule)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return staged(authorize_fire=rule, **options)(run)


async def record(stage: Stage, job_id: str) -> Record:
    found = await stage.jobs.get(job_id)
    assert found is not None
    return found


@ruled
async def test_the_rule_is_asked_about_the_job_as_it_stands(stage: Stage, rule: Rule) -> None:
    job_id = await stage.jobs.run_after(
        1, "invoices:send", {"n": 1}, pool="stripe", labels=["eu"], priority=2, shard_key="s", initiator="alice"
    )
    await stage.sleep(2)

    (asked,) = rule.asked
    assert (asked.id, asked.instance, asked.function_path, asked.args) == (job_id, "t", "invoices:send", {"n": 1})
    assert (asked.attempt, asked.attempts, asked.state, asked.pool) == (1, 0, "running", "stripe")
    assert (asked.labels, asked.priority, asked.shard_key) == (("eu",), 2, "s")
    assert asked.scheduled_for == stage.deliveries[0].body["scheduledFor"]
    assert asked.initiator == Initiator(user="alice")


@ruled
async def test_yes_sends_it_sync_or_async(stage: Stage, rule: Rule) -> None:
    async def later() -> bool:
        await stage.sleep(0.5)
        return True

    await stage.jobs.run_after(0, "p", id="sync")
    rule.say = lambda job: later() if job.id == "async" else True
    await stage.jobs.run_after(0, "p", id="async")
    await stage.sleep(1)
    assert sorted(one.body["id"] for one in stage.deliveries) == ["async", "sync"]


@ruled
async def test_no_parks_it_as_blocked_and_sends_nothing(stage: Stage, rule: Rule) -> None:
    async def no() -> bool:
        return False

    rule.say = lambda job: no() if job.id == "async" else False
    for job_id in ("async", "sync"):
        await stage.jobs.run_after(0, "p", id=job_id, pool="one", max_concurrency=1)
    await stage.sleep(1)

    assert stage.deliveries == []
    for job_id in ("async", "sync"):
        dead = await record(stage, job_id)
        assert (dead.state, dead.reason, dead.attempt, dead.attempts) == ("dead", "blocked", 1, 0)
        assert dead.last_error is not None and dead.last_error.message == "not sent: authorize_fire said no"
        assert (dead.last_status, dead.last_response) == (None, None)
        assert [one.outcome for one in await stage.jobs.history(job_id)] == ["blocked"]
        (reason,) = await stage.jobs.why(job_id)
        assert reason.code == "DEAD" and "(blocked)" in reason.message
    assert (await stage.jobs.status()).in_flight == 0


@ruled
async def test_it_is_asked_again_for_each_attempt_and_for_a_retry_from_the_dead(stage: Stage, rule: Rule) -> None:
    stage.reply = lambda delivery: BROKEN if delivery.attempt == 1 else OK
    rule.say = lambda job: job.attempt != 2
    await stage.jobs.run_after(0, "p", id="a", retry=Retry(base_ms=1_000), initiator="alice")
    await stage.sleep(10)
    assert (await record(stage, "a")).reason == "blocked"
    assert [one.attempt for one in stage.deliveries] == [1]

    rule.say = lambda job: False
    await stage.jobs.dead_retry("a")
    await stage.sleep(1)
    assert (await record(stage, "a")).reason == "blocked"

    rule.say = lambda job: True
    redrive = await stage.jobs.dead_retry_all(reason="blocked")
    await stage.sleep(2)
    assert redrive.matched == 1
    assert [one.attempt for one in stage.deliveries] == [1, 4]
    assert [(one.attempt, one.initiator) for one in rule.asked] == [(n, Initiator(user="alice")) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("say", "said"),
    [
        (lambda job: 1 / 0, "raised ZeroDivisionError"),
        (lambda job: None, "must return True or False, not NoneType"),
        (lambda job: 1, "must return True or False, not int"),
        (lambda job: expired(), "raised TimeoutError"),
        (lambda job: cancelled(), "was cancelled"),
    ],
)
def test_a_rule_that_cannot_say_is_nobodys_fault(say: Callable[[Firing], Said], said: str) -> None:
    async def test(stage: Stage, rule: Rule) -> None:
        rule.say = say
        await stage.jobs.run_after(0, "p", id="a", retry=Retry(max_retries=0))
        await stage.sleep(2)
        waiting = await record(stage, "a")
        assert (waiting.state, waiting.attempts) == ("pending", 0)
        assert waiting.last_error is not None and said in waiting.last_error.message
        await stage.sleep(120)
        assert stage.deliveries == []
        status = await stage.jobs.status()
        assert (status.health, status.backlog, status.dead) == ("red", 1, 0)  # the circuit is open
        assert len(rule.asked) <= 5 + 120 / 5

        rule.say = lambda job: True
        await stage.sleep(10)
        assert len(stage.deliveries) == 1
        assert (await stage.jobs.status()).health == "green"

    ruled(test)()


def test_a_rule_must_be_a_function() -> None:
    with pytest.raises(SettingsError, match="authorize_fire must be a function, not bool"):
        ActorHost.open("memory:", authorize_fire=True)


async def expired() -> bool:
    raise TimeoutError("of its own")


async def cancelled() -> bool:
    raise asyncio.CancelledError


@ruled
async def test_a_hung_rule_holds_a_lane_for_half_the_deadline(stage: Stage, rule: Rule) -> None:
    forever = asyncio.get_running_loop().create_future()
    rule.say = lambda job: forever if job.id == "hung" else True
    await stage.jobs.run_after(0, "p", id="hung", timeout_ms=20_000)
    await stage.jobs.run_after(1, "p", id="other")
    await stage.sleep(9)
    assert (await record(stage, "hung")).state == "running"
    assert [one.body["id"] for one in stage.deliveries] == ["other"]
    await stage.sleep(2)
    waiting = await record(stage, "hung")
    assert (waiting.state, waiting.attempts) == ("pending", 0)
    assert waiting.last_error is not None
    assert waiting.last_error.message == (
        "not sent: authorize_fire took longer than 10000 ms, half of the callback's deadline"
    )
    rule.say = lambda job: True
    await stage.sleep(10)
    assert [one.body["id"] for one in stage.deliveries] == ["other", "hung"]


@ruled
async def test_the_time_it_takes_is_the_callbacks(stage: Stage, rule: Rule) -> None:
    """Rule and callback share one deadline, and the lease, which is longer, covers both."""

    async def slowly() -> bool:
        await stage.sleep(9)
        return True

    async def hang() -> Answer:
        await asyncio.get_running_loop().create_future()
        return OK

    rule.say = lambda job: slowly()
    stage.reply = lambda delivery: hang()
    began = stage.now
    await stage.jobs.run_after(0, "p", id="a", timeout_ms=20_000)
    await stage.sleep(19)
    running = await record(stage, "a")
    assert running.lease is not None and (running.lease.kind, running.lease.until) == ("fired", began + 35_000)
    assert stage.deliveries[0].headers["tocsin-deadline"] == str(began + 20_000)
    await stage.sleep(2)
    ended = await record(stage, "a")
    assert ended.lease is not None and ended.lease.kind == "unknown"
    assert len(rule.asked) == len(stage.deliveries) == 1
    rule.say, stage.reply = (lambda job: True), (lambda delivery: OK)
    await stage.sleep(100)


@ruled
async def test_a_stop_while_it_is_asked_leaves_the_job_waiting(stage: Stage, rule: Rule) -> None:
    forever = asyncio.get_running_loop().create_future()
    rule.say = lambda job: forever
    await stage.jobs.run_after(0, "p", id="a")
    await stage.sleep(1)
    await stage.close()  # drains for 10 s, then ends the question

    rule.say = lambda job: True
    await stage.open(authorize_fire=rule)
    await stage.sleep(10)
    assert len(stage.deliveries) == 1  # without waiting for the lease
    assert stage.deliveries[0].attempt == 2


@ruled
async def test_a_job_cancelled_while_the_rule_says_no_is_gone(stage: Stage, rule: Rule) -> None:
    async def slowly() -> bool:
        await stage.sleep(5)
        return False

    rule.say = lambda job: slowly()
    await stage.jobs.run_after(0, "p", id="a", pool="one")
    await stage.sleep(1)
    assert (await stage.jobs.cancel("a")).was_running
    await stage.sleep(10)
    assert await stage.jobs.get("a") is None
    assert (await stage.jobs.pool("one")).in_flight == 0
    assert (await stage.jobs.status()).dead == 0


@ruled
async def test_a_blocked_job_neither_closes_the_circuit_nor_takes_the_place_of_a_probe(
    stage: Stage, rule: Rule
) -> None:
    rule.say = lambda job: job.function_path == "good"
    stage.down = True
    for n in range(6):
        await stage.jobs.run_after(0, "good", id=f"g{n}")
    await stage.sleep(1)
    assert (await stage.jobs.status()).health == "red"
    for n in range(20):
        await stage.jobs.run_after(0, "bad", id=f"b{n}", priority=9)
    await stage.sleep(4)
    assert (await stage.jobs.status()).health == "red"
    await stage.sleep(4)
    assert (await stage.jobs.status()).dead == 20  # not one every five seconds
    stage.down = False
    await stage.sleep(12)
    status = await stage.jobs.status()
    assert (status.health, status.backlog, len(stage.deliveries)) == ("green", 0, 6)


# ---- Whose a job is ------------------------------------------------------------------------------


@staged()
async def test_the_initiator_is_kept_with_the_job_and_not_sent(stage: Stage) -> None:
    stage.reply = lambda delivery: Answer(410, {}, b"")
    in_an_hour = stage.now + 3_600_000
    await stage.jobs.run_after(0, "p", id="fired", initiator="alice")
    await stage.jobs.run_at(in_an_hour, "p", id="at", initiator="bob")
    await stage.jobs.run_at(in_an_hour, "p", id="none")
    await stage.jobs.submit_many([Job(path="p", at=in_an_hour, options={"id": "many", "initiator": "carol"})])
    await stage.sleep(1)

    assert (await record(stage, "fired")).initiator == Initiator(user="alice")
    assert "alice" not in msgspec.json.encode(stage.deliveries[0].body).decode()
    assert "alice" not in str(stage.deliveries[0].headers)
    page = await stage.jobs.list(order="id")
    assert {one.id: one.initiator for one in page.records} == {
        "at": Initiator(user="bob"),
        "many": Initiator(user="carol"),
        "none": None,
    }
    text = msgspec.json.encode(page.records).decode()
    assert text.count('"initiator"') == 2 and '"initiator":{"user":"bob"}' in text


@staged()
async def test_the_same_job_asked_for_by_another_is_the_same_job(stage: Stage) -> None:
    in_an_hour = stage.now + 3_600_000
    make = stage.jobs.new_job
    wanted: dict[str, Any] = {
        "function_path": "p", "workflow": None, "raw_args": b"{}", "scheduled_for": in_an_hour, "delay_ms": None,
    }  # fmt: skip
    for who, conflict in (("alice", "error"), ("bob", "keep"), ("carol", "replace")):
        options = {"id": "a", "on_conflict": conflict, "initiator": who}
        answer = await stage.jobs.submit(make(**wanted, options=options))
        if conflict == "keep":
            assert (answer.created, answer.identical) == (False, True)
            assert (await record(stage, "a")).initiator == Initiator(user="alice")
    assert (await record(stage, "a")).initiator == Initiator(user="carol")


@pytest.mark.parametrize("wrong", ["", " ", 7, "x" * 513, "\ud800", ["alice"]])
def test_an_initiator_is_a_short_text(wrong: Any) -> None:
    @staged()
    async def test(stage: Stage) -> None:
        with pytest.raises(InvalidInputError, match="initiator"):
            await stage.jobs.run_after(1, "p", initiator=wrong)

    test()


@ruled
async def test_a_no_that_only_answers_a_cancellation_is_no_answer(stage: Stage, rule: Rule) -> None:
    """Rules that fail closed say no whatever interrupts them; a timeout or a stop must not kill the job."""

    async def closed() -> bool:
        try:
            await stage.sleep(3600)
        except BaseException:
            return False
        return True

    rule.say = lambda job: closed()
    await stage.jobs.run_after(0, "p", id="slow", timeout_ms=2_000)
    await stage.sleep(1.5)

    waiting = await record(stage, "slow")
    assert (waiting.state, waiting.reason, waiting.attempts) == ("pending", None, 0)
    assert waiting.last_error is not None and "took longer than 1000 ms" in waiting.last_error.message
    assert stage.deliveries == []


@ruled
async def test_a_rule_that_will_not_end_holds_up_neither_its_job_nor_the_stop(stage: Stage, rule: Rule) -> None:
    ended = asyncio.Event()

    async def stubborn() -> bool:
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue
        return True

    rule.say = lambda job: stubborn()
    try:
        await stage.jobs.run_after(0, "p", id="a", timeout_ms=2_000)
        await stage.sleep(1.5)
        assert (await record(stage, "a")).state == "pending"

        await stage.jobs.run_after(0, "p", id="b", timeout_ms=600_000)
        await stage.sleep(10)
        before = stage.now
        await stage.host.stop()
        assert stage.now - before < 60_000
    finally:
        ended.set()
    assert stage.deliveries == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_rule_that_ends_the_process_ends_only_its_attempt(kind: str) -> None:
    def leave() -> bool:
        raise SystemExit(3)

    async def leave_later() -> bool:
        leave()
        return True

    @ruled
    async def run(stage: Stage, rule: Rule) -> None:
        rule.say = lambda job: leave() if kind == "sync" else leave_later()
        await stage.jobs.run_after(0, "p", id="a")
        await stage.sleep(0.5)
        waiting = await record(stage, "a")
        assert waiting.state == "pending"
        assert waiting.last_error is not None and "raised SystemExit" in waiting.last_error.message

    run()
