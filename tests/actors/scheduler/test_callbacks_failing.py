"""A receiver that refuses or hangs is seen: in a job's record and history, in the log, and in health."""

from __future__ import annotations

import asyncio

from tests.actors.scheduler.captured_logs import captured_logs
from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.inflight.callback_failures import LINES, PATHS, CallbackFailures
from tocsin.dispatch.callback import AttemptOutcome, Verdict
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer

REFUSED = Answer(401, {}, b'{"error":{"code":"UNAUTHENTICATED","message":"no secret here fits the signature"}}')
SAID = "HTTP 401: no secret here fits the signature"
SLOW = Retry(max_retries=3, base_ms=3_600_000)


async def hanging(one: Delivery) -> Answer:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody ends it")


# ---- One job -------------------------------------------------------------------------------------


@on_simulated_host()
async def test_the_receivers_words_are_seen_while_a_job_is_tried_again(sim: SimulatedHost) -> None:
    sim.reply = lambda one: REFUSED
    await sim.jobs.run_after(0, "work:run", id="x", retry=SLOW)
    await sim.sleep(1)

    record = await sim.jobs.get("x")
    assert record is not None and record.last_error is not None
    assert record.last_error.message == SAID
    (reason,) = await sim.jobs.why("x")
    assert SAID in reason.message
    assert [(one.outcome, one.error) for one in await sim.jobs.history("x")] == [("failed", SAID)]


@on_simulated_host()
async def test_the_history_says_that_no_answer_came_in_time(sim: SimulatedHost) -> None:
    sim.reply = hanging
    await sim.jobs.run_after(0, "work:run", id="x", timeout_ms=1_000, retry=SLOW)
    await sim.sleep(60)

    (attempt,) = await sim.jobs.history("x")
    assert (attempt.outcome, attempt.error) == ("unknown", "no answer in time: after 1 s")


@on_simulated_host()
async def test_the_history_says_that_accepted_work_was_not_completed(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": "1000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", retry=SLOW)
    await sim.sleep(60)

    (attempt,) = await sim.jobs.history("x")
    assert (attempt.outcome, attempt.error) == ("lapsed", "accepted, and not completed before its lease ended")


# ---- The host ------------------------------------------------------------------------------------


async def codes(sim: SimulatedHost) -> list[str]:
    return [one.code for one in (await sim.jobs.status()).reasons]


@on_simulated_host()
async def test_health_is_amber_once_no_callback_succeeds_until_one_does(sim: SimulatedHost) -> None:
    sim.reply = lambda one: REFUSED
    await sim.jobs.submit_many([Job(path="work:run", after=0, options={"retry": SLOW}) for _ in range(19)])
    await sim.sleep(1)
    assert await codes(sim) == []

    await sim.jobs.run_after(0, "work:run", retry=SLOW)
    began = sim.now
    await sim.sleep(1)
    status = await sim.jobs.status()
    (reason,) = status.reasons
    assert (status.health, reason.code) == ("amber", "CALLBACKS_FAILING")
    assert f"the last 20 callbacks failed or had no answer in time; the last one: work:run: {SAID}" == reason.message
    assert reason.since <= began
    assert [one.code for one in sim.host.health()] == ["CALLBACKS_FAILING"]

    sim.reply = lambda one: OK
    await sim.jobs.run_after(0, "work:run")
    await sim.sleep(1)
    assert await codes(sim) == []


@on_simulated_host()
async def test_health_is_amber_while_a_receiver_hangs(sim: SimulatedHost) -> None:
    sim.reply = hanging
    with captured_logs() as log:
        jobs = [Job(path="work:run", after=0, options={"timeout_ms": 1_000, "retry": SLOW}) for _ in range(22)]
        await sim.jobs.submit_many(jobs)
        await sim.sleep(5)

    assert await codes(sim) == ["CALLBACKS_FAILING"]
    (line,) = log.lines
    assert line.startswith("WARNING a callback failed: work:run: no answer in time: after 1 s (job t/")


@on_simulated_host()
async def test_a_host_that_cannot_call_anybody_does_not_blame_the_receiver(sim: SimulatedHost) -> None:
    sim.down = True
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(100)])
    await sim.sleep(600)

    assert await codes(sim) == ["ORIGIN_UNREACHABLE"]


# ---- The log -------------------------------------------------------------------------------------


class Noting:
    """Notes outcomes at instants that the test chooses."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.failures = CallbackFailures(lambda: self.now_s, lambda: int(self.now_s * 1000))

    def note(self, verdict: Verdict, path: str = "a:b", times: int = 1) -> None:
        for _ in range(times):
            self.failures.note("t/x", path, AttemptOutcome(verdict, "HTTP 500"))


def test_a_path_that_fails_is_logged_at_once_and_then_once_a_minute_with_a_count() -> None:
    noting = Noting()
    with captured_logs() as log:
        for _ in range(120):
            noting.note(Verdict.FAILED)
            noting.now_s += 1.0

    assert log.lines == [
        "WARNING a callback failed: a:b: HTTP 500 (job t/x)",
        "WARNING a callback failed: a:b: HTTP 500 (job t/x); 59 more of this path since the line before",
    ]


def test_a_success_between_failures_makes_no_further_lines() -> None:
    noting = Noting()
    with captured_logs() as log:
        for _ in range(30):
            noting.note(Verdict.FAILED)
            noting.note(Verdict.DONE)
            noting.now_s += 1.0

    assert len(log.lines) == 1


def test_many_paths_that_fail_are_counted() -> None:
    noting = Noting()
    with captured_logs() as log:
        for number in range(3 * PATHS):
            noting.note(Verdict.FAILED, f"p:{number}")
        assert len(log.lines) == LINES
        noting.now_s += 60
        noting.note(Verdict.UNKNOWN, "q:q")

    assert log.lines[-1] == ("WARNING a callback failed: q:q: HTTP 500 (job t/x); 2,990 of other paths were not logged")


def test_what_says_nothing_of_the_receiver_is_not_counted() -> None:
    noting = Noting()
    with captured_logs() as log:
        for verdict in (Verdict.BUSY, Verdict.DECLINED, Verdict.STOPPED, Verdict.BLOCKED, Verdict.UNREACHABLE):
            noting.note(verdict, times=30)

    assert log.lines == [] and noting.failures.broken is None


def test_a_receiver_that_refuses_a_job_for_good_works() -> None:
    noting = Noting()
    with captured_logs() as log:
        noting.note(Verdict.DEAD, times=20)

    assert log.lines == [] and noting.failures.broken is None, "the log has a line for each death"


def test_paths_that_failed_are_forgotten_before_they_are_too_many() -> None:
    noting = Noting()
    with captured_logs():
        for number in range(2 * PATHS):
            noting.note(Verdict.FAILED, f"p:{number}")
            noting.now_s += 60

    assert len(noting.failures._paths) == PATHS
