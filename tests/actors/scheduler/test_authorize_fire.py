"""`authorize_fire`: asked before each attempt, and what each of its answers does; and whom a job belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
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


def ruled(test: Callable[[SimulatedHost, Rule], Awaitable[None]], **options: Any) -> Callable[[], None]:
    rule = Rule()

    async def run(sim: SimulatedHost) -> None:
        await test(sim, rule)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return on_simulated_host(authorize_fire=rule, **options)(run)


async def record(sim: SimulatedHost, job_id: str) -> Record:
    found = await sim.jobs.get(job_id)
    assert found is not None
    return found


@ruled
async def test_the_rule_is_asked_about_the_job_as_it_stands(sim: SimulatedHost, rule: Rule) -> None:
    job_id = await sim.jobs.run_after(
        1, "invoices:send", {"n": 1}, pool="stripe", labels=["eu"], priority=2, shard_key="s", initiator="alice"
    )
    await sim.sleep(2)

    (asked,) = rule.asked
    assert (asked.id, asked.instance, asked.function_path, asked.args) == (job_id, "t", "invoices:send", {"n": 1})
    assert (asked.attempt, asked.attempts, asked.state, asked.pool) == (1, 0, "running", "stripe")
    assert (asked.labels, asked.priority, asked.shard_key) == (("eu",), 2, "s")
    assert asked.scheduled_for == sim.deliveries[0].body["scheduledFor"]
    assert asked.initiator == Initiator(user="alice")


@ruled
async def test_yes_sends_it_sync_or_async(sim: SimulatedHost, rule: Rule) -> None:
    async def later() -> bool:
        await sim.sleep(0.5)
        return True

    await sim.jobs.run_after(0, "p", id="sync")
    rule.say = lambda job: later() if job.id == "async" else True
    await sim.jobs.run_after(0, "p", id="async")
    await sim.sleep(1)
    assert sorted(one.body["id"] for one in sim.deliveries) == ["async", "sync"]


@ruled
async def test_no_parks_it_as_blocked_and_sends_nothing(sim: SimulatedHost, rule: Rule) -> None:
    async def no() -> bool:
        return False

    rule.say = lambda job: no() if job.id == "async" else False
    for job_id in ("async", "sync"):
        await sim.jobs.run_after(0, "p", id=job_id, pool="one", max_concurrency=1)
    await sim.sleep(1)

    assert sim.deliveries == []
    for job_id in ("async", "sync"):
        dead = await record(sim, job_id)
        assert (dead.state, dead.reason, dead.attempt, dead.attempts) == ("dead", "blocked", 1, 0)
        assert dead.last_error is not None and dead.last_error.message == "not sent: authorize_fire said no"
        assert (dead.last_status, dead.last_response) == (None, None)
        assert [one.outcome for one in await sim.jobs.history(job_id)] == ["blocked"]
        (reason,) = await sim.jobs.why(job_id)
        assert reason.code == "DEAD" and "(blocked)" in reason.message
    assert (await sim.jobs.status()).in_flight == 0


@ruled
async def test_it_is_asked_again_for_each_attempt_and_for_a_retry_from_the_dead(sim: SimulatedHost, rule: Rule) -> None:
    sim.reply = lambda delivery: BROKEN if delivery.attempt == 1 else OK
    rule.say = lambda job: job.attempt != 2
    await sim.jobs.run_after(0, "p", id="a", retry=Retry(base_ms=1_000), initiator="alice")
    await sim.sleep(10)
    assert (await record(sim, "a")).reason == "blocked"
    assert [one.attempt for one in sim.deliveries] == [1]

    rule.say = lambda job: False
    await sim.jobs.dead_retry("a")
    await sim.sleep(1)
    assert (await record(sim, "a")).reason == "blocked"

    rule.say = lambda job: True
    redrive = await sim.jobs.dead_retry_all(reason="blocked")
    await sim.sleep(2)
    assert redrive.matched == 1
    assert [one.attempt for one in sim.deliveries] == [1, 4]
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
    async def test(sim: SimulatedHost, rule: Rule) -> None:
        rule.say = say
        await sim.jobs.run_after(0, "p", id="a", retry=Retry(max_retries=0))
        await sim.sleep(2)
        waiting = await record(sim, "a")
        assert (waiting.state, waiting.attempts) == ("pending", 0)
        assert waiting.last_error is not None and said in waiting.last_error.message
        await sim.sleep(120)
        assert sim.deliveries == []
        status = await sim.jobs.status()
        assert (status.health, status.backlog, status.dead) == ("red", 1, 0)  # the circuit is open
        assert len(rule.asked) <= 5 + 120 / 5

        rule.say = lambda job: True
        await sim.sleep(10)
        assert len(sim.deliveries) == 1
        assert (await sim.jobs.status()).health == "green"

    ruled(test)()


def test_a_rule_must_be_a_function() -> None:
    with pytest.raises(SettingsError, match="authorize_fire must be a function, not bool"):
        ActorHost.open("memory:", authorize_fire=True)


async def expired() -> bool:
    raise TimeoutError("of its own")


async def cancelled() -> bool:
    raise asyncio.CancelledError


@ruled
async def test_a_hung_rule_holds_a_lane_for_half_the_deadline(sim: SimulatedHost, rule: Rule) -> None:
    forever = asyncio.get_running_loop().create_future()
    rule.say = lambda job: forever if job.id == "hung" else True
    await sim.jobs.run_after(0, "p", id="hung", timeout_ms=20_000)
    await sim.jobs.run_after(1, "p", id="other")
    await sim.sleep(9)
    assert (await record(sim, "hung")).state == "running"
    assert [one.body["id"] for one in sim.deliveries] == ["other"]
    await sim.sleep(2)
    waiting = await record(sim, "hung")
    assert (waiting.state, waiting.attempts) == ("pending", 0)
    assert waiting.last_error is not None
    assert waiting.last_error.message == (
        "not sent: authorize_fire took longer than 10000 ms, half of the callback's deadline"
    )
    rule.say = lambda job: True
    await sim.sleep(10)
    assert [one.body["id"] for one in sim.deliveries] == ["other", "hung"]


@ruled
async def test_the_time_it_takes_is_the_callbacks(sim: SimulatedHost, rule: Rule) -> None:
    """Rule and callback share one deadline, and the lease, which is longer, covers both."""

    async def slowly() -> bool:
        await sim.sleep(9)
        return True

    async def hang() -> Answer:
        await asyncio.get_running_loop().create_future()
        return OK

    rule.say = lambda job: slowly()
    sim.reply = lambda delivery: hang()
    began = sim.now
    await sim.jobs.run_after(0, "p", id="a", timeout_ms=20_000)
    await sim.sleep(19)
    running = await record(sim, "a")
    assert running.lease is not None and (running.lease.kind, running.lease.until) == ("fired", began + 35_000)
    assert sim.deliveries[0].headers["tocsin-deadline"] == str(began + 20_000)
    await sim.sleep(2)
    ended = await record(sim, "a")
    assert ended.lease is not None and ended.lease.kind == "unknown"
    assert len(rule.asked) == len(sim.deliveries) == 1
    rule.say, sim.reply = (lambda job: True), (lambda delivery: OK)
    await sim.sleep(100)


@ruled
async def test_a_stop_while_it_is_asked_leaves_the_job_waiting(sim: SimulatedHost, rule: Rule) -> None:
    forever = asyncio.get_running_loop().create_future()
    rule.say = lambda job: forever
    await sim.jobs.run_after(0, "p", id="a")
    await sim.sleep(1)
    await sim.close()  # drains for 10 s, then ends the question

    rule.say = lambda job: True
    await sim.open(authorize_fire=rule)
    await sim.sleep(10)
    assert len(sim.deliveries) == 1  # without waiting for the lease
    assert sim.deliveries[0].attempt == 2


@ruled
async def test_a_job_cancelled_while_the_rule_says_no_is_gone(sim: SimulatedHost, rule: Rule) -> None:
    async def slowly() -> bool:
        await sim.sleep(5)
        return False

    rule.say = lambda job: slowly()
    await sim.jobs.run_after(0, "p", id="a", pool="one")
    await sim.sleep(1)
    assert (await sim.jobs.cancel("a")).was_running
    await sim.sleep(10)
    assert await sim.jobs.get("a") is None
    assert (await sim.jobs.pool("one")).in_flight == 0
    assert (await sim.jobs.status()).dead == 0


@ruled
async def test_a_blocked_job_neither_closes_the_circuit_nor_takes_the_place_of_a_probe(
    sim: SimulatedHost, rule: Rule
) -> None:
    rule.say = lambda job: job.function_path == "good"
    sim.down = True
    for n in range(6):
        await sim.jobs.run_after(0, "good", id=f"g{n}")
    await sim.sleep(1)
    assert (await sim.jobs.status()).health == "red"
    for n in range(20):
        await sim.jobs.run_after(0, "bad", id=f"b{n}", priority=9)
    await sim.sleep(4)
    assert (await sim.jobs.status()).health == "red"
    await sim.sleep(4)
    assert (await sim.jobs.status()).dead == 20  # not one every five seconds
    sim.down = False
    await sim.sleep(12)
    status = await sim.jobs.status()
    assert (status.health, status.backlog, len(sim.deliveries)) == ("green", 0, 6)


# ---- Whose a job is ------------------------------------------------------------------------------


@on_simulated_host()
async def test_the_initiator_is_kept_with_the_job_and_not_sent(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: Answer(410, {}, b"")
    in_an_hour = sim.now + 3_600_000
    await sim.jobs.run_after(0, "p", id="fired", initiator="alice")
    await sim.jobs.run_at(in_an_hour, "p", id="at", initiator="bob")
    await sim.jobs.run_at(in_an_hour, "p", id="none")
    await sim.jobs.submit_many([Job(path="p", at=in_an_hour, options={"id": "many", "initiator": "carol"})])
    await sim.sleep(1)

    assert (await record(sim, "fired")).initiator == Initiator(user="alice")
    assert "alice" not in msgspec.json.encode(sim.deliveries[0].body).decode()
    assert "alice" not in str(sim.deliveries[0].headers)
    page = await sim.jobs.list(order="id")
    assert {one.id: one.initiator for one in page.records} == {
        "at": Initiator(user="bob"),
        "many": Initiator(user="carol"),
        "none": None,
    }
    text = msgspec.json.encode(page.records).decode()
    assert text.count('"initiator"') == 2 and '"initiator":{"user":"bob"}' in text


@on_simulated_host()
async def test_the_same_job_asked_for_by_another_is_the_same_job(sim: SimulatedHost) -> None:
    in_an_hour = sim.now + 3_600_000
    make = sim.port.checks.wire_job
    wanted: dict[str, Any] = {
        "function_path": "p", "workflow": None, "raw_args": b"{}", "scheduled_for": in_an_hour, "delay_ms": None,
    }  # fmt: skip
    for who, conflict in (("alice", "error"), ("bob", "keep"), ("carol", "replace")):
        options = {"id": "a", "on_conflict": conflict, "initiator": who}
        answer = await sim.port.jobs.submit(make(**wanted, options=options))
        if conflict == "keep":
            assert (answer.created, answer.identical) == (False, True)
            assert (await record(sim, "a")).initiator == Initiator(user="alice")
    assert (await record(sim, "a")).initiator == Initiator(user="carol")


@pytest.mark.parametrize("wrong", ["", " ", 7, "x" * 513, "\ud800", ["alice"]])
def test_an_initiator_is_a_short_text(wrong: Any) -> None:
    @on_simulated_host()
    async def test(sim: SimulatedHost) -> None:
        with pytest.raises(InvalidInputError, match="initiator"):
            await sim.jobs.run_after(1, "p", initiator=wrong)

    test()


@ruled
async def test_a_no_that_only_answers_a_cancellation_is_no_answer(sim: SimulatedHost, rule: Rule) -> None:
    """Rules that fail closed say no whatever interrupts them; a timeout or a stop must not kill the job."""

    async def closed() -> bool:
        try:
            await sim.sleep(3600)
        except BaseException:
            return False
        return True

    rule.say = lambda job: closed()
    await sim.jobs.run_after(0, "p", id="slow", timeout_ms=2_000)
    await sim.sleep(1.5)

    waiting = await record(sim, "slow")
    assert (waiting.state, waiting.reason, waiting.attempts) == ("pending", None, 0)
    assert waiting.last_error is not None and "took longer than 1000 ms" in waiting.last_error.message
    assert sim.deliveries == []


@ruled
async def test_a_rule_that_will_not_end_holds_up_neither_its_job_nor_the_stop(sim: SimulatedHost, rule: Rule) -> None:
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
        await sim.jobs.run_after(0, "p", id="a", timeout_ms=2_000)
        await sim.sleep(1.5)
        assert (await record(sim, "a")).state == "pending"

        await sim.jobs.run_after(0, "p", id="b", timeout_ms=600_000)
        await sim.sleep(10)
        before = sim.now
        await sim.host.stop()
        assert sim.now - before < 60_000
    finally:
        ended.set()
    assert sim.deliveries == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_rule_that_ends_the_process_ends_only_its_attempt(kind: str) -> None:
    def leave() -> bool:
        raise SystemExit(3)

    async def leave_later() -> bool:
        leave()
        return True

    @ruled
    async def run(sim: SimulatedHost, rule: Rule) -> None:
        rule.say = lambda job: leave() if kind == "sync" else leave_later()
        await sim.jobs.run_after(0, "p", id="a")
        await sim.sleep(0.5)
        waiting = await record(sim, "a")
        assert waiting.state == "pending"
        assert waiting.last_error is not None and "raised SystemExit" in waiting.last_error.message

    run()
