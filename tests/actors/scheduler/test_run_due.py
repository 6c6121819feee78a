"""`run_due`: what is due is done when it returns, and only then on a host that dispatches nothing by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.actors.scheduler.captured_logs import captured_logs
from tests.actors.scheduler.simulated_host import OK, SimulatedHost, after, hang, on_simulated_host
from tocsin import Actor, DueRun, Job, Retry
from tocsin.dispatch.pulled import WorkerInfo
from tocsin.dispatch.transport import Answer
from tocsin.errors import HostClosedError, InvalidInputError, SettingsError

BROKEN = Answer(500, {}, b"broken")


class Bell(Actor):
    """Counts how often its alarm rang."""

    async def ring_at(self, ms: int) -> None:
        self.ctx.set_alarm(ms)

    async def rings(self) -> int:
        return int(await self.ctx.storage.get(b"n") or b"0")

    async def alarm(self) -> None:
        self.ctx.storage.put(b"n", b"%d" % (await self.rings() + 1))


def because(done: DueRun) -> dict[tuple[str | None, str], int]:
    return {(one.instance, one.code): one.jobs for one in done.because}


async def run(sim: SimulatedHost, *args: Any, **options: Any) -> DueRun:
    """Bounded in virtual time: a run that hangs is a failed test."""
    async with asyncio.timeout(7_200):
        return await sim.host.run_due(*args, **options)


# ---- What is done --------------------------------------------------------------------------------


@on_simulated_host(dispatch=False)
async def test_a_host_that_does_not_dispatch_sends_what_is_due_in_run_due_only(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(300)])
    await sim.host.scheduler("other").submit_many([Job(path="work:run", after=n) for n in (0, 60, 3_600)])
    await sim.sleep(600)
    assert not sim.deliveries
    assert [one.code for one in await sim.jobs.why((await sim.jobs.list()).records[0].id)] == ["NOT_DISPATCHING"]

    done = await run(sim)
    assert (done.fired, done.succeeded, done.failed, done.dead, done.left, done.running) == (302, 302, 0, 0, 0, 0)
    assert not done.trouble and not done.because
    assert done.next_due == sim.now + 3_000_000
    assert len(sim.deliveries) == 302

    await sim.sleep(7_200)
    assert len(sim.deliveries) == 302
    assert (await run(sim)).fired == 1


@on_simulated_host(dispatch=False)
async def test_nothing_of_a_host_that_does_not_dispatch_stays_in_memory_for_jobs_that_wait(sim: SimulatedHost) -> None:
    for name in range(50):
        await sim.host.scheduler(f"i{name}").run_after(0, "work:run")
    await sim.sleep(1)
    assert await sim.host.runtime.evict() == 50
    assert (await run(sim)).succeeded == 50


@on_simulated_host()
async def test_on_a_host_that_dispatches_it_waits_for_what_is_in_flight(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: after(5)
    began = sim.now
    await sim.jobs.run_after(0, "work:run")
    await sim.sleep(1)

    done = await run(sim)
    assert (done.fired, done.succeeded) == (1, 1)
    assert sim.now - began == 5_000 + sim.arrivals[0][0]
    assert (await sim.jobs.status()).backlog == 0


@on_simulated_host(dispatch=False)
async def test_jobs_that_a_success_starts_are_done_in_the_same_run(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", then=[Job("work:second", options={"then": [Job("work:third")]})])
    done = await run(sim)
    assert (done.succeeded, done.left, len(sim.deliveries)) == (3, 0, 3)


@on_simulated_host(dispatch=False)
async def test_attempts_that_fail_are_counted_and_their_retries_left_to_a_later_run(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: BROKEN
    await sim.jobs.run_after(0, "work:run", id="again", retry=Retry(base_ms=30_000))
    await sim.jobs.run_after(0, "work:run", id="last", retry=Retry(max_retries=0))
    done = await run(sim)
    assert (done.fired, done.failed, done.dead, done.left, done.trouble) == (2, 2, 1, 0, False)
    assert done.next_due is not None and 29_000 < done.next_due - sim.now <= 30_000

    sim.reply = lambda delivery: OK
    done = await run(sim, timedelta(minutes=1))
    assert (done.fired, done.succeeded, done.dead) == (1, 1, 0)


@on_simulated_host(dispatch=False)
async def test_accepted_work_is_not_waited_for(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: Answer(202, {"tocsin-accepted": "1"}, b"")
    await sim.jobs.run_after(0, "work:run")
    done = await run(sim)
    assert (done.fired, done.accepted, done.failed, done.running, done.left) == (1, 1, 0, 1, 0)


@on_simulated_host(dispatch=False)
async def test_slots_expiries_and_bulk_retries_happen_in_a_run(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: BROKEN
    await sim.jobs.submit_many([Job(path="work:dead", after=0, options={"retry": Retry(max_retries=0)})] * 3)
    assert (await run(sim)).dead == 3
    sim.reply = lambda delivery: OK
    await sim.sleep(1)
    await sim.jobs.schedules.put("hourly", cron="0 * * * *", path="work:slot")
    await sim.jobs.run_after(5, "work:late", expires_at=sim.now + 60_000)
    await sim.jobs.dead_retry_all(all=True)
    await sim.sleep(3_600)

    done = await run(sim)
    paths = sorted(one.body["functionPath"] for one in sim.deliveries[3:])
    assert paths == ["work:dead", "work:dead", "work:dead", "work:slot"]
    assert (done.succeeded, done.left) == (4, 0)


@on_simulated_host(dispatch=False, actors=[Bell])
async def test_alarms_of_own_actors_ring_in_a_run(sim: SimulatedHost) -> None:
    bell = sim.host.actor(Bell, "c")
    await bell.ring_at(sim.now + 1_000)
    await sim.sleep(60)
    assert await bell.rings() == 0
    await run(sim)
    assert await bell.rings() == 1


# ---- Until ---------------------------------------------------------------------------------------


@on_simulated_host(dispatch=False)
async def test_until_waits_for_what_becomes_due_and_no_longer(sim: SimulatedHost) -> None:
    began = sim.now
    for seconds in (10, 50, 70):
        await sim.jobs.run_after(seconds, "work:run")
    done = await run(sim, "55s")
    assert done.succeeded == 2
    assert sim.now - began < 55_000
    assert [at // 1_000 for at, _ in sim.arrivals] == [10, 50]
    assert done.next_due == began + 70_000

    assert (await run(sim, began + 70_000)).succeeded == 1
    before = sim.now
    assert (await run(sim, sim.now + 3_600_000)).fired == 0
    assert sim.now == before


@on_simulated_host(dispatch=False)
async def test_after_max_seconds_nothing_more_begins(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: after(8)
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(200)])
    began = sim.now
    done = await run(sim, max_seconds=10)
    assert sim.now - began == 10_000
    assert (done.succeeded, done.running, done.left) == (64, 64, 72)
    assert because(done) == {("t", "TIME_OVER"): 72} and done.trouble

    await sim.sleep(60)  # those under way end, and others do not follow them
    assert len(sim.deliveries) == 128
    assert (await run(sim)).succeeded == 72


# ---- What is left --------------------------------------------------------------------------------


@on_simulated_host(dispatch=False)
async def test_what_is_left_is_counted_and_says_why_and_no_run_hangs(sim: SimulatedHost) -> None:
    paused, jobs = sim.host.scheduler("paused"), sim.jobs
    await paused.submit_many([Job(path="work:run", after=0)] * 2)
    await paused.set_instance(paused=True)
    await jobs.set_pool("stopped", paused=True)
    await jobs.set_pool("closed", max_concurrency=0)
    await jobs.run_after(0, "work:run", pool="stopped")
    await jobs.run_after(0, "work:run", pool="closed")
    await jobs.submit_many([Job(path="work:run", after=0, options={"queue": "mail"})] * 4)
    await jobs.run_after(0, "work:run")
    done = await run(sim)

    assert (done.succeeded, done.left) == (1, 8)
    assert because(done) == {
        ("paused", "INSTANCE_PAUSED"): 2, ("t", "POOL_PAUSED"): 1, ("t", "POOL_FULL"): 1, ("t", "FOR_WORKERS"): 4,
    }  # fmt: skip
    assert not done.trouble


@on_simulated_host(dispatch=False)
async def test_a_pool_held_by_accepted_work_is_full(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: Answer(202, {"tocsin-accepted": "1"}, b"")
    await sim.jobs.submit_many([Job(path="work:run", after=0, options={"pool": "p"})] * 3)
    done = await run(sim)
    assert (done.accepted, done.running, done.left) == (1, 1, 2)
    assert because(done) == {("t", "POOL_FULL"): 2}


@on_simulated_host(dispatch=False)
async def test_an_origin_that_is_down_ends_the_run_and_is_trouble(sim: SimulatedHost) -> None:
    sim.down = True
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(300)])
    began = sim.now
    done = await run(sim)
    assert sim.now - began < 1_000
    assert done.trouble and done.succeeded == 0
    assert done.left + done.fired == 300
    assert set(because(done)) == {("t", "CIRCUIT_OPEN")}

    refused = sim.refused
    await sim.sleep(600)  # no probe goes out between runs
    assert sim.refused == refused
    sim.down = False
    await sim.sleep(3_600)
    assert (await run(sim, "1m")).succeeded == 300


@on_simulated_host(dispatch=False)
async def test_a_store_that_is_full_ends_the_run_and_is_trouble(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run")
    sim.disk_full(True)
    done = await run(sim)
    assert (done.fired, done.left, done.trouble) == (0, 1, True)
    assert {one.code for one in done.because} == {"STORE_FULL"}
    sim.disk_full(False)
    assert (await run(sim, "5s")).succeeded == 1


@on_simulated_host(dispatch=False, on_tick=lambda until, late: 1 / 0)
async def test_a_hook_that_fails_for_ever_holds_no_run_up(sim: SimulatedHost) -> None:
    await sim.jobs.schedules.put("hourly", cron="0 * * * *", path="work:slot")
    await sim.sleep(3_600)
    with captured_logs():
        began = sim.now
        assert (await run(sim)).succeeded == 1
    assert sim.now - began < 5_000


# ---- Its arguments, and its end ------------------------------------------------------------------


@on_simulated_host(dispatch=False)
async def test_a_run_that_is_cancelled_begins_nothing_more(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: hang()
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(100)])
    running = asyncio.create_task(sim.host.run_due())
    await sim.sleep(1)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() and len(sim.deliveries) == 64
    await sim.sleep(600)
    assert len(sim.deliveries) == 64


@on_simulated_host(dispatch=False)
async def test_two_runs_at_once_share_the_work_and_the_longer_one_goes_on(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many([Job(path="work:run", after=0), Job(path="work:run", after=30)])
    short, long = await asyncio.gather(run(sim), run(sim, "1m"))
    assert (short.succeeded, long.succeeded) == (1, 2)


@on_simulated_host(dispatch=False)
async def test_a_worker_is_given_what_is_due_when_it_asks(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", queue="mail")
    found = await sim.jobs.claim("mail", wait=0, worker=WorkerInfo(id="w", name="w", hostname="h", pid=1))
    assert len(found) == 1


@on_simulated_host(dispatch=False)
async def test_arguments_that_do_not_fit_are_refused_by_name(sim: SimulatedHost) -> None:
    for wrong, words in ((55.0, "until must be an instant or like"), (55, "looks like seconds"), ("5x", "until")):
        with pytest.raises(InvalidInputError, match=words):
            await sim.host.run_due(wrong)  # type: ignore[arg-type]
    for seconds in (0, -1, "5"):
        with pytest.raises(SettingsError, match="max_seconds must be"):
            await sim.host.run_due(max_seconds=seconds)  # type: ignore[arg-type]
    await sim.host.stop()
    with pytest.raises(HostClosedError):
        await sim.host.run_due()
