"""Pools: slots are leases and nothing else; caps, pause, hand-over, delete. And the whole instance."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.stage import OK, Stage, staged
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidInputError


class Busy:
    """Answers after `seconds`, and knows how many ran at once."""

    def __init__(self, stage: Stage, seconds: float = 1.0) -> None:
        self.running = self.most = 0
        self.seconds = seconds
        stage.reply = self.work

    async def work(self, one: Delivery) -> Answer:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        return OK


def pooled(count: int, pool: str = "p", **options: object) -> list[Job]:
    return [Job(path="work:run", after=0, options={"pool": pool, **options}) for _ in range(count)]


@staged()
async def test_the_default_cap_is_one_and_a_slot_is_handed_over_at_once(stage: Stage) -> None:
    busy = Busy(stage)
    await stage.jobs.submit_many(pooled(5))
    await stage.sleep(10)

    assert busy.most == 1
    assert [at for at, _ in stage.arrivals] == [0, 1_000, 2_000, 3_000, 4_000]


@staged()
async def test_a_job_sets_the_cap_until_an_operator_does(stage: Stage) -> None:
    busy = Busy(stage, 5)
    await stage.jobs.submit_many(pooled(2, max_concurrency=3))
    assert (await stage.jobs.pool("p")).max_concurrency == 3
    pool = await stage.jobs.set_pool("p", max_concurrency=2)
    assert (pool.max_concurrency, pool.in_flight) == (2, 2)
    await stage.jobs.submit_many(pooled(4, max_concurrency=50))
    await stage.sleep(30)

    assert (await stage.jobs.pool("p")).max_concurrency == 2
    assert busy.most == 2
    assert len(stage.deliveries) == 6


@staged()
async def test_a_lowered_cap_lets_holders_finish(stage: Stage) -> None:
    busy = Busy(stage, 5)
    await stage.jobs.set_pool("p", max_concurrency=4)
    await stage.jobs.submit_many(pooled(8))
    await stage.sleep(1)
    pool = await stage.jobs.set_pool("p", max_concurrency=1)
    assert (pool.in_flight, pool.queued) == (4, 4)
    await stage.sleep(5)
    busy.most = busy.running

    await stage.sleep(60)
    assert busy.most == 1
    assert len(stage.deliveries) == 8


@staged()
async def test_a_raised_cap_starts_waiters_at_once(stage: Stage) -> None:
    Busy(stage, 100)
    await stage.jobs.submit_many(pooled(5))
    await stage.sleep(1)
    await stage.jobs.set_pool("p", max_concurrency=5)
    await stage.sleep(0.1)

    assert len(stage.deliveries) == 5
    await stage.sleep(200)


@staged()
async def test_a_paused_pool_starts_nothing_and_goes_on_where_it_was(stage: Stage) -> None:
    Busy(stage)
    await stage.jobs.set_pool("p", paused=True)
    await stage.jobs.submit_many(pooled(3, max_concurrency=9))
    await stage.jobs.run_after(0, "work:run", id="free")
    await stage.sleep(60)
    pool = await stage.jobs.pool("p")
    assert [one.id for one in stage.deliveries] == ["free"]
    assert (pool.paused, pool.queued) == (True, 3)  # a job's maxConcurrency never unpauses
    await stage.jobs.set_pool("p", paused=False)
    await stage.sleep(10)

    assert len(stage.deliveries) == 4


@staged()
async def test_cap_zero_holds_all(stage: Stage) -> None:
    Busy(stage)
    await stage.jobs.set_pool("p", max_concurrency=0)
    await stage.jobs.submit_many(pooled(2))
    await stage.sleep(60)
    assert stage.deliveries == []
    await stage.jobs.set_pool("p", max_concurrency=1)
    await stage.sleep(10)

    assert len(stage.deliveries) == 2


@staged()
async def test_a_pool_is_deleted_only_when_no_job_names_it(stage: Stage) -> None:
    stage.reply = lambda one: Answer(410, {}, b"")
    await stage.jobs.set_pool("p", max_concurrency=7)
    await stage.jobs.run_after("1m", "work:run", id="x", pool="p")
    with pytest.raises(ConflictError, match="1 waiting and 0 running"):
        await stage.jobs.delete_pool("p")
    await stage.sleep(61)
    with pytest.raises(ConflictError, match="dead job 'x' names pool 'p'"):
        await stage.jobs.delete_pool("p")
    await stage.jobs.dead_cancel("x")

    assert await stage.jobs.delete_pool("p") is True
    assert await stage.jobs.delete_pool("p") is False
    assert (await stage.jobs.pool("p")).max_concurrency == 1


@staged()
async def test_a_lost_host_leaks_no_slot(stage: Stage) -> None:
    """D3 and D4: the holder of the last slot is lost; its own next attempt gets the slot again."""
    Busy(stage, 1_000)
    await stage.jobs.run_after(0, "work:run", id="x", pool="p", timeout_ms=1_000)
    await stage.sleep(0.5)
    await stage.crash()
    stage.reply = lambda one: OK
    await stage.open()
    await stage.sleep(30)

    assert stage.times("x") == [0, 16_000]
    assert (await stage.jobs.pool("p")).in_flight == 0


@staged()
async def test_asking_about_or_completing_in_an_unknown_pool_creates_none(stage: Stage) -> None:
    """D8: no phantom pool rows."""
    await stage.jobs.run_after("1m", "work:run")
    assert (await stage.jobs.pool("ghost")).max_concurrency == 1

    assert (await stage.jobs.status()).pools == []


@staged()
async def test_bad_pool_settings_are_refused(stage: Stage) -> None:
    for call, words in (
        (stage.jobs.set_pool("p"), "give max_concurrency, paused or both"),
        (stage.jobs.set_pool("p", max_concurrency=-1), "0..10000"),
        (stage.jobs.set_pool("p", max_concurrency=True), "must be an integer"),
        (stage.jobs.set_pool("p", paused=1), "true or false"),  # type: ignore[arg-type]
        (stage.jobs.set_pool("a/b", paused=True), "name must be"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            await call


# ---- The instance --------------------------------------------------------------------------------


@staged()
async def test_a_paused_instance_starts_nothing_until_it_goes_on(stage: Stage) -> None:
    await stage.jobs.pause()
    await stage.jobs.submit_many([*pooled(2), Job(path="work:run", after=0)])
    await stage.sleep(60)
    assert stage.deliveries == []
    assert {one.code for one in await stage.jobs.why((await stage.jobs.list()).records[0].id)} >= {"INSTANCE_PAUSED"}
    await stage.crash()
    await stage.open()
    await stage.sleep(60)
    assert stage.deliveries == []
    await stage.jobs.pause(False)
    await stage.sleep(1)

    assert len(stage.deliveries) == 3


@staged()
async def test_a_removed_instance_leaves_nothing_but_its_epoch(stage: Stage) -> None:
    stage.reply = lambda one: Answer(410, {}, b"")
    await stage.jobs.submit_many([Job(path="work:run", after=0) for _ in range(40)])
    await stage.sleep(1)
    await stage.jobs.submit_many([Job(path="work:run", after="1h", options={"pool": "p"}) for _ in range(600)])
    removed = await stage.jobs.remove()
    left = stage.disk.maps["scheduler/t"].range(b"", b"\xff", 10, False)

    assert removed.jobs == 640
    assert [key for key, _ in left] == [b"\x00epoch"]
    await stage.sleep(7_200)
    assert len(stage.deliveries) == 40
    assert await stage.jobs.run_after("1h", "work:run", id="again") == "again"
    assert (await stage.jobs.status()).backlog == 1


@staged()
async def test_a_removal_that_a_crash_interrupted_goes_on_by_itself(stage: Stage) -> None:
    await stage.jobs.submit_many([Job(path="work:run", after="1h") for _ in range(900)])
    removal = asyncio.ensure_future(stage.jobs.remove())
    for _ in range(1_000):
        await asyncio.sleep(0)
        if len(stage.disk.maps["scheduler/t"].range(b"job/", b"job0", 5_000, False)) < 900:
            break
    await stage.crash()
    assert removal.cancelled()
    await stage.open()
    await stage.sleep(10)

    assert [key for key, _ in stage.disk.maps["scheduler/t"].range(b"", b"\xff", 10, False)] == [b"\x00epoch"]
