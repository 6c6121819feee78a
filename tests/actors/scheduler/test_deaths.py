"""A job that dies is said in the log and told to the app's own hook, after that is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.heard import heard
from tests.actors.scheduler.stage import Stage, staged
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.inflight.deaths import DeadJob
from tocsin.actors.testing import simulate
from tocsin.dispatch.pulled import WorkerInfo
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError, StoreUnavailable

GONE = Answer(410, {}, b"not wanted any more")
ONCE = Retry(max_retries=0)


def dying(test: Callable[[Stage, list[DeadJob]], Any], **options: Any) -> Callable[[], None]:
    """With a hook that notes who has died."""
    told: list[DeadJob] = []

    @staged(on_dead=told.append, **options)
    async def run(stage: Stage) -> None:
        await test(stage, told)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@dying
async def test_the_line_names_the_job_its_reason_and_the_last_status(stage: Stage, told: list[DeadJob]) -> None:
    stage.reply = lambda one: Answer(500, {}, b"")
    with heard() as log:
        await stage.jobs.run_after(0, "invoices:send", id="x", retry=Retry(max_retries=1, base_ms=1_000))
        await stage.sleep(30)

    assert log.of("is dead") == [
        "WARNING job t/x (invoices:send) is dead: exhausted after 2 attempts, last status 500: HTTP 500"
    ]
    (one,) = told
    assert (one.instance, one.id, one.function_path, one.reason) == ("t", "x", "invoices:send", "exhausted")
    assert (one.status, one.attempt, one.attempts, one.error) == (500, 2, 2, "HTTP 500")
    letter = (await stage.jobs.dead()).records[0]
    assert (one.incarnation, one.parked_at) == (letter.incarnation, letter.parked_at)


async def refused(stage: Stage) -> None:
    stage.reply = lambda one: GONE
    await stage.jobs.run_after(0, "work:run", id="x")


async def exhausted(stage: Stage) -> None:
    stage.reply = lambda one: Answer(500, {}, b"")
    await stage.jobs.run_after(0, "work:run", id="x", retry=ONCE)


async def lapsed(stage: Stage) -> None:
    stage.reply = lambda one: Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": "1000"}, b"")
    await stage.jobs.run_after(0, "work:run", id="x", retry=ONCE)


async def completed(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="x", queue="q")
    (one,) = await stage.jobs.claim("q")
    await stage.jobs.complete("x", one.lease, ok=False, retryable=False)


async def lost(stage: Stage) -> None:
    await stage.jobs.run_after(0, "work:run", id="x", queue="q")
    for n in range(5):
        await stage.jobs.claim("q", lease_ms=1_000, worker=WorkerInfo(id=f"w{n}"))
        await stage.sleep(2)


async def unindexable(stage: Stage) -> None:
    """Its next attempt would be later than keys can say: at the end of time, which is brought near here."""
    stage.reply = lambda one: Answer(500, {}, b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tocsin.actors.scheduler.model.instants_of_job.LARGEST_MS", stage.now + 10_000)
        await stage.jobs.run_after(0, "work:run", id="x")
        await stage.sleep(1)


@pytest.mark.parametrize("how", [refused, exhausted, lapsed, completed, lost, unindexable])
def test_every_way_to_die_is_told_once(how: Callable[[Stage], Any]) -> None:
    async def test(stage: Stage, told: list[DeadJob]) -> None:
        with heard() as log:
            await how(stage)
            await stage.sleep(60)
        reason = {"lapsed": "exhausted", "completed": "refused"}.get(how.__name__, how.__name__)
        assert [(one.id, one.reason) for one in told] == [("x", reason)]
        assert len(log.of("job t/x (work:run) is dead")) == 1

    dying(test)()


@pytest.mark.parametrize("queue", [None, "q"])
def test_who_is_blocked_is_told(queue: str | None) -> None:
    async def test(stage: Stage, told: list[DeadJob]) -> None:
        await stage.jobs.run_after(0, "work:run", id="x", queue=queue)
        if queue is not None:
            await stage.jobs.claim(queue, wait=1)
        await stage.sleep(5)
        assert [(one.id, one.reason, one.queue) for one in told] == [("x", "blocked", queue)]

    dying(test, authorize_fire=lambda job: False)()


@dying
async def test_who_expires_or_is_cancelled_has_not_died(stage: Stage, told: list[DeadJob]) -> None:
    with heard() as log:
        await stage.jobs.run_after(0, "work:run", queue="q", expires_at=stage.now + 1_000)
        await stage.jobs.cancel(await stage.jobs.run_after(5, "work:run"))
        await stage.sleep(10)

    assert told == [] and log.lines == []


@dying
async def test_a_mass_death_fills_no_log_and_is_told_one_by_one(stage: Stage, told: list[DeadJob]) -> None:
    stage.reply = lambda one: GONE
    with heard() as log:
        await stage.jobs.submit_many([Job(path="work:run", after=0) for _ in range(500)])
        await stage.host.scheduler("other").run_after(0, "work:run", id="neighbour")
        await stage.sleep(15)
        await stage.jobs.run_after(0, "work:run", id="later")
        await stage.sleep(15)

    assert len(told) == 502 and len({(one.instance, one.id) for one in told}) == 502
    assert len(log.of("job t/")) == 11 and len(log.of("job t/later")) == 1 and len(log.of("job other/neighbour")) == 1
    assert log.of("more jobs") == ["WARNING 490 more jobs of t died within 10 s: 490 refused"]


@dying
async def test_a_death_whose_commit_failed_is_not_told(stage: Stage, told: list[DeadJob]) -> None:
    provider: Any = stage.host.runtime.provider

    async def refuse(batches: object) -> None:
        raise StoreUnavailable("as the test wanted")

    async def last_words(one: object) -> Answer:
        await asyncio.sleep(1)
        provider.combiner._write = refuse
        return GONE

    stage.reply = last_words
    write = provider.combiner._write
    await stage.jobs.run_after(0, "work:run", id="x")
    await stage.sleep(20)
    assert told == []
    provider.combiner._write = write
    await stage.sleep(20)

    assert [one.id for one in told] == ["x"]


class Hooked:
    """An async hook that fails for some and hangs for others."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def __call__(self, job: DeadJob) -> None:
        if job.id.startswith("hang"):
            await asyncio.Event().wait()
        if job.id.startswith("exit"):
            raise SystemExit(3)
        if job.id.startswith("bad"):
            raise RuntimeError("as the test wanted")
        if job.id.startswith("cancel"):
            raise asyncio.CancelledError
        self.heard.append(job.id)


def test_a_hook_that_fails_or_hangs_holds_up_no_job_and_no_other_call() -> None:
    hook = Hooked()

    @staged(on_dead=hook)
    async def test(stage: Stage) -> None:
        stage.reply = lambda one: GONE if one.id != "fine" else Answer(200, {}, b"")
        with heard() as log:
            for name in ("hang", "bad", "exit", "cancel", "good"):
                await stage.jobs.run_after(0, "work:run", id=name)
                await stage.sleep(0.1)
            await stage.jobs.run_after(0, "work:run", id="fine")
            await stage.sleep(2)
            assert await stage.jobs.get("fine") is None and hook.heard == []
            await stage.sleep(28.8)
        assert hook.heard == ["good"]
        assert len(log.of("on_dead failed")) == 4 and len(log.of("(4 failures so far)")) == 1
        assert (await stage.jobs.status()).health == "green", "the last call went well"
        await stage.jobs.run_after(0, "work:run", id="bad2")
        await stage.sleep(1)
        status = await stage.jobs.status()
        assert (status.health, [one.code for one in status.reasons]) == ("amber", ["HOOK_FAILING"])

    test()


def test_a_host_that_stops_lets_its_hook_hear_of_all() -> None:
    heard_of: list[str] = []

    async def slow(job: DeadJob) -> None:
        await asyncio.sleep(1)
        heard_of.append(job.id)

    async def main(random: Random) -> None:
        stage = Stage(random)
        await stage.open(on_dead=slow)
        stage.reply = lambda one: GONE
        await stage.jobs.submit_many([Job(path="work:run", after=0) for _ in range(5)])
        await stage.sleep(0.5)
        await stage.close()
        assert len(heard_of) == 5
        await stage.open(on_dead=slow, drain_s=2)
        await stage.jobs.submit_many([Job(path="work:run", after=0) for _ in range(9)])
        await stage.sleep(0.5)
        with heard() as log:
            await stage.close()
        assert len(log.of("on_dead has not heard of")) == 1

    simulate(7, main)


def test_a_hook_must_be_a_function() -> None:
    with pytest.raises(SettingsError, match="on_dead must be a function, not str"):
        ActorHost.open("memory:", on_dead="call me")
