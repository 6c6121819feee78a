"""A job that dies is said in the log and told to the app's own hook, after that is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.captured_logs import captured_logs
from tests.actors.scheduler.simulated_host import SimulatedHost, on_simulated_host
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


def dying(test: Callable[[SimulatedHost, list[DeadJob]], Any], **options: Any) -> Callable[[], None]:
    """With a hook that notes who has died."""
    told: list[DeadJob] = []

    @on_simulated_host(on_dead=told.append, **options)
    async def run(sim: SimulatedHost) -> None:
        await test(sim, told)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@dying
async def test_the_line_names_the_job_its_reason_and_the_last_status(sim: SimulatedHost, told: list[DeadJob]) -> None:
    sim.reply = lambda one: Answer(500, {}, b"")
    with captured_logs() as log:
        await sim.jobs.run_after(0, "invoices:send", id="x", retry=Retry(max_retries=1, base_ms=1_000))
        await sim.sleep(30)

    assert log.of("is dead") == [
        "WARNING job t/x (invoices:send) is dead: exhausted after 2 attempts, last status 500: HTTP 500"
    ]
    (one,) = told
    assert (one.instance, one.id, one.function_path, one.reason) == ("t", "x", "invoices:send", "exhausted")
    assert (one.status, one.attempt, one.attempts, one.error) == (500, 2, 2, "HTTP 500")
    letter = (await sim.jobs.dead()).records[0]
    assert (one.incarnation, one.parked_at) == (letter.incarnation, letter.parked_at)


async def refused(sim: SimulatedHost) -> None:
    sim.reply = lambda one: GONE
    await sim.jobs.run_after(0, "work:run", id="x")


async def exhausted(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(500, {}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", retry=ONCE)


async def lapsed(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(202, {"tocsin-accepted": "1", "tocsin-lease-ms": "1000"}, b"")
    await sim.jobs.run_after(0, "work:run", id="x", retry=ONCE)


async def completed(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    (one,) = await sim.jobs.claim("q")
    await sim.jobs.complete("x", one.lease, ok=False, retryable=False)


async def lost(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", id="x", queue="q")
    for n in range(5):
        await sim.jobs.claim("q", lease_ms=1_000, worker=WorkerInfo(id=f"w{n}"))
        await sim.sleep(2)


async def unindexable(sim: SimulatedHost) -> None:
    """Its next attempt would be later than keys can say: at the end of time, which is brought near here."""
    sim.reply = lambda one: Answer(500, {}, b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tocsin.actors.scheduler.model.instants_of_job.LARGEST_MS", sim.now + 10_000)
        await sim.jobs.run_after(0, "work:run", id="x")
        await sim.sleep(1)


@pytest.mark.parametrize("how", [refused, exhausted, lapsed, completed, lost, unindexable])
def test_every_way_to_die_is_told_once(how: Callable[[SimulatedHost], Any]) -> None:
    async def test(sim: SimulatedHost, told: list[DeadJob]) -> None:
        with captured_logs() as log:
            await how(sim)
            await sim.sleep(60)
        reason = {"lapsed": "exhausted", "completed": "refused"}.get(how.__name__, how.__name__)
        assert [(one.id, one.reason) for one in told] == [("x", reason)]
        assert len(log.of("job t/x (work:run) is dead")) == 1

    dying(test)()


@pytest.mark.parametrize("queue", [None, "q"])
def test_who_is_blocked_is_told(queue: str | None) -> None:
    async def test(sim: SimulatedHost, told: list[DeadJob]) -> None:
        await sim.jobs.run_after(0, "work:run", id="x", queue=queue)
        if queue is not None:
            await sim.jobs.claim(queue, wait=1)
        await sim.sleep(5)
        assert [(one.id, one.reason, one.queue) for one in told] == [("x", "blocked", queue)]

    dying(test, authorize_fire=lambda job: False)()


@dying
async def test_who_expires_or_is_cancelled_has_not_died(sim: SimulatedHost, told: list[DeadJob]) -> None:
    with captured_logs() as log:
        await sim.jobs.run_after(0, "work:run", queue="q", expires_at=sim.now + 1_000)
        await sim.jobs.cancel(await sim.jobs.run_after(5, "work:run"))
        await sim.sleep(10)

    assert told == [] and log.lines == []


@dying
async def test_a_mass_death_fills_no_log_and_is_told_one_by_one(sim: SimulatedHost, told: list[DeadJob]) -> None:
    sim.reply = lambda one: GONE
    with captured_logs() as log:
        await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(500)])
        await sim.host.scheduler("other").run_after(0, "work:run", id="neighbour")
        await sim.sleep(15)
        await sim.jobs.run_after(0, "work:run", id="later")
        await sim.sleep(15)

    assert len(told) == 502 and len({(one.instance, one.id) for one in told}) == 502
    assert len(log.of("job t/")) == 11 and len(log.of("job t/later")) == 1 and len(log.of("job other/neighbour")) == 1
    assert log.of("more jobs") == ["WARNING 490 more jobs of t died within 10 s: 490 refused"]
    assert set(log.instances) == {"t", "other"}, "each line is found by its instance"


@dying
async def test_a_death_whose_commit_failed_is_not_told(sim: SimulatedHost, told: list[DeadJob]) -> None:
    provider: Any = sim.host.runtime.provider

    async def refuse(batches: object) -> None:
        raise StoreUnavailable("as the test wanted")

    async def last_words(one: object) -> Answer:
        await asyncio.sleep(1)
        provider.combiner._write = refuse
        return GONE

    sim.reply = last_words
    write = provider.combiner._write
    await sim.jobs.run_after(0, "work:run", id="x")
    await sim.sleep(20)
    assert told == []
    provider.combiner._write = write
    await sim.sleep(20)

    assert [one.id for one in told] == ["x"]


class Hooked:
    """An async hook that fails for some and hangs for others."""

    def __init__(self) -> None:
        self.captured_logs: list[str] = []

    async def __call__(self, job: DeadJob) -> None:
        if job.id.startswith("hang"):
            await asyncio.Event().wait()
        if job.id.startswith("exit"):
            raise SystemExit(3)
        if job.id.startswith("bad"):
            raise RuntimeError("as the test wanted")
        if job.id.startswith("cancel"):
            raise asyncio.CancelledError
        self.captured_logs.append(job.id)


def test_a_hook_that_fails_or_hangs_holds_up_no_job_and_no_other_call() -> None:
    hook = Hooked()

    @on_simulated_host(on_dead=hook)
    async def test(sim: SimulatedHost) -> None:
        sim.reply = lambda one: GONE if one.id != "fine" else Answer(200, {}, b"")
        with captured_logs() as log:
            for name in ("hang", "bad", "exit", "cancel", "good"):
                await sim.jobs.run_after(0, "work:run", id=name)
                await sim.sleep(0.1)
            await sim.jobs.run_after(0, "work:run", id="fine")
            await sim.sleep(2)
            assert await sim.jobs.get("fine") is None and hook.captured_logs == []
            await sim.sleep(28.8)
        assert hook.captured_logs == ["good"]
        assert len(log.of("on_dead failed")) == 4 and len(log.of("(4 failures so far)")) == 1
        assert (await sim.jobs.status()).health == "green", "the last call went well"
        await sim.jobs.run_after(0, "work:run", id="bad2")
        await sim.sleep(1)
        status = await sim.jobs.status()
        assert (status.health, [one.code for one in status.reasons]) == ("amber", ["HOOK_FAILING"])
        await sim.jobs.run_after(0, "work:run", id="good2")
        await sim.sleep(1)
        assert (await sim.jobs.status()).health == "green"

    test()


def test_a_host_that_stops_lets_its_hook_hear_of_all() -> None:
    heard_of: list[str] = []

    async def slow(job: DeadJob) -> None:
        await asyncio.sleep(1)
        heard_of.append(job.id)

    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open(on_dead=slow)
        sim.reply = lambda one: GONE
        await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(5)])
        await sim.sleep(0.5)
        await sim.close()
        assert len(heard_of) == 5
        await sim.open(on_dead=slow, drain_s=2)
        await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(9)])
        await sim.sleep(0.5)
        with captured_logs() as log:
            await sim.close()
        assert len(log.of("on_dead was not called for")) == 1

    simulate(7, main)


def test_a_hook_must_be_a_function() -> None:
    with pytest.raises(SettingsError, match="on_dead must be a function, not str"):
        ActorHost.open("memory:", on_dead="call me")
