"""Results: what a job came to, for those who wait for it, for as long as was asked."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.dispatch.receiver import answers
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import HostClosedError, InvalidInputError, JobFailedError, NotFoundError, NotYetError


async def settle_next(sim: SimulatedHost, **how: object) -> None:
    [one] = await sim.jobs.claim("q", wait=100)
    await sim.jobs.complete(one.id, one.lease, **how)  # type: ignore[arg-type]


@on_simulated_host()
async def test_a_result_is_waited_for_without_polling(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="1h")
    waiting = asyncio.create_task(sim.jobs.result("x", timeout=1_000))
    await sim.sleep(500)
    await settle_next(sim, result={"at": timedelta(seconds=3)})

    assert await waiting == {"at": timedelta(seconds=3)}
    assert await sim.jobs.result("x", timeout=0) == {"at": timedelta(seconds=3)}


@on_simulated_host()
async def test_a_callback_answers_with_its_result(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(201, {"content-type": "application/vnd.x+json"}, b"[1, 2]")
    await sim.jobs.run_after(1, "work:run", id="x", keep_result=60)

    assert await sim.jobs.result("x") == [1, 2]


@on_simulated_host()
async def test_accepted_work_completes_with_its_result(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(202, {"tocsin-accepted": "1"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", keep_result=60)
    await sim.sleep(1)
    await sim.jobs.complete("x", sim.deliveries[0].body["lease"], result="done")

    assert await sim.jobs.result("x") == "done"


@on_simulated_host()
async def test_a_result_is_kept_as_long_as_was_asked_and_survives_a_crash(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="10m")
    await settle_next(sim, result=1)
    await sim.crash()
    await sim.open()
    await sim.sleep(590)
    assert await sim.jobs.result("x", 0) == 1
    await sim.sleep(20)

    with pytest.raises(NotFoundError, match="nothing is known"):
        await sim.jobs.result("x", 0)


@on_simulated_host()
async def test_an_id_that_is_used_again_has_the_result_of_its_last_job(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="10m")
    await settle_next(sim, result=1)
    await sim.sleep(300)
    await sim.jobs.run_after(0, "work:run", id="x", queue="q", keep_result="10m")
    with pytest.raises(NotYetError):
        await sim.jobs.result("x", 0)
    await settle_next(sim, result=2)
    await sim.sleep(400)

    assert await sim.jobs.result("x", 0) == 2


@on_simulated_host()
async def test_a_dead_cancelled_or_expired_job_has_no_result_and_says_why(sim: SimulatedHost) -> None:
    retry = Retry(max_retries=0)
    for name in ("dead", "cancelled", "expired"):
        await sim.jobs.run_after(0, "work:run", id=name, queue=name, keep_result=600, retry=retry,
                                   expires_at=sim.now + 5_000 if name == "expired" else None)  # fmt: skip
    waiting = {name: asyncio.create_task(sim.jobs.result(name, 100)) for name in ("dead", "cancelled", "expired")}
    [one] = await sim.jobs.claim("dead")
    await sim.jobs.complete("dead", one.lease, ok=False, error="no paper")
    await sim.jobs.cancel("cancelled")
    await sim.sleep(10)
    for name, task in waiting.items():
        with pytest.raises(JobFailedError, match=name) as failed:
            await task
        assert failed.value.details["state"] == name
    with pytest.raises(JobFailedError, match="exhausted: no paper"):
        await sim.jobs.result("dead", 0)
    await sim.jobs.dead_retry("dead")
    [two] = await sim.jobs.claim("dead")
    await sim.jobs.complete("dead", two.lease, result="after all")

    assert await sim.jobs.result("dead", 0) == "after all"


@on_simulated_host()
async def test_who_waits_in_vain_is_told_in_time(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(100, "work:run", id="x", queue="q", keep_result=60)
    await sim.jobs.run_after(100, "work:run", id="plain", queue="q")
    began = sim.now
    with pytest.raises(NotYetError, match="pending"):
        await sim.jobs.result("x", "5s")
    assert 5_000 <= sim.now - began < 5_100
    with pytest.raises(NotFoundError, match="did not ask"):
        await sim.jobs.result("plain", 5)
    with pytest.raises(NotFoundError, match="nothing is known"):
        await sim.jobs.result("never", 5)
    for bad in (0.5, 8 * 86_400):
        with pytest.raises(InvalidInputError, match="keep_result must be 1 s to 7 d"):
            await sim.jobs.run_after(0, "work:run", queue="q", keep_result=bad)


@on_simulated_host()
async def test_a_stopping_host_lets_nobody_wait_for_ever(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(100, "work:run", id="x", queue="q", keep_result=60)
    waiting = asyncio.create_task(sim.jobs.result("x"))
    await sim.sleep(1)
    await sim.close()
    with pytest.raises(HostClosedError, match="'x' is pending, and the host is stopping"):
        await waiting
    await sim.open()


@on_simulated_host(lanes=256)
async def test_large_results_that_come_together_are_kept_in_several_turns(sim: SimulatedHost) -> None:
    """One commit holds 8 MiB, and these are 12."""
    result = b'"' + b"x" * 60_000 + b'"'
    sim.reply = lambda one: Answer(200, {"content-type": "application/json"}, result)
    for n in range(200):
        await sim.jobs.run_after(1, "work:run", id=f"j{n}", keep_result="1h")
    await sim.sleep(30)

    assert (await sim.jobs.status()).backlog == 0 and len(sim.deliveries) == 200
    assert len((await sim.jobs.result("j199", timeout=1)) or "") == 60_000


@on_simulated_host()
async def test_why_there_is_no_result_stands_in_the_outcome_and_in_the_history(sim: SimulatedHost) -> None:
    """With the receiver kit's own answer: the result is too long."""
    sim.reply = lambda one: answers.done_without_result("the result has 70000 bytes, at most 65536 are sent")
    await sim.jobs.run_after(0, "work:run", id="x", keep_result=60)
    await sim.sleep(2)

    end = await sim.port.queues.outcome("x", 0)
    assert (end.state, end.result) == ("done", None)
    assert end.no_result == "HTTP 200: no result: the result has 70000 bytes, at most 65536 are sent"
    (attempt,) = await sim.jobs.history("x")
    assert attempt.error == end.no_result
    assert json.loads(msgspec.json.encode(end))["noResult"] == end.no_result


@on_simulated_host()
async def test_a_job_without_a_result_has_no_reason_for_it(sim: SimulatedHost) -> None:
    sim.reply = lambda one: answers.DONE
    await sim.jobs.run_after(0, "work:run", id="x", keep_result=60)
    await sim.sleep(2)

    assert (await sim.port.queues.outcome("x", 0)).no_result is None
