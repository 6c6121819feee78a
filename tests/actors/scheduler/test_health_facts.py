"""What makes health amber or red, each fact by itself, at `status` and at the probe, until it is over."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.simulated_host import (
    OK,
    SECRET,
    SimulatedHost,
    SimulatedTransport,
    after,
    on_simulated_host,
)
from tests.http.http_client import client_of
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.runtime.ids import ActorId
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.health_limits import health_limits
from tocsin.actors.scheduler.model.recent import Recent
from tocsin.actors.testing import simulate
from tocsin.dispatch.retry import Retry
from tocsin.dispatch.transport import Answer
from tocsin.errors import SettingsError

BROKEN = Answer(500, {}, b"")
AT_ONCE = Retry(max_retries=0)
Seen = dict[str, str]


async def seen(sim: SimulatedHost) -> tuple[str, Seen]:
    """Return health and the reasons, as status tells them, after the probe has told the same codes."""
    await sim.sleep(6)  # a look lasts 5 s
    await sim.host.look()
    status = await sim.jobs.status()
    found = {one.code: one.message for one in status.reasons}
    async with client_of(sim.host.asgi(insecure=True)) as client:
        probe = await client.get("/readyz")
    assert probe.status_code == 200
    assert set(probe.json().get("reasons", ())) == set(found)
    return status.health, found


def jobs(count: int, **options: Any) -> list[Job]:
    return [Job(path="work:run", after=0, options=options) for _ in range(count)]


# ---- Late jobs -----------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_scheduler_that_starts_nothing_although_it_could_is_red_until_it_does(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(5, "work:run")
    sim.host.runtime.alarms.stop()
    await sim.sleep(50)
    assert await seen(sim) == ("green", {})
    await sim.sleep(30)
    health, found = await seen(sim)
    assert health == "red" and list(found) == ["JOBS_STUCK"]
    assert "could start, and none has been started for 1m" in found["JOBS_STUCK"]
    sim.host.runtime.alarms.start()
    await sim.sleep(1)
    assert await seen(sim) == ("green", {})


@on_simulated_host(lanes=1, health_limits={"late_s": 30})
async def test_jobs_that_wait_their_turn_for_too_long_are_amber(sim: SimulatedHost) -> None:
    sim.reply = lambda one: after(20)
    await sim.jobs.submit_many(jobs(4))
    assert await seen(sim) == ("green", {})
    await sim.sleep(25)
    health, found = await seen(sim)
    assert health == "amber" and list(found) == ["JOBS_LATE"]
    await sim.sleep(60)
    assert await seen(sim) == ("green", {})


@on_simulated_host(health_limits={"late_s": 1, "queue_late_s": 1})
async def test_what_is_held_on_purpose_is_not_late(sim: SimulatedHost) -> None:
    await sim.jobs.set_pool("paused", paused=True)
    await sim.jobs.set_pool("closed", max_concurrency=0)
    for pool in ("paused", "closed"):
        await sim.jobs.run_after(0, "work:run", pool=pool)
        await sim.jobs.run_after(0, "work:run", pool=pool, queue="q")
    held = sim.host.scheduler("held")
    await held.pause()
    await held.run_after(0, "work:run")
    await held.run_after(0, "work:run", queue="q")
    tested = sim.host.scheduler("tested")
    await tested.clock.create(sim.now - 86_400_000)
    await tested.run_after(0, "work:run", queue="q")
    await sim.sleep(600)
    assert await seen(sim) == ("green", {})
    for other in (held, tested):
        assert (await other.status()).health == "green"


def test_a_burst_and_an_outage_of_the_host_are_not_sick() -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open(lanes=2, max_in_flight=4)
        await sim.jobs.submit_many([Job(path="work:run", after=60) for _ in range(400)])
        await sim.close()
        await sim.sleep(7_200)
        sim.reply = lambda one: after(0.5)
        await sim.open(lanes=2, max_in_flight=4)
        for _ in range(10):
            assert (await sim.jobs.status()).health == "green"
            assert await seen(sim) == ("green", {})
        assert 0 < (await sim.jobs.status()).backlog < 400
        await sim.close()

    simulate(5, main)


@on_simulated_host(health_limits={"queue_late_s": 60})
async def test_a_queue_that_nobody_works_off_is_amber_and_named(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", queue="mail")
    await sim.sleep(50)
    assert await seen(sim) == ("green", {})
    await sim.sleep(60)
    health, found = await seen(sim)
    assert health == "amber" and "a job of queue mail is due for 2m" in found["QUEUE_LATE"]
    (one,) = await sim.jobs.claim("mail", wait=0)
    assert await seen(sim) == ("green", {})
    await sim.jobs.complete(one.id, one.lease)


@on_simulated_host()
async def test_leases_that_are_over_and_left_are_red_until_they_are_handled(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", queue="mail")
    assert len(await sim.jobs.claim("mail", wait=0, lease_ms=10_000)) == 1
    sim.host.runtime.alarms.stop()
    await sim.sleep(50)
    assert await seen(sim) == ("green", {})
    await sim.sleep(30)
    health, found = await seen(sim)
    assert health == "red" and found["LEASES_OVER"].startswith("1 leases ended over a minute ago")
    sim.host.runtime.alarms.start()
    await sim.sleep(1)
    assert await seen(sim) == ("green", {})


def test_a_job_that_needs_an_origin_and_has_none_is_red_at_once() -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        origins: list[str | None] = ["https://app.example"]
        host = ActorHost.open(
            "memory:", origin=lambda: origins[0], secrets=[SECRET], transport=SimulatedTransport(sim), clock=sim.clock,
            random=random,
        )  # fmt: skip
        async with host as sim.host:
            await sim.jobs.run_after(120, "work:run")
            origins[0] = None
            assert await seen(sim) == ("green", {})
            await sim.sleep(110)
            health, found = await seen(sim)
            assert health == "red" and "TOCSIN_ORIGIN_URL" in found["ORIGIN_NOT_CONFIGURED"]
            origins[0] = "https://app.example"
            await sim.sleep(60)
            assert await seen(sim) == ("green", {})

    simulate(3, main)


@on_simulated_host(health_limits={"queue_late_s": 5})
async def test_the_probe_looks_at_the_schedulers_in_memory(sim: SimulatedHost) -> None:
    await sim.host.scheduler("other").run_after(0, "work:run", queue="mail")
    await sim.sleep(10)
    assert sim.host.health() == ()
    async with client_of(sim.host.asgi(insecure=True)) as client:
        assert (await client.get("/readyz")).json() == {"ready": True, "reasons": ["QUEUE_LATE"]}
    (reason,) = sim.host.health()
    assert reason.message.startswith("scheduler other: a job of queue mail is due for 10s, and no worker waits for it")


# ---- A receiver that breaks ----------------------------------------------------------------------


@on_simulated_host(lanes=16)
async def test_a_broken_receiver_is_red_while_jobs_die_and_green_again_once_they_are_delivered(
    sim: SimulatedHost,
) -> None:
    sim.reply = lambda one: BROKEN
    await sim.jobs.submit_many(jobs(200, retry=Retry(max_retries=1, base_ms=20_000)))
    health, found = await seen(sim)
    assert health == "amber" and list(found) == ["CALLBACKS_FAILING"], "each may still be delivered"
    await sim.sleep(20)
    health, found = await seen(sim)
    assert health == "red" and set(found) == {"JOBS_DYING", "CALLBACKS_FAILING", "DEAD_GROWING"}
    assert found["JOBS_DYING"].startswith("200 jobs died of failing callbacks within 10 minutes: repair the receiver")
    assert "(work:run, exhausted: HTTP 500)" in found["DEAD_GROWING"]

    sim.reply = lambda one: OK
    assert (await sim.jobs.dead_retry_all(all=True, dry_run=True)).matched == 200
    await sim.jobs.dead_retry_all(all=True, rate_per_second=50)
    await sim.sleep(5)
    assert await seen(sim) == ("green", {})


@on_simulated_host(lanes=16)
async def test_an_instance_tells_of_its_own_deaths_and_the_host_of_all(sim: SimulatedHost) -> None:
    sim.reply = lambda one: BROKEN
    for name, count in (("t", 30), ("many", 12), ("few", 3)):
        await sim.host.scheduler(name).submit_many(jobs(count, retry=AT_ONCE))
    await sim.host.scheduler("none").status()
    await sim.sleep(6)

    said = {}
    for name in ("t", "many", "few", "none"):
        status = await sim.host.scheduler(name).status()
        said[name] = status.health, *[one.message for one in status.reasons if one.code == "JOBS_DYING"]
    of_failures = "died of failing callbacks within 10 minutes: repair the receiver, then retry them"
    assert said == {
        "t": ("red", f"30 jobs {of_failures}"),
        "many": ("red", f"12 jobs {of_failures}"),
        "few": ("amber",),
        "none": ("amber",),
    }
    (of_host,) = [one.message for one in sim.host.health() if one.code == "JOBS_DYING"]
    assert of_host == f"45 jobs of 3 instances {of_failures}"

    sim.reply = lambda one: OK
    await sim.jobs.run_after(0, "work:run")
    assert await seen(sim) == ("green", {}) and sim.host.health() == ()


@on_simulated_host()
async def test_a_receiver_that_refuses_jobs_for_good_works(sim: SimulatedHost) -> None:
    for never in (Answer(410, {}, b""), Answer(422, {"tocsin-retry": "never"}, b"")):
        sim.reply = lambda one, never=never: never  # type: ignore[misc]
        await sim.jobs.submit_many(jobs(35))
        assert await seen(sim) == ("green", {})
    assert (await sim.jobs.status()).dead == 70

    sim.reply = lambda one: BROKEN
    await sim.jobs.submit_many(jobs(25, retry=Retry(max_retries=1, base_ms=3_600_000)))
    health, found = await seen(sim)
    assert health == "amber" and list(found) == ["CALLBACKS_FAILING"]

    sim.reply = lambda one: Answer(410, {}, b"")
    await sim.jobs.submit_many(jobs(1))
    assert await seen(sim) == ("green", {})


@on_simulated_host(health_limits={"deaths": 5})
async def test_many_deaths_are_amber_for_ten_minutes_or_until_the_letters_are_gone(sim: SimulatedHost) -> None:
    for again in range(2):
        sim.reply = lambda one: Answer(410, {}, b"")
        await sim.jobs.submit_many(jobs(5))
        health, found = await seen(sim)
        assert health == "amber" and found["DEAD_GROWING"].startswith("5 jobs died within 10 minutes, the last one ")
        if again:
            await sim.sleep(600)
        for one in (await sim.jobs.dead()).records if not again else ():
            await sim.jobs.dead_cancel(one.id)
        assert await seen(sim) == ("green", {})
        await sim.sleep(600)


@on_simulated_host()
async def test_a_receiver_that_fails_nearly_always_is_amber_and_one_that_fails_often_is_not(sim: SimulatedHost) -> None:
    count = 0

    def reply(every: int) -> Answer:
        nonlocal count
        count += 1
        return BROKEN if count % every else OK

    for every, health in ((15, "amber"), (4, "green")):
        sim.reply = lambda one, every=every: reply(every)  # type: ignore[misc]
        for _ in range(60):
            await sim.jobs.run_after(0, "work:run", retry=Retry(max_retries=1, base_ms=3_600_000))
            await sim.sleep(0.5)
        status = await sim.jobs.status()
        assert status.health == health, status.reasons
        await sim.sleep(61)
        sim.reply = lambda one: OK
        await sim.jobs.run_after(0, "work:run")
        assert await seen(sim) == ("green", {})


@on_simulated_host(health_limits={"losses": 3})
async def test_many_lost_attempts_are_amber_for_ten_minutes(sim: SimulatedHost) -> None:
    for id in ("a", "b", "c"):
        await sim.jobs.run_after(0, "work:run", id=id, queue="q", retry=AT_ONCE)
    assert len(await sim.jobs.claim("q", max=2, wait=0, lease_ms=1_000)) == 2
    await sim.sleep(3)
    assert await seen(sim) == ("green", {})
    for one in await sim.jobs.claim("q", max=2, wait=0):
        await sim.jobs.complete(one.id, one.lease)
    assert [one.id for one in await sim.jobs.claim("q", wait=0, lease_ms=1_000)] == ["c"]
    await sim.sleep(3)
    health, found = await seen(sim)
    assert health == "amber" and found["ATTEMPTS_LOST"].startswith("3 attempts were lost within 10 minutes: ")
    for one in await sim.jobs.claim("q", max=3, wait=0):
        await sim.jobs.complete(one.id, one.lease)
    await sim.sleep(600)
    assert await seen(sim) == ("green", {})


# ---- The process ---------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_long_log_of_the_store_is_amber(sim: SimulatedHost) -> None:
    provider = sim.host.runtime.provider
    stats = provider.stats
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provider, "stats", lambda: replace(stats(), wal_bytes=300 << 20))
        health, found = await seen(sim)
    assert health == "amber" and found["WAL_LONG"].startswith("the write-ahead log of the store is 300 MiB long")
    assert await seen(sim) == ("green", {})


def test_a_loop_that_stands_still_is_amber_for_a_minute() -> None:
    asyncio.run(_stand_still())


async def _stand_still() -> None:
    async with ActorHost.open("memory:", health_limits={"loop_lag_ms": 50}) as host:
        alarms, codes = host.runtime.alarms, partial(_codes, host)
        for n in range(3):
            assert await codes() == []
            alarms.set(ActorId("scheduler", f"nobody{n}"), host.runtime.clock.now_ms() + 10)  # none of them rings yet
            time.sleep(0.1)  # noqa: ASYNC251 -- the fault
            await asyncio.sleep(0.001)
        assert await codes() == ["LOOP_LAGS"]
        (reason,) = host.health()
        assert reason.message.startswith("the event loop stood still 3 times within a minute, for up to ")
        alarms.lag._monotonic = lambda: host.runtime.clock.monotonic() + 61
        assert await codes() == []


async def _codes(host: ActorHost) -> list[str]:
    return [one.code for one in (await host.scheduler("x").status()).reasons]


def test_limits_of_the_server_are_in_the_health_that_it_answers() -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        await sim.open()
        app = sim.host.asgi(insecure=True)
        async with client_of(app) as client:
            app.state.crowd.note("CONNECTIONS_FULL", "512 connections are open")
            status = (await client.get("/status")).json()
            assert (status["health"], [one["code"] for one in status["reasons"]]) == ("amber", ["CONNECTIONS_FULL"])
            assert status["reasons"][0]["message"] == "512 connections are open"
            assert status["reasons"][0]["since"] == sim.now
            assert (await client.get("/readyz")).json()["reasons"] == ["CONNECTIONS_FULL"]
            await sim.sleep(11)
            assert (await client.get("/status")).json()["health"] == "green"
        await sim.close()

    simulate(5, main)


# ---- Parts ---------------------------------------------------------------------------------------


def test_recent_counts_a_sliding_window() -> None:
    now = 100.0
    recent = Recent(lambda: now, 60.0)
    recent.note(5)
    now += 30
    recent.note()
    assert recent.total == 6
    now += 31
    assert recent.total == 1
    now += 30
    assert recent.total == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"late": 5}, "no limit 'late', do you mean late_s|no limit 'late'"),
        ({"late_s": 0}, "late_s must be a whole number"),
        ({"late_s": True}, "late_s must be a whole number"),
        ({"late_s": timedelta(1)}, "late_s must be a whole number"),
        (["late_s"], "must be a dict"),
    ],
)
def test_limits_that_cannot_be_are_refused(given: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        health_limits(given)
