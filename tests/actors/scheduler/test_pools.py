"""Pools: slots are leases and nothing else; caps, pause, hand-over, delete. And the whole instance."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.scheduler.simulated_host import OK, SimulatedHost, on_simulated_host
from tocsin.actors.scheduler.client.scheduler import Job
from tocsin.dispatch.testing import Delivery
from tocsin.dispatch.transport import Answer
from tocsin.errors import ConflictError, InvalidInputError


class Busy:
    """Answers after `seconds`, and knows how many ran at once."""

    def __init__(self, sim: SimulatedHost, seconds: float = 1.0) -> None:
        self.running = self.most = 0
        self.seconds = seconds
        sim.reply = self.work

    async def work(self, one: Delivery) -> Answer:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        return OK


def pooled(count: int, pool: str = "p", **options: object) -> list[Job]:
    return [Job(path="work:run", after=0, options={"pool": pool, **options}) for _ in range(count)]


@on_simulated_host()
async def test_the_default_cap_is_one_and_a_slot_is_handed_over_at_once(sim: SimulatedHost) -> None:
    busy = Busy(sim)
    await sim.jobs.submit_many(pooled(5))
    await sim.sleep(10)

    assert busy.most == 1
    assert [at for at, _ in sim.arrivals] == [0, 1_000, 2_000, 3_000, 4_000]


@on_simulated_host()
async def test_a_job_sets_the_cap_until_an_operator_does(sim: SimulatedHost) -> None:
    busy = Busy(sim, 5)
    await sim.jobs.submit_many(pooled(2, max_concurrency=3))
    assert (await sim.jobs.pool("p")).max_concurrency == 3
    pool = await sim.jobs.set_pool("p", max_concurrency=2)
    assert (pool.max_concurrency, pool.in_flight) == (2, 2)
    await sim.jobs.submit_many(pooled(4, max_concurrency=50))
    await sim.sleep(30)

    assert (await sim.jobs.pool("p")).max_concurrency == 2
    assert busy.most == 2
    assert len(sim.deliveries) == 6


@on_simulated_host()
async def test_a_lowered_cap_lets_holders_finish(sim: SimulatedHost) -> None:
    busy = Busy(sim, 5)
    await sim.jobs.set_pool("p", max_concurrency=4)
    await sim.jobs.submit_many(pooled(8))
    await sim.sleep(1)
    pool = await sim.jobs.set_pool("p", max_concurrency=1)
    assert (pool.in_flight, pool.queued) == (4, 4)
    await sim.sleep(5)
    busy.most = busy.running

    await sim.sleep(60)
    assert busy.most == 1
    assert len(sim.deliveries) == 8


@on_simulated_host()
async def test_a_raised_cap_starts_waiters_at_once(sim: SimulatedHost) -> None:
    Busy(sim, 100)
    await sim.jobs.submit_many(pooled(5))
    await sim.sleep(1)
    await sim.jobs.set_pool("p", max_concurrency=5)
    await sim.sleep(0.1)

    assert len(sim.deliveries) == 5
    await sim.sleep(200)


@on_simulated_host()
async def test_a_paused_pool_starts_nothing_and_goes_on_where_it_was(sim: SimulatedHost) -> None:
    Busy(sim)
    await sim.jobs.set_pool("p", paused=True)
    await sim.jobs.submit_many(pooled(3, max_concurrency=9))
    await sim.jobs.run_after(0, "work:run", id="free")
    await sim.sleep(60)
    pool = await sim.jobs.pool("p")
    assert [one.id for one in sim.deliveries] == ["free"]
    assert (pool.paused, pool.queued) == (True, 3)  # a job's maxConcurrency never unpauses
    await sim.jobs.set_pool("p", paused=False)
    await sim.sleep(10)

    assert len(sim.deliveries) == 4


@on_simulated_host()
async def test_cap_zero_holds_all(sim: SimulatedHost) -> None:
    Busy(sim)
    await sim.jobs.set_pool("p", max_concurrency=0)
    await sim.jobs.submit_many(pooled(2))
    await sim.sleep(60)
    assert sim.deliveries == []
    await sim.jobs.set_pool("p", max_concurrency=1)
    await sim.sleep(10)

    assert len(sim.deliveries) == 2


@on_simulated_host()
async def test_a_pool_is_deleted_only_when_no_job_names_it(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"")
    await sim.jobs.set_pool("p", max_concurrency=7)
    await sim.jobs.run_after("1m", "work:run", id="x", pool="p")
    with pytest.raises(ConflictError, match="1 waiting and 0 running"):
        await sim.jobs.delete_pool("p")
    await sim.sleep(61)
    with pytest.raises(ConflictError, match="dead job 'x' names pool 'p'"):
        await sim.jobs.delete_pool("p")
    await sim.jobs.dead_cancel("x")

    assert await sim.jobs.delete_pool("p") is True
    assert await sim.jobs.delete_pool("p") is False
    assert (await sim.jobs.pool("p")).max_concurrency == 1


@on_simulated_host()
async def test_a_lost_host_leaks_no_slot(sim: SimulatedHost) -> None:
    """D3 and D4: the holder of the last slot is lost; its own next attempt gets the slot again."""
    Busy(sim, 1_000)
    await sim.jobs.run_after(0, "work:run", id="x", pool="p", timeout_ms=1_000)
    await sim.sleep(0.5)
    await sim.crash()
    sim.reply = lambda one: OK
    await sim.open()
    await sim.sleep(30)

    assert sim.times("x") == [0, 16_000]
    assert (await sim.jobs.pool("p")).in_flight == 0


@on_simulated_host()
async def test_asking_about_or_completing_in_an_unknown_pool_creates_none(sim: SimulatedHost) -> None:
    """D8: no phantom pool rows."""
    await sim.jobs.run_after("1m", "work:run")
    assert (await sim.jobs.pool("ghost")).max_concurrency == 1

    assert (await sim.jobs.status()).pools == []


@on_simulated_host()
async def test_bad_pool_settings_are_refused(sim: SimulatedHost) -> None:
    for call, words in (
        (sim.jobs.set_pool("p"), "give at least one of max_concurrency, paused, rate"),
        (sim.jobs.set_pool("p", max_concurrency=-1), "0..10000"),
        (sim.jobs.set_pool("p", max_concurrency=True), "must be an integer"),
        (sim.jobs.set_pool("p", paused=1), "true or false"),  # type: ignore[arg-type]
        (sim.jobs.set_pool("a/b", paused=True), "name must be"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            await call


# ---- The instance --------------------------------------------------------------------------------


@on_simulated_host()
async def test_a_paused_instance_starts_nothing_until_it_goes_on(sim: SimulatedHost) -> None:
    await sim.jobs.pause()
    await sim.jobs.submit_many([*pooled(2), Job(path="work:run", after=0)])
    await sim.sleep(60)
    assert sim.deliveries == []
    assert {one.code for one in await sim.jobs.why((await sim.jobs.list()).records[0].id)} >= {"INSTANCE_PAUSED"}
    await sim.crash()
    await sim.open()
    await sim.sleep(60)
    assert sim.deliveries == []
    await sim.jobs.pause(False)
    await sim.sleep(1)

    assert len(sim.deliveries) == 3


@on_simulated_host()
async def test_a_removed_instance_leaves_nothing_but_its_epoch(sim: SimulatedHost) -> None:
    sim.reply = lambda one: Answer(410, {}, b"")
    await sim.jobs.submit_many([Job(path="work:run", after=0) for _ in range(40)])
    await sim.sleep(1)
    await sim.jobs.submit_many([Job(path="work:run", after="1h", options={"pool": "p"}) for _ in range(600)])
    removed = await sim.jobs.remove()
    left = sim.disk.maps["scheduler/t"].range(b"", b"\xff", 10, False)

    assert removed.jobs == 640
    assert [key for key, _ in left] == [b"\x00epoch"]
    await sim.sleep(7_200)
    assert len(sim.deliveries) == 40
    assert await sim.jobs.run_after("1h", "work:run", id="again") == "again"
    assert (await sim.jobs.status()).backlog == 1


@on_simulated_host()
async def test_a_removal_that_a_crash_interrupted_goes_on_by_itself(sim: SimulatedHost) -> None:
    await sim.jobs.submit_many([Job(path="work:run", after="1h") for _ in range(900)])
    removal = asyncio.ensure_future(sim.jobs.remove())
    for _ in range(1_000):
        await asyncio.sleep(0)
        if len(sim.disk.maps["scheduler/t"].range(b"job/", b"job0", 5_000, False)) < 900:
            break
    await sim.crash()
    assert removal.cancelled()
    await sim.open()
    await sim.sleep(10)

    assert [key for key, _ in sim.disk.maps["scheduler/t"].range(b"", b"\xff", 10, False)] == [b"\x00epoch"]


@on_simulated_host()
async def test_a_handle_on_a_pool_is_its_name_and_what_can_be_done_with_it(sim: SimulatedHost) -> None:
    stripe = sim.jobs.pools("stripe")
    assert (await stripe.status()).known is False
    await stripe.set(max_concurrency=2)
    assert (await stripe.pause()).paused
    for n in range(3):
        await sim.jobs.run_after(1, "work:run", id=f"j{n}", pool=stripe, labels=[stripe])
    await sim.jobs.run_after(1, "work:run", id="parent", then=[Job(path="work:run", options={"pool": stripe})])
    await sim.jobs.schedules.put("daily", "work:run", cron="0 9 * * *", pool=stripe)
    await sim.sleep(5)
    held = await stripe.status()
    names = {one.pool for one in (await sim.jobs.list(pool=stripe)).records}
    resumed = await stripe.resume()
    await sim.sleep(5)

    assert (held.queued, held.in_flight, held.max_concurrency, held.paused) == (4, 0, 2, True)
    assert (names, resumed.paused, (await stripe.status()).queued) == ({"stripe"}, False, 0)
    assert (stripe, stripe.name, repr(stripe)) == ("stripe", "stripe", "PoolHandle('stripe')")
    with pytest.raises(InvalidInputError, match="pool must be 1 to 128 characters"):
        sim.jobs.pools("a b")


class Text(str):
    """A text of a class of the app's, as template engines and database drivers have."""


@on_simulated_host()
async def test_texts_of_a_class_of_the_app_s_are_stored_as_the_texts_they_are(sim: SimulatedHost) -> None:
    text = Text("x")
    await sim.jobs.run_after(
        60, text, id=text, queue=text, pool=text, labels=[text], shard_key=text, initiator=text,
        then=[Job(workflow=text, options={"queue": text})],
    )  # fmt: skip
    await sim.jobs.schedules.put(text, text, cron="0 9 * * *", queue=text)
    await sim.jobs.schedules.pause(text)
    await sim.jobs.cancel_all(pool=Text("other"), label=text, path=text)
    record = await sim.jobs.get(text)

    assert record is not None
    shown = (record.id, record.function_path, record.queue, record.pool, *record.labels, record.shard_key)
    assert {(type(one), one) for one in shown} == {(str, "x")}
    assert (await sim.jobs.cancel(text)).cancelled
