"""Health that is not green says why: in `status`, in the log, and at the probe of readiness."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.actors.scheduler.captured_logs import captured_logs
from tests.actors.scheduler.simulated_host import (
    OK,
    SECRET,
    SimulatedHost,
    SimulatedTransport,
    on_simulated_host,
)
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.actors.scheduler.model.health import LEVELS
from tocsin.actors.scheduler.model.records import HealthReason
from tocsin.actors.testing import simulate
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import Fenced, RolledBack, StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from tocsin.storage.api import Event
from tocsin.storage.memory import MemoryProvider


async def reasons(sim: SimulatedHost) -> list[HealthReason]:
    status = await sim.jobs.status()
    assert (status.health == "green") == (not status.reasons)
    return list(status.reasons)


# ---- The origin ----------------------------------------------------------------------------------


@on_simulated_host()
async def test_an_origin_that_cannot_be_reached_is_named_with_the_error_and_since_when(sim: SimulatedHost) -> None:
    sim.down = True
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(100)])
    began = sim.now
    await sim.sleep(60)
    (reason,) = await reasons(sim)

    assert (await sim.jobs.status()).health == "red"
    assert reason.code == "ORIGIN_UNREACHABLE"
    assert "https://origin.example cannot be reached: never connected: refused" in reason.message
    assert began <= reason.since <= began + 1_000
    waiting = (await sim.jobs.list(limit=1)).records[0]
    circuit = {one.code: one.message for one in await sim.jobs.why(waiting.id)}["CIRCUIT_OPEN"]
    assert "https://origin.example cannot be reached: never connected: refused" in circuit


@on_simulated_host()
async def test_the_log_says_once_that_callbacks_stop_and_once_that_they_go_on(sim: SimulatedHost) -> None:
    with captured_logs() as log:
        sim.down = True
        await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(30)])
        await sim.sleep(60)
        stopped = list(log.lines)
        sim.down = False
        await sim.sleep(30)

    (opened,) = stopped
    assert opened.startswith("WARNING the origin https://origin.example cannot be reached: never connected: refused.")
    assert re.search(r"\b\d+ callbacks are due", opened) is not None
    (closed,) = log.lines[1:]
    assert re.match(r"WARNING the origin https://origin.example answers again after 6\d s", closed) is not None
    assert await reasons(sim) == []


@on_simulated_host()
async def test_the_log_counts_the_callbacks_that_are_due_and_nothing_else(sim: SimulatedHost) -> None:
    sim.down = True
    with captured_logs() as log:
        await sim.jobs.run_after(0, "work:pull", queue="q")
        await sim.host.scheduler("idle").run_after("1h", "work:later")
        await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(130)])
        await sim.sleep(3)

    assert len(log.of("130 callbacks are due")) == 1


def test_a_host_whose_origin_is_gone_says_so() -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        origins = ["https://app.example", None]
        host = ActorHost.open(
            "memory:", origin=lambda: origins[0], secrets=[SECRET], transport=SimulatedTransport(sim), clock=sim.clock,
            random=random,
        )  # fmt: skip
        async with host as sim.host:
            with captured_logs() as log:
                await sim.jobs.submit_many([Job(path="work:run", after=1) for _ in range(5)])
                origins.pop(0)
                await sim.sleep(3)
            (reason,) = await reasons(sim)
            assert reason.code == "ORIGIN_NOT_CONFIGURED" and "TOCSIN_ORIGIN_URL" in reason.message
            assert len(log.of("TOCSIN_ORIGIN_URL")) == 1

    simulate(3, main)


def test_a_password_of_an_origin_stands_in_no_reason_and_no_log() -> None:
    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        origins = ["https://app.example", "https://user:hidden@app.example"]
        host = ActorHost.open(
            "memory:", origin=lambda: origins[0], secrets=[SECRET], transport=SimulatedTransport(sim), clock=sim.clock,
            random=random,
        )  # fmt: skip
        async with host as sim.host:
            with captured_logs() as log:
                await sim.jobs.submit_many([Job(path="work:run", after=1) for _ in range(5)])
                origins.pop(0)
                await sim.sleep(3)
            (reason,) = await reasons(sim)
            assert reason.code == "ORIGIN_NOT_CONFIGURED" and log.lines
            assert "hidden" not in reason.message + "".join(log.lines)

    simulate(3, main)


# ---- Other causes --------------------------------------------------------------------------------


def broken_rule(job: object) -> bool:
    raise RuntimeError("as the test wanted")


def test_a_rule_that_cannot_say_is_named_instead_of_the_origin_until_it_can() -> None:
    rule: list[Callable[[object], bool]] = [broken_rule]

    @on_simulated_host(authorize_fire=lambda job: rule[0](job))
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(6)])
        await sim.sleep(30)
        (reason,) = await reasons(sim)
        assert reason.code == "AUTHORIZE_FIRE_FAILING" and "raised RuntimeError" in reason.message
        rule[0] = bool
        await sim.sleep(120)
        assert await reasons(sim) == []

    run()


@on_simulated_host(authorize_fire=broken_rule)
async def test_a_rule_that_fails_for_pulled_jobs_alone_is_named_too(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(0, "work:run", queue="q")
    claim = asyncio.ensure_future(sim.jobs.claim("q", wait=40))
    await sim.sleep(35)
    (reason,) = await reasons(sim)

    assert reason.code == "AUTHORIZE_FIRE_FAILING" and reason.since < sim.now - 20_000
    assert not (await claim)


@on_simulated_host()
async def test_a_store_in_trouble_is_named_with_the_instant_it_began(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(10, "work:run")
    sim.disk_full(True)
    await sim.sleep(12)
    began = sim.now
    await sim.sleep(60)
    (reason,) = await reasons(sim)
    assert reason.code == "STORE_FULL" and reason.since < began
    sim.disk_full(False)
    await sim.sleep(10)

    assert await reasons(sim) == []


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (StoreUnavailable("the disk is away"), "STORE_UNAVAILABLE"),
        (StoreFull("no space is left"), "STORE_FULL"),
        (RolledBack("the file was replaced"), "STORE_REPLACED"),
        (Fenced("another process has it"), "STORE_REPLACED"),
        (StoreCorrupt("the file is damaged"), "STORE_CORRUPT"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_each_trouble_of_a_store_has_its_code_while_it_lasts(
    trouble: StoreError, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @on_simulated_host()
    async def run(sim: SimulatedHost) -> None:
        await sim.jobs.run_after("1h", "work:run")
        now: list[StoreError | None] = [trouble]
        with monkeypatch.context() as patched:
            patched.setattr(MemoryProvider, "trouble", property(lambda _: now[0]))
            (reason,) = await reasons(sim)
            assert (reason.code, reason.since) == (code, sim.now)
            assert trouble.message in reason.message
            assert (await sim.jobs.status()).health == "red"
            assert [one.code for one in sim.host.health()] == [code]
            now[0] = None
            assert await reasons(sim) == []

    run()


@pytest.mark.anyio
async def test_a_file_that_was_replaced_under_a_host_is_named(tmp_path: Path) -> None:
    path, other = tmp_path / "jobs.db", tmp_path / "other.db"
    host = ActorHost.open(f"sqlite:///{path}", origin="http://127.0.0.1:9", insecure=True, share=False)
    with pytest.raises(RolledBack, match="Put it back before the next start"):
        async with host:
            jobs = host.scheduler("t")
            await jobs.run_after("1h", "work:run", id="kept")
            assert (await jobs.status()).health == "green"
            shutil.copy(path, other)
            other.replace(path)
            with pytest.raises(RolledBack):
                await jobs.run_after("1h", "work:run")
            assert [one.code for one in (await jobs.status()).reasons] == ["STORE_REPLACED"]


def test_a_host_that_cannot_read_which_alarms_there_are_says_so_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, events = [True], MemoryProvider.events

    async def unreadable(self: MemoryProvider) -> AsyncIterator[Event]:
        if broken[0]:
            raise StoreUnavailable("the index of alarms cannot be read")
        async for event in events(self):
            yield event

    async def main(random: Random) -> None:
        sim = SimulatedHost(random)
        monkeypatch.setattr(MemoryProvider, "events", unreadable)
        await sim.open()
        await sim.sleep(1)
        (reason,) = await reasons(sim)
        assert reason.code == "HOST_STOPPING" and (await sim.jobs.status()).health == "red"
        ready = [sim.host.ready]
        broken[0] = False
        await sim.sleep(60)
        assert await reasons(sim) == []
        assert [*ready, sim.host.ready] == [False, True]
        await sim.close()

    simulate(5, main)


@on_simulated_host()
async def test_an_alarm_that_fails_is_named_with_its_error(sim: SimulatedHost) -> None:
    with pytest.MonkeyPatch.context() as patch:

        async def broken(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("as the test wanted")

        patch.setattr("tocsin.actors.scheduler.actor.scheduler_actor.SchedulerActor.alarm", broken)
        await sim.jobs.run_after(5, "work:run")
        await sim.sleep(30)
        (reason,) = await reasons(sim)
        assert reason.code == "ALARM_FAILING" and "as the test wanted" in reason.message
        assert sim.now - 26_000 < reason.since < sim.now - 20_000
        assert [one.code for one in sim.host.health()] == ["ALARM_FAILING"]
    await sim.sleep(30)

    assert await reasons(sim) == [] and sim.host.health() == ()


async def refuse(batches: object) -> None:
    raise StoreUnavailable("as the test wanted")


@pytest.mark.parametrize("seconds", [20, 60, 61, 62, 63, 200])
@pytest.mark.parametrize("expiring", [False, True])
def test_what_failed_while_a_store_took_nothing_is_over_once_the_work_is_done(seconds: int, expiring: bool) -> None:
    """Whoever does it: an alarm that rings again, or the settlement that comes first."""

    @on_simulated_host()
    async def test(sim: SimulatedHost) -> None:
        async def late(delivery: Delivery) -> Answer:
            await asyncio.sleep(seconds + 0.5 if delivery.id == "x" else 0)
            return OK

        sim.reply = late
        await sim.jobs.run_after(0, "work:run", id="x", timeout_ms=300_000)
        if expiring:
            await sim.jobs.run_after(3, "work:run", queue="q", expires_at=sim.now + 6_000)
        else:
            await sim.jobs.run_after(3, "work:run")
        await sim.sleep(1)
        provider = sim.host.runtime.provider
        assert isinstance(provider, MemoryProvider)
        write, provider.combiner._write = provider.combiner._write, refuse
        await sim.sleep(seconds)
        assert [one.code for one in await reasons(sim)] == ["ALARM_FAILING"]
        provider.combiner._write = write
        await sim.sleep(30)

        status = await sim.jobs.status()
        assert (status.backlog, status.in_flight, status.alarm_failures) == (0, 0, 0)
        assert status.health == "green" and sim.host.health() == ()

    test()


@on_simulated_host()
async def test_an_alarm_is_not_well_because_another_event_of_its_actor_is(sim: SimulatedHost) -> None:
    with pytest.MonkeyPatch.context() as patch:

        async def broken(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("as the test wanted")

        patch.setattr("tocsin.actors.scheduler.actor.scheduler_actor.run_timers", broken)
        await sim.jobs.run_after(5, "work:run", queue="q", expires_at=sim.now + 6_000)
        await sim.sleep(20)
        for _ in range(5):
            await sim.jobs.run_after("1h", "work:run")
            await sim.sleep(1)
        assert [one.code for one in await reasons(sim)] == ["ALARM_FAILING"]


@on_simulated_host(health_limits={"dead_letters": 3})
async def test_many_dead_letters_are_amber_and_named(sim: SimulatedHost) -> None:
    sim.reply = lambda delivery: Answer(410, {}, b"")
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(3)])
    await sim.sleep(5)
    first = await reasons(sim)
    await sim.sleep(5)
    again = await reasons(sim)
    for one in (await sim.jobs.dead()).records:
        await sim.jobs.dead_cancel(one.id)

    assert [(one.code, one.message[:14]) for one in first] == [("DEAD_LETTERS", "3 dead letters")]
    assert again == first, "it stands since it was seen first"
    assert (await sim.jobs.status()).health == "green"


@on_simulated_host()
async def test_jobs_and_schedules_that_cannot_be_read_any_more_are_told_until_their_rows_are_gone(
    sim: SimulatedHost,
) -> None:
    for id in ("garbage", "gone", "fine"):
        await sim.jobs.run_after(60, "work:run", id=id)
    await sim.jobs.run_after(60, "work:run", id="place")
    await sim.jobs.schedules.put("hourly", "work:run", every=3_600)
    rows = sim.disk.maps["scheduler/t"]
    rows.apply({b"job/garbage": b"\xc1", b"job/gone": None, b"at/place": b"\xc1", b"cron/hourly": b"\xc1"})
    await sim.host.runtime.evict()  # the first jobs are in memory as well
    assert await reasons(sim) == [], "nobody has seen it yet"
    await sim.sleep(3_700)
    for again in range(2):
        (reason,) = await reasons(sim)
        assert reason.code == "DAMAGED_ROWS"
        assert "2 jobs and 1 schedule that had been accepted cannot be read any more" in reason.message
        assert (await sim.jobs.status()).health == "amber"
        if not again:
            await sim.crash()
            await sim.open()
    assert {one.body["id"] for one in sim.deliveries} == {"fine", "place"}
    rows.apply(dict.fromkeys([key for key, _ in rows.range(b"bad/", b"bad0", 100, False)]))
    await sim.jobs.schedules.put("hourly", "work:run", every=3_600)

    assert await reasons(sim) == []


@on_simulated_host()
async def test_very_many_lost_jobs_are_counted_to_a_bound(sim: SimulatedHost) -> None:
    await sim.jobs.run_after(60, "work:run")
    value, keys = bytes(64 * 1024), [b"bad/job/%05d" % n for n in range(1_500)]
    sim.disk.maps["scheduler/t"].apply(dict.fromkeys(keys, value))
    (reason,) = await reasons(sim)
    sim.disk.maps["scheduler/t"].apply(dict.fromkeys(keys))

    assert "1,000 jobs or more that had been accepted" in reason.message


def test_every_code_stands_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating.md").read_text()
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \| (red|amber) \|", page, re.MULTILINE)
    assert {code: level for codes, level in rows for code in re.findall("[A-Z_]+", codes)} == LEVELS
