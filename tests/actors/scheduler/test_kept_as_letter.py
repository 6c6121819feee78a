"""A job that comes from a transaction which is over: nobody is there to be told that its id is taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.port import SchedulerPort
from tocsin.actors.scheduler.inflight.deaths import DeadJob
from tocsin.actors.scheduler.model.new_job import NewJob
from tocsin.actors.scheduler.transitions.kept_answers import OneAnswer
from tocsin.dispatch.transport import Answer
from tocsin.errors import DuplicateScheduleIdError

KEPT = "01m8q1cnhhjn863srp6hfj0001"


def new_job(port: SchedulerPort, parked_as: str, **options: Any) -> NewJob:
    now = port.checks.now_ms()
    made = port.checks.new_job("app:run", None, b'{"n":1}', now + 60_000, options, now=now)
    return msgspec.structs.replace(made, parked_as=parked_as)


async def brought(port: SchedulerPort, job: NewJob, key: bytes = b"k" * 16) -> dict[str, Any]:
    status, text = await port.jobs.submit_once([job], key=key, body=key, form=OneAnswer())
    assert status == 200
    answer: dict[str, Any] = msgspec.json.decode(text)
    return answer


@on_simulated_host()
async def test_a_job_whose_id_is_taken_is_a_dead_letter_that_says_so_and_can_be_retried(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "app:first", id="order-1")
    job = new_job(sim.port, KEPT, id="order-1", labels=["order:1"], pool="mail")
    assert await brought(sim.port, job) == {
        "id": KEPT, "scheduledFor": job.job.scheduled_for, "created": False, "state": "dead",
    }  # fmt: skip
    (letter,) = (await sim.jobs.dead()).records
    assert (letter.id, letter.reason, letter.args, letter.labels) == (KEPT, "refused", {"n": 1}, ("order:1",))
    assert letter.last_error is not None
    assert letter.last_error.message.startswith(
        "not accepted: DUPLICATE_SCHEDULE_ID: id 'order-1' is taken by a pending job"
    )
    status = await sim.jobs.status()
    assert (status.backlog, status.dead) == (1, 1)
    assert await sim.jobs.dead_retry(KEPT)
    await sim.sleep(1)
    assert [delivery.id for delivery in sim.deliveries] == [KEPT]
    await sim.sleep(3600)
    assert [delivery.id for delivery in sim.deliveries] == [KEPT, "order-1"]


@on_simulated_host()
async def test_it_is_kept_once_however_often_it_is_brought(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "app:first", id="order-1")
    job = new_job(sim.port, KEPT, id="order-1")
    for key in (b"k", b"k", b"l"):
        await brought(sim.port, job, key * 16)
    assert [letter.id for letter in (await sim.jobs.dead()).records] == [KEPT]
    assert (await sim.jobs.status()).dead == 1


@on_simulated_host()
async def test_a_free_id_is_taken_and_one_of_its_own_is_known_again_also_when_it_is_dead(sim: SimulatedHost) -> None:
    job = new_job(sim.port, KEPT, id=KEPT, on_conflict="keep")
    assert (await brought(sim.port, job))["created"] is True
    assert (await brought(sim.port, job, b"l" * 16))["state"] == "pending"
    sim.reply = lambda delivery: Answer(410, {}, b"")
    await sim.sleep(61)
    assert [letter.id for letter in (await sim.jobs.dead()).records] == [KEPT]
    assert (await brought(sim.port, job, b"m" * 16))["state"] == "dead"
    assert (await sim.jobs.status()).dead == 1


@on_simulated_host()
async def test_whoever_waits_for_an_answer_is_told(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "app:first", id="order-1")
    with pytest.raises(DuplicateScheduleIdError, match="taken by a pending job"):
        await sim.port.jobs.submit(new_job(sim.port, "", id="order-1"))
    assert (await sim.jobs.status()).dead == 0


def test_its_death_is_told_like_any_other() -> None:
    told: list[DeadJob] = []

    @on_simulated_host(on_dead=told.append)
    async def scenario(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "app:first", id="order-1")
        await brought(sim.port, new_job(sim.port, KEPT, id="order-1"))
        await sim.sleep(5)

    scenario()
    assert [one.id for one in told] == [KEPT]


@on_simulated_host()
async def test_two_that_come_together_are_both_kept(sim: SimulatedHost) -> None:
    one, other = (new_job(sim.port, KEPT[:-1] + end, id="order-1") for end in "12")
    said = await sim.port.jobs.submit_many([one, other])
    assert [answer.id for answer in said.accepted] == ["order-1", KEPT[:-1] + "2"]
    assert (await sim.jobs.status()).dead == 1


@on_simulated_host(max_jobs=2)
async def test_a_used_up_quota_makes_a_dead_letter_of_it_too(sim: SimulatedHost) -> None:
    await sim.jobs.run_after("1h", "app:first")
    await sim.jobs.run_after("1h", "app:second")
    job = new_job(sim.port, KEPT, id=KEPT, on_conflict="keep")
    for key in (b"k", b"l"):
        assert (await brought(sim.port, job, key * 16))["state"] == "dead"
    (letter,) = (await sim.jobs.dead()).records
    assert letter.last_error is not None and "QUOTA_EXCEEDED" in letter.last_error.message
    assert await sim.jobs.dead_retry(KEPT)
    await sim.sleep(1)
    assert [delivery.id for delivery in sim.deliveries] == [KEPT]
